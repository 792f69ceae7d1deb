#ifndef ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_
#define ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_file.h"
#include "engine/text/tokenizer.h"

namespace annulus {

// The tokenizer of a GGUF file, as the files of a Hugging Face directory; the usual readers check
// them.
struct GgufTokenizerFiles {
  // If tokenizer.ggml.model is "gpt2" (byte-level BPE) or "gemma4" (BPE of characters); otherwise
  // empty.
  std::string tokenizer_json;
  std::string tokenizer_model;  // if "llama" (BPE with scores) or "t5" (Unigram); otherwise empty
  // tokenizer_config.json: begin and end of a text, the chat template, and added_tokens_decoder
  // with what tokenizer.model cannot say of tokens.
  std::string config;
  std::vector<std::string> warnings;  // what was read otherwise than the file says
};

// INVALID_ARGUMENT: arrays of different lengths, a token that is repeated or not UTF-8, or an id
// out of range; names file and key. UNIMPLEMENTED: an unsupported kind or pre-tokenizer. Sources:
// docs/gguf.md of the ggml project; patterns are those in the publishers' own tokenizer.json files.
absl::StatusOr<GgufTokenizerFiles> MakeGgufTokenizer(const GgufFile& file);

// Loads what MakeGgufTokenizer returned. `path` names the GGUF file in messages. Errors of
// LoadTokenizerJson and LoadTokenizerModel.
absl::StatusOr<std::unique_ptr<Tokenizer>> LoadGgufTokenizer(const GgufTokenizerFiles& files,
                                                             absl::string_view path);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_
