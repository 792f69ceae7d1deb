#ifndef ANNULUS_ENGINE_TEXT_SENTENCEPIECE_STAGES_H_
#define ANNULUS_ENGINE_TEXT_SENTENCEPIECE_STAGES_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/pipeline_tokenizer.h"

namespace annulus {

// The stages of a tokenizer.model, BPE or Unigram. They give the ids of the sentencepiece library,
// and, as Transformers' slow Llama tokenizer does:
//   - control and unknown pieces are recognised in the text, and special;
//   - each stretch of text between them gets a dummy prefix (when the file says so) if `legacy`,
//   else
//     only one that starts the text;
//   - the beginning-of-text id is put in front.
// `name` is the file's, for messages. INVALID_ARGUMENT for a malformed file, UNIMPLEMENTED for
// other kinds.
absl::StatusOr<PipelineStages> ParseSentencePieceStages(absl::string_view bytes,
                                                        absl::string_view name, bool legacy);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_SENTENCEPIECE_STAGES_H_
