#ifndef ANNULUS_KERNELS_BASE_ACTIVATIONS_H_
#define ANNULUS_KERNELS_BASE_ACTIVATIONS_H_

#include <cstdint>
#include <optional>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// How a linear layer takes its inputs. Where they become codes, each row has one scale, which is
// found anew for each call (dynamic, per token); a row whose largest magnitude is below 2^-100
// counts as zeros, one with infinities or NaN gives NaN.
enum class Activations : uint8_t {
  kFloat,  // as they are, or rounded to bf16: see LinearParams
  // int8: scale = largest / 127, code = x / scale, rounded to nearest even. A sum over codes is
  // exact, so it has no order. Weights must be kI8, and at most kMostInt8Inputs wide.
  kInt8,
  // fp8_e4m3: scale = largest / 448, and the code is the number of the format that is nearest to
  // x / scale, ties to even. Products of codes are exact, their sums are float32. Weights must be
  // kF8E4M3.
  kFp8,
};
inline constexpr int64_t kMostInt8Inputs = int64_t{1} << 17;

inline constexpr Activations kAllActivations[] = {Activations::kFloat, Activations::kInt8,
                                                  Activations::kFp8};

// "float", "int8", "fp8_e4m3": the names of flags, YAML keys and reports.
absl::string_view ActivationsName(Activations activations);

// Inverse of ActivationsName; an unknown name is INVALID_ARGUMENT and lists the known ones.
absl::StatusOr<Activations> ParseActivations(absl::string_view name);

// The dtype that weights must have; none: any.
std::optional<DType> WeightsFor(Activations activations);

// What a layer whose weights have this dtype takes where `asked` is asked for: that if it can, else
// kFloat.
Activations ActivationsOf(Activations asked, DType weights);

// The codes of kFp8 for one row, and its scale: 0 for a row that counts as zeros, NaN for one that
// gives NaN; all codes are then 0. As many codes as inputs. A code is that of x * (448 / largest).
float RoundToFloat8(std::span<const float> row, std::span<Float8E4M3> codes);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_ACTIVATIONS_H_
