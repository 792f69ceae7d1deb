#ifndef ANNULUS_KERNELS_OPS_EXPERTS_H_
#define ANNULUS_KERNELS_OPS_EXPERTS_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/base/activations.h"
#include "kernels/base/device_buffer.h"
#include "kernels/base/tensor_view.h"
#include "kernels/ops/linear.h"

namespace annulus {

// Chooses experts for rows (Shazeer et al. 2017): the `chosen` largest logits of each row, of equal
// ones the lowest index first, in ascending order of their index: whoever adds up in this order
// gives a row the same bits in any batch. A chosen expert's weight is its softmax over the chosen
// logits, or over all of them; the latter do not add up to 1. A logit that is NaN counts as minus
// infinity, so indices are distinct and less than the number of experts whatever the logits are.
struct RouteParams {
  ConstMatrixView logits;  // [rows, experts]
  int chosen = 0;          // 1..experts
  bool softmax_of_chosen = false;
  int32_t* experts = nullptr;  // [rows * chosen], written: of the device, or of AllocateHost
  float* weights = nullptr;    // [rows * chosen], the same
};

// Few rows are multiplied by the experts that they chose where the device knows the choices, and
// the host does not: by expert_linear and add_choices. At most so many, of which each may choose
// any expert once. With more rows it is the host that sorts them by expert: gather_rows, `linear`
// and scatter_add give a row the same bits, but where a library multiplies many (see `linear`).
inline constexpr int64_t kMostChoosingRows = 16;

// Where one expert's matrix and bias are, as addresses of the device.
struct ExpertAddress {
  const std::byte* weight;
  const float* bias;  // null: none
};

// The same projection of all experts of a layer: matrices of one shape and dtype. Made by
// ListExperts; the matrices and biases outlive it. Immutable, so all ranks of a process share it.
struct ExpertMatrices {
  std::vector<const PackedMatrix*> matrices;  // [experts] [out_features, in_features]
  std::vector<const float*> biases;           // [experts] [out_features] or null
  DeviceBuffer addresses;                     // [experts] ExpertAddress of these
};

// output[i, :] = weight(experts[i]) * input + its bias, where choice i's input is row i, or, where
// all choices of a row share theirs, row i / chosen. The bits, and how inputs are rounded, are
// those of `linear` with that expert's matrix. FLOPs: 2 * rows * chosen * in * out. Bytes: each
// matrix that some row chose once, input and output once, the choices.
struct ExpertLinearParams {
  ConstMatrixView input;  // [rows * chosen, in], or [rows, in], rows <= kMostChoosingRows
  const ExpertMatrices* weights = nullptr;
  const int32_t* experts = nullptr;  // [rows * chosen] of the device, distinct for each row
  int chosen = 0;                    // of each row
  MatrixView output;                 // [rows * chosen, out]; must not overlap input
  Activations activations = Activations::kFloat;
};

// output[r, :] += weights[r * chosen + i] * input[r * chosen + i, :] for i = 0, then 1, ..
struct AddChoicesParams {
  ConstMatrixView input;           // [rows * chosen, cols]
  const float* weights = nullptr;  // [rows * chosen] of the device
  int chosen = 0;
  MatrixView output;  // [rows, cols]
};

// output[i, :] = input[rows[i], :].
struct GatherRowsParams {
  ConstMatrixView input;
  std::span<const int32_t> rows;  // [n]
  MatrixView output;              // [n, cols]
};

// output[rows[i], :] += weights[i] * input[i, :]. No row occurs twice.
struct ScatterAddParams {
  ConstMatrixView input;           // [n, cols]
  std::span<const int32_t> rows;   // [n]
  std::span<const float> weights;  // [n]
  MatrixView output;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_OPS_EXPERTS_H_
