#ifndef ANNULUS_ENGINE_TEXT_DECODER_H_
#define ANNULUS_ENGINE_TEXT_DECODER_H_

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/text/json_node.h"
#include "engine/text/pattern.h"

namespace annulus {

// Where decoding one text stands.
struct DecodeState {
  size_t stripped = 0;   // bytes taken off the start so far
  bool at_start = true;  // nothing was kept yet
};

// Turns tokens back into bytes, one after the other. All that the tokens before can change is what
// is stripped from the start of the text, so decoding streams. Immutable and thread-safe.
class Decoder {
 public:
  // Reads the member `decoder` of a tokenizer.json: a Sequence of, in this order, any number of
  // Replace, then at most one of ByteFallback and ByteLevel, Fuse, and Strip of an ASCII character
  // at the start; or one of these alone. What stands in another order is UNIMPLEMENTED.
  static absl::StatusOr<Decoder> Parse(const JsonNode& node);

  // The bytes of one token, without regard to its place.
  absl::StatusOr<std::string> DecodeToken(absl::string_view token) const;

  // Appends to `text` what is left of a token's `bytes` at its place in the text.
  void Append(absl::string_view bytes, DecodeState* state, std::string* text) const;

 private:
  enum class Stage { kReplace, kBytes, kFuse, kStrip };
  enum class Bytes { kPlain, kFallback, kByteLevel };

  struct Replacement {
    Pattern pattern;
    std::string content;
  };

  absl::Status ParseStage(const JsonNode& node);
  absl::Status Enter(Stage stage, const JsonNode& node);
  absl::Status ParseReplace(const JsonNode& node);
  absl::Status ParseStrip(const JsonNode& node);

  std::optional<Stage> last_stage_;
  std::vector<Replacement> replacements_;
  Bytes bytes_ = Bytes::kPlain;
  char strip_ = ' ';
  size_t strip_count_ = 0;  // at most so many strip_ at the start of the text
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_DECODER_H_
