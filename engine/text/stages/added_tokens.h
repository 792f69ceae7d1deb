#ifndef ANNULUS_ENGINE_TEXT_STAGES_ADDED_TOKENS_H_
#define ANNULUS_ENGINE_TEXT_STAGES_ADDED_TOKENS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/base/json_node.h"
#include "engine/text/models/vocabulary.h"
#include "engine/text/stages/literal_set.h"
#include "engine/text/stages/text_stage.h"

namespace annulus {

// Tokens that are cut out of the text before the model sees it: special tokens, and tokens added
// after training. Immutable and thread-safe.
//
// Raw tokens ("normalized": false) are searched in the text as given. The others are normalized and
// then searched in the normalized text between raw tokens. At each position the longest token wins.
// Flags of tokenizer.json:
// - lstrip, rstrip: the token includes the white space before or after it;
// - single_word: it only matches if no word character touches it;
// - special: decoding can leave it out.
//
// Control tokens steer the model: every special token, and tokens whose text is in angle or square
// brackets, such as "<tool_call>". Plain text, which others wrote, must not become one.
class AddedTokens {
 public:
  // Parses the member `added_tokens` of a tokenizer.json and adds them to `vocabulary`, which must
  // contain the model's own tokens. A token of the model may be listed again with its own id; any
  // other duplicate content or id is INVALID_ARGUMENT.
  static absl::StatusOr<AddedTokens> Parse(const JsonNode& node, const TextFilters& normalizer,
                                           Vocabulary* vocabulary);

  // Create stages that append the tokens' ids and pass the text between them to `next`; null if
  // there are no tokens of the kind. This object must outlive them. They hold back as much as the
  // longest token, plus white space if some token strips on its left. With `plain` they ignore
  // control tokens.
  std::unique_ptr<TextStage> NewRawStage(EncodeState* state, TextStage* next, bool plain) const;
  std::unique_ptr<TextStage> NewNormalizedStage(EncodeState* state, TextStage* next,
                                                bool plain) const;

  bool IsSpecial(int32_t id) const;
  bool IsControl(int32_t id) const;

  // Control tokens that are also in the model's own vocabulary, so that the model might produce
  // them from plain text.
  const std::vector<int32_t>& model_controls() const { return model_controls_; }

  // The text to decode, for tokens whose normalized form differs from their content.
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
    size_t longest = 0;         // length of the longest literal, in bytes
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
  absl::flat_hash_map<int32_t, Kind> kinds_;  // one entry per added id
  absl::flat_hash_map<int32_t, std::string> normalized_forms_;
};

// Whether a token with this text is a control token even if it is not special.
bool IsMarkup(absl::string_view content);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_ADDED_TOKENS_H_
