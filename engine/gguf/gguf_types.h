#ifndef ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_
#define ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// An element type of a GGUF file. Values lie in blocks: `block` values of a row take `bytes` bytes;
// plain types have blocks of one. Little-endian.
struct GgufType {
  uint32_t id = 0;
  absl::string_view name;  // as GGUF's documents spell it: "Q4_1"
  int64_t block = 1;
  size_t bytes = 0;
  std::optional<DType> plain;  // F32, F16 and BF16: the dtype with the same bytes
  // Widens `blocks` blocks to float32, in the order of operations of the format's description, so
  // that the values are those of other readers bit for bit. Null: the type is known but not served.
  void (*widen)(const std::byte* source, int64_t blocks, float* values) = nullptr;

  bool served() const { return widen != nullptr; }
};

// The type with this id, in static storage, or null: no type that this reader knows.
const GgufType* FindGgufType(uint32_t id);

// "F32, F16, Q4_0, ..": the served types, for messages.
std::string ServedGgufTypes();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_
