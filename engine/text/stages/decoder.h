#ifndef ANNULUS_ENGINE_TEXT_STAGES_DECODER_H_
#define ANNULUS_ENGINE_TEXT_STAGES_DECODER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/base/json_node.h"
#include "engine/text/stages/pattern.h"

namespace annulus {

// The progress of decoding one text.
struct DecodeState {
  size_t stripped = 0;        // bytes removed at the start so far
  bool at_start = true;       // no byte has been kept yet
  bool before_tokens = true;  // no token has come yet
};

// Converts tokens back to bytes, one by one. Earlier tokens only affect whether a token is the
// first and what is stripped at the start of the text, so decoding can be streamed. Immutable and
// thread-safe.
class Decoder {
 public:
  // Parses the member `decoder` of a tokenizer.json: one step, or a Sequence of these in this
  // order: any number of Replace, Metaspace and Strip; at most one of ByteFallback and ByteLevel;
  // Fuse; Strip of an ASCII character at the start. Any other order is UNIMPLEMENTED.
  static absl::StatusOr<Decoder> Parse(const JsonNode& node);

  // Returns the bytes of one token. `is_first`: it is the first token of a text.
  absl::StatusOr<std::string> DecodeToken(absl::string_view token, bool is_first) const;

  // Whether DecodeToken depends on `is_first`.
  bool first_token_differs() const { return first_token_differs_; }

  // Strips a token's `bytes` as its place in the text requires and appends the rest to `text`.
  void Append(absl::string_view bytes, DecodeState* state, std::string* text) const;

 private:
  enum class Stage { kToken, kBytes, kFuse, kStrip };
  enum class Bytes { kPlain, kFallback, kByteLevel };

  // Rewrites a single token.
  struct Replacement {
    Pattern pattern;
    std::string content;
    bool only_later = false;  // for the first token, the match is removed instead
  };
  struct StripEnds {
    std::string character;
    size_t start = 0;  // at most this many
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
  size_t strip_count_ = 0;  // at most this many strip_ at the start of the text
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_STAGES_DECODER_H_
