#ifndef ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_
#define ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/literal_set.h"
#include "engine/text/text_stage.h"
#include "engine/text/vocabulary.h"

namespace annulus {

// Tokens that are cut out of the text as they stand, before the model sees it: special tokens and
// those added after training. Immutable and thread-safe.
//
// Raw tokens ("normalized": false) are looked for in the text as given; the others, in their
// normalized form, in what the normalizer makes of the stretches between. At each place the longest
// token wins. The flags:
//   lstrip, rstrip  the token takes the white space before or behind it along;
//   single_word     it counts only where no word character touches it;
//   special         decoding can leave it out.
//
// Control tokens steer the model: every special token, and those whose text is in angle or square
// brackets, such as "<tool_call>". Plain text, which others wrote, must not become one.
class AddedTokens {
 public:
  // Reads the member `added_tokens` of a tokenizer.json and adds them to `vocabulary`, which holds
  // the model's own. A token of the model may be listed again under its own id; any other clash of
  // content or id is INVALID_ARGUMENT.
  static absl::StatusOr<AddedTokens> Parse(const JsonNode& node, const TextFilters& normalizer,
                                           Vocabulary* vocabulary);

  // Stages that append the ids of the tokens and give the stretches between them to `next`; null
  // where there are no tokens of the kind. They point into this object. They hold back the length
  // of the longest token and, where a token strips on its left, white space. With `plain` control
  // tokens are not looked for.
  std::unique_ptr<TextStage> NewRawStage(EncodeState* state, TextStage* next, bool plain) const;
  std::unique_ptr<TextStage> NewNormalizedStage(EncodeState* state, TextStage* next,
                                                bool plain) const;

  bool IsSpecial(int32_t id) const;
  bool IsControl(int32_t id) const;

  // Control tokens that the model's own vocabulary has too, so that the model might make them of
  // plain text.
  const std::vector<int32_t>& model_controls() const { return model_controls_; }

  // What decoding starts from for tokens whose normalized form differs from their content.
  const absl::flat_hash_map<int32_t, std::string>& normalized_forms() const {
    return normalized_forms_;
  }

 private:
  struct Token {
    int32_t id = 0;
    bool single_word = false;
    bool lstrip = false;
    bool rstrip = false;
  };
  struct Finder {
    LiteralSet literals;
    std::vector<Token> tokens;  // in the order of `literals`
    size_t longest = 0;         // of the literals, in bytes
    bool any_lstrip = false;
  };
  class Stage;

  absl::Status ParseToken(const JsonNode& node, const TextFilters& normalizer,
                          Vocabulary* vocabulary);

  struct Finders {
    Finder raw;
    Finder normalized;
  };
  static absl::Status AddTo(Finder& finder, absl::string_view literal, const Token& token);

  Finders all_;
  Finders plain_;  // without control tokens
  std::vector<int32_t> model_controls_;
  struct Kind {
    bool special = false;
    bool control = false;
  };
  absl::flat_hash_map<int32_t, Kind> kinds_;  // every added id
  absl::flat_hash_map<int32_t, std::string> normalized_forms_;
};

// Whether a token of this text steers the model, though it is not special.
bool IsMarkup(absl::string_view content);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_
