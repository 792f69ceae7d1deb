#ifndef ANNULUS_ENGINE_GGUF_GGUF_PRE_TOKENIZERS_H_
#define ANNULUS_ENGINE_GGUF_GGUF_PRE_TOKENIZERS_H_

#include <nlohmann/json.hpp>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {

// What splits a text before BPE, and what else a publisher's tokenizer.json says.
struct GgufPreTokenizer {
  absl::string_view name = {};                    // tokenizer.ggml.pre
  std::span<const absl::string_view> first = {};  // patterns that split a text before
  absl::string_view pattern = "";                 // "": GPT-2's own, which ByteLevel brings
  bool digits_apart = false;                      // every digit by itself, first of all
  bool ignore_merges = false;                     // a piece that is a token is not merged
  bool adds_bos = false;                          // unless add_bos_token says otherwise
  bool composes = false;                          // normal form C first
};

// The kind with this name, or null.
const GgufPreTokenizer* FindGgufPreTokenizer(absl::string_view name);

// The names of all kinds, for messages.
std::string GgufPreTokenizers();

// As `pre_tokenizer` of a tokenizer.json.
nlohmann::json GgufPreTokenizerJson(const GgufPreTokenizer& kind);

// A ByteLevel stage; `own_pattern`: it splits by GPT-2's pattern.
nlohmann::json ByteLevelJson(bool own_pattern);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_PRE_TOKENIZERS_H_
