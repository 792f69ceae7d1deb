#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_STAGES_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_STAGES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/pipeline_tokenizer.h"

namespace annulus {

// The stages of a tokenizer.model, BPE or Unigram. They produce the ids of the sentencepiece
// library (but see UnigramModel for ties) and follow Transformers' slow Llama tokenizer:
// - control and unknown pieces are recognised in the text, and are special; so are the tokens of
//   `added_tokens_decoder`, which are special if that says so;
// - with `legacy`, each stretch of text between them gets a dummy prefix (if the file says so),
//   otherwise only one that starts the text;
// - the beginning-of-text id comes first.
// `name`: the file's, for messages. `config`: the tokenizer_config.json. INVALID_ARGUMENT for a
// malformed file, UNIMPLEMENTED for other kinds.
absl::StatusOr<PipelineStages> ParseSentencePieceStages(absl::string_view bytes,
                                                        absl::string_view name,
                                                        const JsonNode& config);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_SENTENCEPIECE_STAGES_H_
