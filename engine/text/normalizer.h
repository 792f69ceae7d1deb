#ifndef ANNULUS_ENGINE_TEXT_NORMALIZER_H_
#define ANNULUS_ENGINE_TEXT_NORMALIZER_H_

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/text/json_node.h"

namespace annulus {

// The first stage of encoding: rewrites a stretch of text between added tokens. Immutable and
// thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;

  // `text` is valid UTF-8 before and after. INVALID_ARGUMENT when it would grow beyond `max_bytes`.
  virtual absl::Status Apply(size_t max_bytes, std::string* text) const = 0;
};

// The most that a normalizer may make of `bytes` bytes of text.
constexpr size_t MaxNormalizedBytes(size_t bytes) {
  return std::min(64 * bytes + 4096, size_t{3} << 30);
}

// Reads the member `normalizer` of a tokenizer.json: NFC, Prepend, Replace or a Sequence of them.
// Null gives a null pointer: the text stays as it is.
absl::StatusOr<std::unique_ptr<Normalizer>> ParseNormalizer(const JsonNode& node);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_NORMALIZER_H_
