#include "engine/gguf/gguf_numbers.h"

#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {

using nlohmann::json;

absl::StatusOr<json> GgufWholeNumber(const GgufFile& file, absl::string_view key) {
  const GgufValue* const value = file.Find(key);
  if (value == nullptr) return json();
  json number = value->Scalar();
  if (number.is_number_integer() && number >= 0) return number;
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": ", key, " is ", value->Shown(),
                                                 "; allowed: a whole number from 0 to ",
                                                 std::numeric_limits<int64_t>::max()));
}

absl::StatusOr<json> GgufNumber(const GgufFile& file, absl::string_view key) {
  const GgufValue* const value = file.Find(key);
  if (value == nullptr) return json();
  json number = value->Scalar();
  if (number.is_number() && std::isfinite(number.get<double>())) return number;
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": ", key, " is ", value->Shown(), "; allowed: a finite number"));
}

absl::StatusOr<std::vector<uint64_t>> GgufNumbersByLayer(const GgufFile& file,
                                                         absl::string_view key, uint64_t layers) {
  const GgufValue* const value = file.Find(key);
  if (value == nullptr) return std::vector<uint64_t>();
  if (value->kind != GgufValue::Kind::kArray) {
    ANNULUS_ASSIGN_OR_RETURN(const json number, GgufWholeNumber(file, key));
    return std::vector<uint64_t>(layers, number.get<uint64_t>());
  }
  std::vector<uint64_t> numbers;
  const bool readable =
      value->element == GgufValue::Kind::kUnsigned || value->element == GgufValue::Kind::kSigned;
  for (uint64_t i = 0; readable && value->count == layers && i < layers; ++i) {
    const json number = value->At(i);
    if (number >= 0) numbers.push_back(number.get<uint64_t>());
  }
  if (numbers.size() == layers) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat(file.path(), ": ", key, " is ", value->Shown(),
                   "; allowed: a whole number, or one for each of the ", layers, " layers"));
}

}  // namespace annulus
