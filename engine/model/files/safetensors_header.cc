#include "engine/model/files/safetensors_header.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/json_parser.h"
#include "engine/model/files/tensor_source.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr std::array<StoredType, 20> kStoredTypes = {{
    {"F32", 32, DType::kF32},       {"BF16", 16, DType::kBF16},     {"F16", 16, DType::kF16},
    {"F8_E4M3", 8, DType::kF8E4M3}, {"F8_E5M2", 8, DType::kF8E5M2}, {"I8", 8, DType::kI8},
    {"BOOL", 8, std::nullopt},      {"U8", 8, DType::kI8},          {"F8_E8M0", 8, std::nullopt},
    {"I16", 16, std::nullopt},      {"U16", 16, std::nullopt},      {"I32", 32, std::nullopt},
    {"U32", 32, std::nullopt},      {"I64", 64, std::nullopt},      {"U64", 64, std::nullopt},
    {"F64", 64, std::nullopt},      {"C64", 64, std::nullopt},      {"F4", 4, std::nullopt},
    {"F6_E2M3", 6, std::nullopt},   {"F6_E3M2", 6, std::nullopt},
}};

const StoredType* FindStoredType(absl::string_view name) {
  const auto* found = std::find_if(kStoredTypes.begin(), kStoredTypes.end(),
                                   [&](const StoredType& type) { return type.name == name; });
  return found == kStoredTypes.end() ? nullptr : found;
}

std::string KnownTypes() {
  return absl::StrJoin(kStoredTypes, ", ", [](std::string* out, const StoredType& type) {
    absl::StrAppend(out, type.name);
  });
}

constexpr absl::string_view kMetadata = "__metadata__";
constexpr size_t kMostMetadataKeys = 65536;

// Accepts exactly {name: {"dtype": string, "shape": [n..], "data_offsets": [b, e]}, ..} and
// "__metadata__": {string: string, ..} or null; builds no tree.
class HeaderHandler final : public JsonHandler {
 public:
  std::vector<StoredTensor> Take() { return std::move(tensors_); }

  bool null() override;
  bool boolean(bool) override { return Fail(kUnexpected); }
  bool number_integer(int64_t) override { return Fail(kUnexpected); }
  bool number_float(double, const std::string&) override { return Fail(kUnexpected); }
  bool number_unsigned(uint64_t value) override;
  bool string(std::string& value) override;
  bool start_object(size_t) override;
  bool end_object() override;
  bool start_array(size_t) override;
  bool end_array() override;
  bool key(std::string& name) override;

 protected:
  std::string Where() const override;

 private:
  enum class Place : uint8_t {
    kStart,     // before the outer object
    kTensors,   // in it, between members
    kNamed,     // after a tensor's name
    kMetadata,  // after "__metadata__" or inside its object
    kFields,    // inside a tensor's object
    kDType,     // after that key ..
    kShape,
    kOffsets,
  };
  static constexpr absl::string_view kUnexpected =
      "has a value that the format does not allow here";

  bool AddShape(uint64_t value);
  bool AddOffset(uint64_t value);
  StoredTensor& tensor() { return tensors_.back(); }

  Place place_ = Place::kStart;
  bool in_array_ = false;
  bool in_metadata_ = false;
  absl::flat_hash_set<std::string> metadata_keys_;
  int seen_fields_ = 0;  // bits: 1 dtype, 2 shape, 4 data_offsets
  int offsets_ = 0;      // of the current tensor, read so far
  std::vector<StoredTensor> tensors_;
};

std::string HeaderHandler::Where() const {
  if (place_ == Place::kStart || place_ == Place::kTensors) return "the header";
  if (place_ == Place::kMetadata) return std::string(kMetadata);
  return absl::StrCat("tensor \"", QuoteForMessage(tensors_.back().name), "\"");
}

bool HeaderHandler::start_object(size_t) {
  switch (place_) {
    case Place::kStart:
      place_ = Place::kTensors;
      return true;
    case Place::kNamed:
      place_ = Place::kFields;
      seen_fields_ = 0;
      offsets_ = 0;
      return true;
    case Place::kMetadata:
      if (in_metadata_) return Fail("has a value that is not a string");
      in_metadata_ = true;
      return true;
    default:
      return Fail(kUnexpected);
  }
}

// MLX writes `"__metadata__": null` where there is none.
bool HeaderHandler::null() {
  if (place_ != Place::kMetadata || in_metadata_) return Fail(kUnexpected);
  place_ = Place::kTensors;
  return true;
}

bool HeaderHandler::end_object() {
  if (place_ == Place::kFields && seen_fields_ != 7) {
    return Fail("lacks one of dtype, shape and data_offsets");
  }
  in_metadata_ = false;
  place_ = Place::kTensors;
  return true;
}

bool HeaderHandler::key(std::string& name) {
  if (place_ == Place::kTensors) {
    if (name == kMetadata) {
      place_ = Place::kMetadata;
      if (!metadata_keys_.insert(name).second) return Fail("is given twice");
      return true;
    }
    place_ = Place::kNamed;
    tensors_.emplace_back().name = std::move(name);
    return true;
  }
  if (place_ == Place::kMetadata) {
    // The member names of the metadata are kept apart from its own name by a prefix.
    if (metadata_keys_.size() > kMostMetadataKeys) {
      return Fail(absl::StrCat("has too many keys; allowed: ", kMostMetadataKeys));
    }
    if (metadata_keys_.insert("/" + name).second) return true;
    return Fail(absl::StrCat("has the key \"", QuoteForMessage(name), "\" twice"));
  }
  const int field = name == "dtype" ? 1 : name == "shape" ? 2 : name == "data_offsets" ? 4 : 0;
  if (field == 0) {
    return Fail(absl::StrCat("has the key \"", QuoteForMessage(name),
                             "\"; allowed: dtype, shape, data_offsets"));
  }
  if ((seen_fields_ & field) != 0) return Fail(absl::StrCat("has ", name, " twice"));
  seen_fields_ |= field;
  place_ = field == 1 ? Place::kDType : field == 2 ? Place::kShape : Place::kOffsets;
  return true;
}

bool HeaderHandler::string(std::string& value) {
  if (place_ == Place::kMetadata && in_metadata_) return true;
  if (place_ != Place::kDType) return Fail(kUnexpected);
  tensor().type = FindStoredType(value);
  if (tensor().type == nullptr) {
    return Fail(absl::StrCat("has the unknown dtype \"", QuoteForMessage(value),
                             "\"; known: ", KnownTypes()));
  }
  place_ = Place::kFields;
  return true;
}

bool HeaderHandler::start_array(size_t) {
  if ((place_ != Place::kShape && place_ != Place::kOffsets) || in_array_) {
    return Fail(kUnexpected);
  }
  in_array_ = true;
  return true;
}

bool HeaderHandler::end_array() {
  if (place_ == Place::kOffsets && offsets_ != 2) return Fail("needs exactly two data_offsets");
  in_array_ = false;
  place_ = Place::kFields;
  return true;
}

bool HeaderHandler::number_unsigned(uint64_t value) {
  if (!in_array_) return Fail(kUnexpected);
  return place_ == Place::kShape ? AddShape(value) : AddOffset(value);
}

bool HeaderHandler::AddShape(uint64_t value) {
  if (tensor().shape.size() == kMostDimensions) {
    return Fail(absl::StrCat("has too many dimensions; allowed: ", kMostDimensions));
  }
  if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    return Fail(absl::StrCat("has the dimension ", value, "; allowed: below 2^63"));
  }
  tensor().shape.push_back(static_cast<int64_t>(value));
  return true;
}

bool HeaderHandler::AddOffset(uint64_t value) {
  if (offsets_ == 2) return Fail("needs exactly two data_offsets");
  (offsets_ == 0 ? tensor().begin : tensor().end) = value;
  ++offsets_;
  return true;
}

// Bytes that shape and type ask for.
absl::StatusOr<uint64_t> ExpectedBytes(const StoredTensor& tensor) {
  int64_t bits = tensor.type->bits;
  for (const int64_t dimension : tensor.shape) {
    if (__builtin_mul_overflow(bits, dimension, &bits)) {
      return absl::InvalidArgumentError(absl::StrCat("has the shape ", ShapeToString(tensor.shape),
                                                     ", which is beyond 2^63 bits"));
    }
  }
  if (bits % 8 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("has ", bits, " bits (", tensor.type->name, " ",
                                                   ShapeToString(tensor.shape),
                                                   "), which is no whole number of bytes"));
  }
  return static_cast<uint64_t>(bits) / 8;
}

absl::Status CheckRange(const StoredTensor& tensor, uint64_t data_bytes) {
  const std::string range = absl::StrCat("has data_offsets [", tensor.begin, ", ", tensor.end, "]");
  if (tensor.begin > tensor.end) {
    return absl::InvalidArgumentError(absl::StrCat(range, ", which end before they begin"));
  }
  if (tensor.end > data_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(range, ", but the file has ", data_bytes, " bytes of data"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const uint64_t expected, ExpectedBytes(tensor));
  if (tensor.end - tensor.begin == expected) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(range, ", which is ", tensor.end - tensor.begin,
                                                 " bytes, but ", tensor.type->name, " ",
                                                 ShapeToString(tensor.shape), " has ", expected));
}

absl::Status NameTensor(absl::string_view file_name, const StoredTensor& tensor,
                        absl::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(file_name, ": tensor \"", QuoteForMessage(tensor.name), "\" ", what));
}

// `tensors` are in order of name, which this leaves as it is.
absl::Status CheckCoverage(const std::vector<StoredTensor>& tensors, uint64_t data_bytes,
                           absl::string_view file_name) {
  std::vector<size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return std::pair(tensors[a].begin, tensors[a].end) <
           std::pair(tensors[b].begin, tensors[b].end);
  });
  uint64_t covered = 0;
  for (const size_t index : order) {
    const StoredTensor& tensor = tensors[index];
    if (tensor.begin != covered) {
      return NameTensor(
          file_name, tensor,
          absl::StrCat("begins at byte ", tensor.begin,
                       " of the data, but the one "
                       "before it ends at ",
                       covered, tensor.begin < covered ? ": they overlap" : ": there is a hole"));
    }
    covered = tensor.end;
  }
  if (covered == data_bytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file_name, ": the tensors end at byte ", covered,
                                                 " of the data, the file at ", data_bytes));
}

}  // namespace

absl::StatusOr<std::vector<StoredTensor>> ParseSafetensorsHeader(absl::string_view json,
                                                                 uint64_t data_bytes,
                                                                 absl::string_view file_name) {
  if (json.empty() || json.front() != '{') {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": not a safetensors file: the header does not begin with '{'"));
  }
  HeaderHandler handler;
  ANNULUS_RETURN_IF_ERROR(ParseJson(json, file_name, handler));
  std::vector<StoredTensor> tensors = handler.Take();
  for (const StoredTensor& tensor : tensors) {
    const absl::Status range = CheckRange(tensor, data_bytes);
    if (!range.ok()) return NameTensor(file_name, tensor, range.message());
  }
  std::sort(tensors.begin(), tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  for (size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].name == tensors[i - 1].name) {
      return NameTensor(file_name, tensors[i], "is given twice");
    }
  }
  ANNULUS_RETURN_IF_ERROR(CheckCoverage(tensors, data_bytes, file_name));
  return tensors;
}

}  // namespace annulus
