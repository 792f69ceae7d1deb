#include "kernels/base/activations.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"

namespace annulus {

absl::string_view ActivationsName(Activations activations) {
  switch (activations) {
    case Activations::kFloat:
      return "float";
    case Activations::kInt8:
      return "int8";
    case Activations::kFp8:
      return "fp8_e4m3";
  }
  ANNULUS_CHECK(false) << "activations " << static_cast<int>(activations);
  return "";
}

absl::StatusOr<Activations> ParseActivations(absl::string_view name) {
  std::string known;
  for (const Activations activations : kAllActivations) {
    if (ActivationsName(activations) == name) return activations;
    absl::StrAppend(&known, known.empty() ? "" : ", ", ActivationsName(activations));
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown activations '", name, "'; known are ", known));
}

std::span<const DType> WeightsFor(Activations activations) {
  static constexpr DType kIntegers[] = {DType::kI8,   DType::kI4G32, DType::kI4G64,
                                        DType::kQ8_0, DType::kQ4_0,  DType::kQ4_1};
  static constexpr DType kFloat8[] = {DType::kF8E4M3};
  switch (activations) {
    case Activations::kInt8:
      return kIntegers;
    case Activations::kFp8:
      return kFloat8;
    default:
      return {};
  }
}

Activations ActivationsOf(Activations asked, DType weights) {
  const std::span<const DType> needed = WeightsFor(asked);
  const bool taken = std::find(needed.begin(), needed.end(), weights) != needed.end();
  return needed.empty() || taken ? asked : Activations::kFloat;
}

float RoundToFloat8(std::span<const float> row, std::span<Float8E4M3> codes) {
  std::fill(codes.begin(), codes.end(), Float8E4M3{0});
  float largest = 0;
  for (const float x : row) {
    if (!std::isfinite(x)) return std::numeric_limits<float>::quiet_NaN();
    largest = std::max(largest, std::abs(x));
  }
  if (largest < 0x1p-100f) return 0;
  const float factor = 448 / largest;
  for (size_t i = 0; i < row.size(); ++i) codes[i] = ToFloat8E4M3(row[i] * factor);
  return largest / 448;
}

}  // namespace annulus
