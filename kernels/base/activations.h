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
  // be integers (kI8 or a grouped type) with at most kMostInt8Inputs columns. All tables give the
  // same bits:
  // - kI8: products of codes are summed exactly in int32 over the whole row.
  // - Grouped types: they are summed exactly in int32 over each group of the weights. One fused
  //   multiply-add adds this sum times the group's scale to a float32 total, group after group in
  //   ascending order. If groups have minimums, a second one adds the group's minimum times the sum
  //   of its input codes.
  // The row's scale multiplies the result.
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

// The dtypes that weights may have with these activations; empty: any. The first is the one that
// has the activations' name.
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
