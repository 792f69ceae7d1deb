#ifndef ANNULUS_KERNELS_BASE_ACTIVATIONS_H_
#define ANNULUS_KERNELS_BASE_ACTIVATIONS_H_

#include <cstdint>
#include <span>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "kernels/base/dtype.h"

namespace annulus {

// The form in which a linear layer takes its inputs. With kInt8 and kFp8 the inputs become codes
// with one scale per row, computed anew in every call (dynamic, per token). A row whose largest
// magnitude is below 2^-100 counts as zeros; one with an infinity or NaN gives NaN.
enum class Activations : uint8_t {
  kFloat,  // as they are, or rounded to bf16: see LinearParams
  // int8: scale = largest magnitude / 127, code = x / scale rounded to nearest even. Weights must
  // be integers (kI8 or a grouped type) with at most kMostInt8Inputs columns. Products of codes are
  // summed exactly in int32: with kI8 over the whole row; otherwise over each group of the weights,
  // whose sum is multiplied by the group's scale and added to a float32 total, in ascending order,
  // by one fused multiply-add. A group's minimum times the sum of its codes is added by another.
  // The row's scale multiplies the total. So all tables give the same bits.
  kInt8,
  // fp8_e4m3: scale = largest magnitude / 448, code = the fp8 number nearest to x / scale, ties to
  // even. Products of codes are exact, sums are float32. Weights must be kF8E4M3.
  kFp8,
};
inline constexpr int64_t kMostInt8Inputs = int64_t{1} << 17;

inline constexpr Activations kAllActivations[] = {Activations::kFloat, Activations::kInt8,
                                                  Activations::kFp8};

// "float", "int8", "fp8_e4m3": the names used in flags, YAML keys and reports.
absl::string_view ActivationsName(Activations activations);

// Inverse of ActivationsName. INVALID_ARGUMENT for an unknown name; the message lists the known
// ones.
absl::StatusOr<Activations> ParseActivations(absl::string_view name);

// The dtypes that weights may have, the one of the same name first; empty if any will do.
std::span<const DType> WeightsFor(Activations activations);

// The activations of a layer whose weights have dtype `weights`: `asked` if the layer supports it,
// else kFloat.
Activations ActivationsOf(Activations asked, DType weights);

// Converts one row to kFp8 codes and returns its scale. The scale is 0 for a row that counts as
// zeros and NaN for one that gives NaN; all codes are then 0. `codes` is as long as `row`. A code
// is x * (448 / largest), rounded.
float RoundToFloat8(std::span<const float> row, std::span<Float8E4M3> codes);

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_ACTIVATIONS_H_
