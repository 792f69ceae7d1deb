#ifndef ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_
#define ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_

#include <string>

#include "absl/status/statusor.h"
#include "engine/gguf/gguf_file.h"

namespace annulus {

// The tokenizer of a GGUF file as the files that a Hugging Face directory would have; their readers
// check them as they check any other.
struct GgufTokenizerFiles {
  std::string tokenizer_json;   // of tokenizer.ggml.model "gpt2": byte-level BPE; else empty
  std::string tokenizer_model;  // of "llama" (BPE with scores) and "t5" (Unigram); else empty
  std::string config;  // tokenizer_config.json: beginning and end of text, the chat template
};

// INVALID_ARGUMENT: arrays of unequal length, a token twice or not UTF-8, an id out of range; the
// message names file and key. UNIMPLEMENTED: a kind or a pre-tokenizer that is not served.
// Sources: docs/gguf.md of the ggml project; the patterns are those of the publishers' own
// tokenizer.json files.
absl::StatusOr<GgufTokenizerFiles> MakeGgufTokenizer(const GgufFile& file);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TOKENIZER_H_
