#ifndef ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_
#define ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// An element type of a GGUF file. Values are stored in blocks: `block` values of a row take `bytes`
// bytes. Plain types have blocks of one value. Little-endian.
struct GgufType {
  uint32_t id = 0;
  absl::string_view name;  // as in GGUF's documentation: "Q4_1"
  int64_t block = 1;
  size_t bytes = 0;
  std::optional<DType> plain;  // for F32, F16, BF16: the dtype with the same bytes
  // Widens `blocks` blocks to float32. Uses the order of operations of the format's description, so
  // the values equal those of other readers bit for bit. Null: a known but unsupported type.
  void (*widen)(const std::byte* source, int64_t blocks, float* values) = nullptr;

  bool served() const { return widen != nullptr; }
};

// The type with this id, in static storage; null if unknown.
const GgufType* FindGgufType(uint32_t id);

// The supported types, for messages: "F32, F16, Q4_0, ..".
std::string ServedGgufTypes();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TYPES_H_
