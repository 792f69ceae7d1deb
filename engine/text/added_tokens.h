#ifndef ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_
#define ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/json_node.h"
#include "engine/text/literal_set.h"
#include "engine/text/normalizer.h"
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
class AddedTokens {
 public:
  // A stretch of text with `id` -1, or an added token.
  using Sink = absl::FunctionRef<absl::Status(absl::string_view text, int32_t id)>;

  // Reads the member `added_tokens` of a tokenizer.json and adds them to `vocabulary`, which holds
  // the model's own. A token of the model may be listed again under its own id; any other clash of
  // content or id is INVALID_ARGUMENT. `normalizer` may be null.
  static absl::StatusOr<AddedTokens> Parse(const JsonNode& node, const Normalizer* normalizer,
                                           Vocabulary* vocabulary);

  // Cuts `text` into stretches and tokens, in order, and stops at an error. No stretch is empty.
  absl::Status SplitRaw(absl::string_view text, Sink sink) const;
  absl::Status SplitNormalized(absl::string_view text, Sink sink) const;

  bool IsSpecial(int32_t id) const;

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

    absl::Status Split(absl::string_view text, Sink sink) const;
  };

  absl::Status ParseToken(const JsonNode& node, const Normalizer* normalizer,
                          Vocabulary* vocabulary);

  Finder raw_;
  Finder normalized_;
  absl::flat_hash_map<int32_t, bool> special_;  // every added id
  absl::flat_hash_map<int32_t, std::string> normalized_forms_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ADDED_TOKENS_H_
