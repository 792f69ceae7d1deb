#ifndef ANNULUS_ENGINE_TEXT_DECODER_H_
#define ANNULUS_ENGINE_TEXT_DECODER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/pattern.h"

namespace annulus {

// Where decoding one text stands.
struct DecodeState {
  size_t stripped = 0;        // bytes taken off the start so far
  bool at_start = true;       // nothing was kept yet
  bool before_tokens = true;  // no token came yet
};

// Turns tokens back into bytes, one after the other. All that the tokens before can change is
// whether this is the first one and what is stripped from the start of the text, so decoding
// streams. Immutable and thread-safe.
class Decoder {
 public:
  // Reads the member `decoder` of a tokenizer.json: a Sequence of, in this order, any number of
  // Replace, Metaspace and Strip, then at most one of ByteFallback and ByteLevel, Fuse, and Strip
  // of an ASCII character at the start; or one of these alone. What stands in another order is
  // UNIMPLEMENTED.
  static absl::StatusOr<Decoder> Parse(const JsonNode& node);

  // The bytes of one token; `is_first` of a text.
  absl::StatusOr<std::string> DecodeToken(absl::string_view token, bool is_first) const;

  // Whether DecodeToken looks at `is_first`.
  bool first_token_differs() const { return first_token_differs_; }

  // Appends to `text` what is left of a token's `bytes` at its place in the text.
  void Append(absl::string_view bytes, DecodeState* state, std::string* text) const;

 private:
  enum class Stage { kToken, kBytes, kFuse, kStrip };
  enum class Bytes { kPlain, kFallback, kByteLevel };

  // Rewrites one token by itself.
  struct Replacement {
    Pattern pattern;
    std::string content;
    bool only_later = false;  // the first token loses what is matched
  };
  struct StripEnds {
    std::string character;
    size_t start = 0;  // at most so many
    size_t stop = 0;
  };
  using TokenStep = std::variant<Replacement, StripEnds>;

  absl::Status ParseStage(const JsonNode& node);
  absl::Status Enter(Stage stage, const JsonNode& node);
  absl::Status ParseReplace(const JsonNode& node);
  absl::Status ParseMetaspaceStep(const JsonNode& node);
  absl::Status ParseStrip(const JsonNode& node);

  std::optional<Stage> last_stage_;
  std::vector<TokenStep> steps_;
  bool first_token_differs_ = false;
  Bytes bytes_ = Bytes::kPlain;
  char strip_ = ' ';
  size_t strip_count_ = 0;  // at most so many strip_ at the start of the text
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_DECODER_H_
