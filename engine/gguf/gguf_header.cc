#include "engine/gguf/gguf_header.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Kind = GgufValue::Kind;

constexpr uint64_t kMostNameBytes = 1 << 16;
constexpr uint64_t kDefaultAlignment = 32;
constexpr uint64_t kMostAlignment = 1 << 20;
constexpr uint32_t kMostDimensions = 4;
constexpr uint64_t kMostFileBytes = std::numeric_limits<int64_t>::max();

// The value types of the format, by their numbers.
struct ValueType {
  Kind kind;
  int width;  // 0: a string or an array
};
constexpr ValueType kValueTypes[] = {
    {Kind::kUnsigned, 1}, {Kind::kSigned, 1}, {Kind::kUnsigned, 2}, {Kind::kSigned, 2},
    {Kind::kUnsigned, 4}, {Kind::kSigned, 4}, {Kind::kFloat, 4},    {Kind::kBool, 1},
    {Kind::kString, 0},   {Kind::kArray, 0},  {Kind::kUnsigned, 8}, {Kind::kSigned, 8},
    {Kind::kFloat, 8},
};

template <class T>
T Load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(value));
  return value;
}

uint64_t LoadUnsigned(const std::byte* at, int width) {
  uint64_t value = 0;
  std::memcpy(&value, at, static_cast<size_t>(width));
  return value;
}

int64_t LoadSigned(const std::byte* at, int width) {
  const int unused = 64 - 8 * width;
  return static_cast<int64_t>(LoadUnsigned(at, width) << unused) >> unused;
}

double LoadFloat(const std::byte* at, int width) {
  return width == 4 ? static_cast<double>(Load<float>(at)) : Load<double>(at);
}

bool IsPlainName(absl::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isgraph(static_cast<unsigned char>(c));
  });
}

std::string Shown(absl::string_view text) {
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, 200)), "\"");
}

// Takes the header apart, byte by byte from the front.
class HeaderParser {
 public:
  HeaderParser(std::span<const std::byte> bytes, uint64_t file_bytes, absl::string_view file_name)
      : bytes_(bytes), file_bytes_(std::min(file_bytes, kMostFileBytes)), file_name_(file_name) {}

  absl::StatusOr<GgufHeader> Parse();

 private:
  absl::Status Invalid(absl::string_view what) const {
    return absl::InvalidArgumentError(absl::StrCat(file_name_, ": ", what));
  }
  uint64_t left() const { return bytes_.size() - at_; }
  // Bytes of the file after the consumed part, read or not.
  uint64_t left_in_file() const { return file_bytes_ - at_; }

  absl::StatusOr<const std::byte*> Take(uint64_t count, absl::string_view what);
  absl::StatusOr<uint64_t> TakeUnsigned(int width, absl::string_view what);
  absl::StatusOr<absl::string_view> TakeString(uint64_t most, absl::string_view what);
  absl::Status TakePreamble();
  absl::Status TakeValue(GgufHeader& header);
  absl::Status TakeScalar(const ValueType& type, absl::string_view key, GgufValue& value);
  absl::Status TakeArray(absl::string_view key, GgufValue& value);
  absl::Status TakeTensor(GgufHeader& header);
  absl::StatusOr<uint64_t> Alignment(const GgufHeader& header) const;
  absl::Status PlaceTensors(GgufHeader& header) const;
  absl::Status CheckApart(const GgufHeader& header) const;

  const std::span<const std::byte> bytes_;
  const uint64_t file_bytes_;
  const absl::string_view file_name_;
  uint64_t at_ = 0;
  uint64_t tensors_ = 0;
  uint64_t keys_ = 0;
};

absl::StatusOr<const std::byte*> HeaderParser::Take(uint64_t count, absl::string_view what) {
  if (count > left_in_file()) {
    return Invalid(absl::StrCat("the file ends at byte ", file_bytes_, " inside ", what,
                                ", which needs ", count, " bytes from byte ", at_,
                                ": it is truncated or damaged"));
  }
  if (count > left()) return absl::OutOfRangeError("the header goes on");
  const std::byte* const data = bytes_.data() + at_;
  at_ += count;
  return data;
}

absl::StatusOr<uint64_t> HeaderParser::TakeUnsigned(int width, absl::string_view what) {
  ANNULUS_ASSIGN_OR_RETURN(const std::byte* const data, Take(static_cast<uint64_t>(width), what));
  return LoadUnsigned(data, width);
}

absl::StatusOr<absl::string_view> HeaderParser::TakeString(uint64_t most, absl::string_view what) {
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t size, TakeUnsigned(8, what));
  if (size > most) {
    return Invalid(absl::StrCat(what, " has ", size, " bytes; allowed: at most ", most));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::byte* const data, Take(size, what));
  return absl::string_view(reinterpret_cast<const char*>(data), size);
}

absl::Status HeaderParser::TakePreamble() {
  ANNULUS_ASSIGN_OR_RETURN(const std::byte* const magic, Take(4, "the magic number"));
  if (std::memcmp(magic, kGgufMagic.data(), kGgufMagic.size()) != 0) {
    return Invalid("not a GGUF file: it does not begin with \"GGUF\"");
  }
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t version, TakeUnsigned(4, "the version"));
  if (version != 2 && version != 3) {
    const bool swapped = version != 0 && (version & 0xffff) == 0;
    return absl::UnimplementedError(
        absl::StrCat(file_name_, ": ",
                     swapped ? "a big-endian GGUF file" : absl::StrCat("GGUF version ", version),
                     "; supported: versions 2 and 3, little-endian. Convert the model again"));
  }
  ANNULUS_ASSIGN_OR_RETURN(tensors_, TakeUnsigned(8, "the number of tensors"));
  ANNULUS_ASSIGN_OR_RETURN(keys_, TakeUnsigned(8, "the number of metadata keys"));
  if (tensors_ > kMostGgufTensors) {
    return Invalid(
        absl::StrCat("it claims ", tensors_, " tensors; allowed: at most ", kMostGgufTensors));
  }
  if (keys_ > kMostGgufKeys) {
    return Invalid(
        absl::StrCat("it claims ", keys_, " metadata keys; allowed: at most ", kMostGgufKeys));
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::TakeScalar(const ValueType& type, absl::string_view key,
                                      GgufValue& value) {
  ANNULUS_ASSIGN_OR_RETURN(const std::byte* const data,
                           Take(static_cast<uint64_t>(type.width), key));
  value.bits = LoadUnsigned(data, type.width);
  if (type.kind == Kind::kBool && value.bits > 1) {
    return Invalid(absl::StrCat(key, " is a bool of ", value.bits, "; allowed: 0 or 1"));
  }
  value.integer = LoadSigned(data, type.width);
  if (type.kind == Kind::kFloat) value.number = LoadFloat(data, type.width);
  return absl::OkStatus();
}

absl::Status HeaderParser::TakeArray(absl::string_view key, GgufValue& value) {
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t element, TakeUnsigned(4, key));
  ANNULUS_ASSIGN_OR_RETURN(value.count, TakeUnsigned(8, key));
  if (element >= std::size(kValueTypes) || kValueTypes[element].kind == Kind::kArray) {
    return Invalid(absl::StrCat(key, " is an array of value type ", element,
                                "; allowed: 0 to 12 except 9, an array of arrays"));
  }
  value.element = kValueTypes[element].kind;
  value.width = kValueTypes[element].width;
  // A string takes at least the 8 bytes of its length.
  const auto least = static_cast<uint64_t>(value.width == 0 ? 8 : value.width);
  if (value.count > left_in_file() / least) {
    return Invalid(absl::StrCat(key, " is an array of ", value.count,
                                " elements, but the file has ", left_in_file(),
                                " bytes left: it is truncated or damaged"));
  }
  if (value.element != Kind::kString) {
    ANNULUS_ASSIGN_OR_RETURN(value.numbers, Take(value.count * least, key));
    return absl::OkStatus();
  }
  if (value.count > left() / least) return absl::OutOfRangeError("the header goes on");
  value.texts.reserve(value.count);
  for (uint64_t i = 0; i < value.count; ++i) {
    ANNULUS_ASSIGN_OR_RETURN(const absl::string_view text, TakeString(kMostGgufHeaderBytes, key));
    value.texts.push_back(text);
  }
  return absl::OkStatus();
}

absl::Status HeaderParser::TakeValue(GgufHeader& header) {
  ANNULUS_ASSIGN_OR_RETURN(const absl::string_view key,
                           TakeString(kMostNameBytes, "a metadata key"));
  if (!IsPlainName(key)) {
    return Invalid(
        absl::StrCat("the metadata key ", Shown(key),
                     " is not allowed: it must be one or more visible ASCII characters"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t number, TakeUnsigned(4, key));
  if (number >= std::size(kValueTypes)) {
    return Invalid(absl::StrCat(key, " has value type ", number, "; allowed: 0 to 12"));
  }
  GgufValue value;
  const ValueType& type = kValueTypes[number];
  value.kind = type.kind;
  if (type.kind == Kind::kString) {
    ANNULUS_ASSIGN_OR_RETURN(value.text, TakeString(kMostGgufHeaderBytes, key));
  } else if (type.kind == Kind::kArray) {
    ANNULUS_RETURN_IF_ERROR(TakeArray(key, value));
  } else {
    ANNULUS_RETURN_IF_ERROR(TakeScalar(type, key, value));
  }
  if (header.values.emplace(key, std::move(value)).second) return absl::OkStatus();
  return Invalid(absl::StrCat("the metadata key ", key, " appears twice"));
}

absl::Status HeaderParser::TakeTensor(GgufHeader& header) {
  GgufTensor tensor;
  ANNULUS_ASSIGN_OR_RETURN(tensor.name, TakeString(kMostNameBytes, "a tensor's name"));
  if (!IsPlainName(tensor.name)) {
    return Invalid(
        absl::StrCat("the tensor name ", Shown(tensor.name),
                     " is not allowed: it must be one or more visible ASCII characters"));
  }
  const std::string what = absl::StrCat("tensor ", tensor.name);
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t dimensions, TakeUnsigned(4, what));
  if (dimensions < 1 || dimensions > kMostDimensions) {
    return Invalid(absl::StrCat(what, " has ", dimensions, " dimensions; allowed: 1 to 4"));
  }
  constexpr uint64_t kMostElements = std::numeric_limits<int64_t>::max() / 8;
  uint64_t elements = 1;
  for (uint64_t i = 0; i < dimensions; ++i) {
    ANNULUS_ASSIGN_OR_RETURN(const uint64_t size, TakeUnsigned(8, what));
    if (size == 0 || size > kMostElements / elements) {
      return Invalid(absl::StrCat(what, " has a dimension of ", size,
                                  "; allowed: at least 1, and all together below 2^60"));
    }
    elements *= size;
    tensor.shape.push_back(static_cast<int64_t>(size));
  }
  std::reverse(tensor.shape.begin(), tensor.shape.end());
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t type, TakeUnsigned(4, what));
  tensor.type = FindGgufType(static_cast<uint32_t>(type));
  if (tensor.type == nullptr) {
    return absl::UnimplementedError(absl::StrCat(file_name_, ": ", what, " has the unknown type ",
                                                 type, "; supported: ", ServedGgufTypes()));
  }
  if (tensor.cols() % tensor.type->block != 0) {
    return Invalid(absl::StrCat(what, " has rows of ", tensor.cols(), " values; ",
                                tensor.type->name, " needs a multiple of ", tensor.type->block));
  }
  ANNULUS_ASSIGN_OR_RETURN(tensor.offset, TakeUnsigned(8, what));
  const uint64_t blocks = elements / static_cast<uint64_t>(tensor.type->block);
  if (blocks > file_bytes_ / tensor.type->bytes) {
    return Invalid(absl::StrCat(what, " needs ", blocks, " blocks of ", tensor.type->bytes,
                                " bytes, but the file has ", file_bytes_,
                                " bytes: it is truncated or damaged"));
  }
  tensor.bytes = blocks * tensor.type->bytes;
  header.tensors.push_back(std::move(tensor));
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> HeaderParser::Alignment(const GgufHeader& header) const {
  const GgufValue* const value = header.Find("general.alignment");
  if (value == nullptr) return kDefaultAlignment;
  const bool good = value->kind == Kind::kUnsigned && std::has_single_bit(value->bits) &&
                    value->bits >= 8 && value->bits <= kMostAlignment;
  if (good) return value->bits;
  return Invalid(absl::StrCat("general.alignment is ", value->Shown(),
                              "; allowed: a power of two from 8 to ", kMostAlignment));
}

// Offsets in the header count from the first aligned byte after it.
absl::Status HeaderParser::PlaceTensors(GgufHeader& header) const {
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t alignment, Alignment(header));
  const uint64_t data = (at_ + alignment - 1) / alignment * alignment;
  for (GgufTensor& tensor : header.tensors) {
    if (tensor.offset % alignment != 0) {
      return Invalid(absl::StrCat("tensor ", tensor.name, " is at offset ", tensor.offset,
                                  "; allowed: multiples of the alignment, ", alignment));
    }
    if (data > file_bytes_ || tensor.bytes > file_bytes_ - data ||
        tensor.offset > file_bytes_ - data - tensor.bytes) {
      return Invalid(absl::StrCat("tensor ", tensor.name, " has ", tensor.bytes,
                                  " bytes at offset ", tensor.offset, " of the data at byte ", data,
                                  ", but the file ends at byte ", file_bytes_,
                                  ": it is truncated or damaged"));
    }
    tensor.offset += data;
  }
  return CheckApart(header);
}

absl::Status HeaderParser::CheckApart(const GgufHeader& header) const {
  std::vector<const GgufTensor*> by_offset;
  for (const GgufTensor& tensor : header.tensors) by_offset.push_back(&tensor);
  std::sort(by_offset.begin(), by_offset.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const GgufTensor& before = *by_offset[i - 1];
    if (before.offset + before.bytes <= by_offset[i]->offset) continue;
    return Invalid(absl::StrCat("tensors ", before.name, " and ", by_offset[i]->name,
                                " overlap at byte ", by_offset[i]->offset));
  }
  return absl::OkStatus();
}

absl::StatusOr<GgufHeader> HeaderParser::Parse() {
  GgufHeader header;
  ANNULUS_RETURN_IF_ERROR(TakePreamble());
  for (uint64_t i = 0; i < keys_; ++i) ANNULUS_RETURN_IF_ERROR(TakeValue(header));
  for (uint64_t i = 0; i < tensors_; ++i) ANNULUS_RETURN_IF_ERROR(TakeTensor(header));
  std::sort(header.tensors.begin(), header.tensors.end(),
            [](const GgufTensor& a, const GgufTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < header.tensors.size(); ++i) {
    if (header.tensors[i - 1].name != header.tensors[i].name) continue;
    return Invalid(absl::StrCat("tensor ", header.tensors[i].name, " appears twice"));
  }
  ANNULUS_RETURN_IF_ERROR(PlaceTensors(header));
  return header;
}

}  // namespace

nlohmann::json GgufValue::At(uint64_t index) const {
  ANNULUS_CHECK(kind == Kind::kArray && index < count && element != Kind::kString);
  const std::byte* const at = numbers + index * static_cast<uint64_t>(width);
  if (element == Kind::kFloat) return LoadFloat(at, width);
  if (element == Kind::kSigned) return LoadSigned(at, width);
  if (element == Kind::kBool) return LoadUnsigned(at, width) != 0;
  return LoadUnsigned(at, width);
}

nlohmann::json GgufValue::Scalar() const {
  switch (kind) {
    case Kind::kUnsigned:
      return bits;
    case Kind::kSigned:
      // The reader of config.json takes whole numbers that are not negative as unsigned.
      return integer < 0 ? nlohmann::json(integer) : nlohmann::json(static_cast<uint64_t>(integer));
    case Kind::kFloat:
      return number;
    case Kind::kBool:
      return bits != 0;
    case Kind::kString:
      return std::string(text);
    case Kind::kArray:
      break;
  }
  return nullptr;
}

std::string GgufValue::Shown() const {
  if (kind == Kind::kArray) return absl::StrCat("an array of ", count);
  if (kind == Kind::kFloat && !std::isfinite(number)) return absl::StrCat(number);
  if (kind == Kind::kString) return annulus::Shown(text);
  return Scalar().dump();
}

const GgufValue* GgufHeader::Find(absl::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

const GgufTensor* GgufHeader::FindTensor(absl::string_view name) const {
  const auto found = std::lower_bound(
      tensors.begin(), tensors.end(), name,
      [](const GgufTensor& tensor, absl::string_view wanted) { return tensor.name < wanted; });
  return found != tensors.end() && found->name == name ? &*found : nullptr;
}

absl::StatusOr<GgufHeader> ParseGgufHeader(std::span<const std::byte> bytes, uint64_t file_bytes,
                                           absl::string_view file_name) {
  return HeaderParser(bytes, file_bytes, file_name).Parse();
}

}  // namespace annulus
