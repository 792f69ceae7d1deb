#ifndef ANNULUS_ENGINE_GGUF_GGUF_HEADER_H_
#define ANNULUS_ENGINE_GGUF_GGUF_HEADER_H_

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_types.h"

namespace annulus {

inline constexpr absl::string_view kGgufMagic = "GGUF";
// A header contains the vocabulary, so tens of megabytes are common; larger ones are refused.
inline constexpr uint64_t kMostGgufHeaderBytes = uint64_t{256} << 20;
inline constexpr uint64_t kMostGgufTensors = 1 << 20;
inline constexpr uint64_t kMostGgufKeys = 1 << 16;

// One metadata value. Strings point into the header's bytes.
class GgufValue {
 public:
  enum class Kind { kUnsigned, kSigned, kFloat, kBool, kString, kArray };

  Kind kind = Kind::kUnsigned;
  uint64_t bits = 0;       // kUnsigned, kBool
  int64_t integer = 0;     // kSigned
  double number = 0;       // kFloat
  absl::string_view text;  // kString

  // kArray: strings, or numbers of `width` bytes each, unaligned and little-endian.
  Kind element = Kind::kUnsigned;
  uint64_t count = 0;
  int width = 0;
  const std::byte* numbers = nullptr;
  std::vector<absl::string_view> texts;

  // Returns the array's number at `index` < count. Not for arrays of strings.
  nlohmann::json At(uint64_t index) const;
  // Returns a number, a bool or a string as JSON; null for an array.
  nlohmann::json Scalar() const;
  // The same as text for messages, of at most 200 bytes.
  std::string Shown() const;
};

// A tensor of the file. `shape` is row-major, like everywhere else here. That is the reverse of the
// file, where the first dimension is the contiguous one.
struct GgufTensor {
  absl::string_view name;
  const GgufType* type = nullptr;  // static storage
  std::vector<int64_t> shape;      // 1 to 4 dimensions, each >= 1; last: a multiple of block
  uint64_t offset = 0;             // from the start of the file
  uint64_t bytes = 0;

  int64_t cols() const { return shape.back(); }
  size_t row_bytes() const { return static_cast<size_t>(cols() / type->block) * type->bytes; }
};

struct GgufHeader {
  absl::flat_hash_map<absl::string_view, GgufValue> values;
  std::vector<GgufTensor> tensors;  // ascending by name

  const GgufValue* Find(absl::string_view key) const;
  const GgufTensor* FindTensor(absl::string_view name) const;
};

// Parses the header of a GGUF file of version 2 or 3. The file has `file_bytes` bytes and `bytes`
// are its first ones; the result points into them. Checks everything before returning: counts
// against the available bytes, strings and arrays against their end, that keys and names are
// visible ASCII and unique, shape x type without overflow, offsets aligned to general.alignment and
// inside the file, and that no two tensors overlap. Memory: at most about five times bytes.size().
// - OUT_OF_RANGE: more than `bytes` is needed, and the file has more.
// - INVALID_ARGUMENT: names `file_name`, key or tensor, what was found and what is allowed.
// - UNIMPLEMENTED: another version, or big-endian.
// Source: docs/gguf.md of the ggml project.
absl::StatusOr<GgufHeader> ParseGgufHeader(std::span<const std::byte> bytes, uint64_t file_bytes,
                                           absl::string_view file_name);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_HEADER_H_
