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

inline constexpr int kMostExperts = 1024;

// How logits become a choice of experts and their weights (Shazeer et al. 2017; the sigmoid with
// groups and a bias: DeepSeek-V3, arXiv 2412.19437).
struct RoutingRule {
  enum class Scores : uint8_t { kSoftmax, kSigmoid };

  int chosen = 0;  // 1..experts
  Scores scores = Scores::kSoftmax;
  // Of kSoftmax: a weight is the softmax over the chosen logits, otherwise over all logits, and the
  // weights add up to less than 1. Of kSigmoid: a weight is the score divided by the sum of the
  // chosen ones (plus 1e-20), otherwise the score.
  bool normalised = false;
  // Of kSigmoid: so many groups of equal size, one after the other, and how many of them the chosen
  // experts may be in. More than one group: each has at least two experts.
  int groups = 1;
  int chosen_groups = 1;  // 1..groups; so many groups have at least `chosen` experts
  float scale = 1;        // factor of the weights
};

// Chooses experts for each row: those with the largest logits, or, of kSigmoid, with the largest
// scores + bias among the experts of the best groups, which are those whose two best experts have
// the largest sums. Of equal ones, the one with the lowest index comes first. The bias counts for
// the choice alone. The choices are listed in ascending order of expert index, and adding up in
// that order gives a row the same bits in any batch. A NaN logit counts as minus infinity, so the
// indices are always distinct and in range.
struct RouteParams {
  ConstMatrixView logits;  // [rows, experts]; at most kMostExperts
  RoutingRule rule = {};
  const float* bias = nullptr;  // [experts] finite, on the device; null: none. Of kSigmoid only
  // [experts] on the device: what a chosen expert's weight is multiplied by in the end; null: 1
  const float* factors = nullptr;
  int32_t* experts = nullptr;  // [rows * chosen], written; device or AllocateHost memory
  float* weights = nullptr;    // [rows * chosen], written; device or AllocateHost memory
};

// The most rows that expert_linear and add_choices take. For so few rows, the choices stay on the
// device and the host never sees them. Each row chooses an expert at most once, but all rows may
// choose the same ones. For more rows the host sorts them by expert and calls gather_rows, `linear`
// and scatter_add. Both ways give a row the same bits, unless a library multiplies many rows (see
// LinearParams).
inline constexpr int64_t kMostChoosingRows = 16;

// Device addresses of one expert's matrix and bias.
struct ExpertAddress {
  const std::byte* weight;
  const float* bias;  // null: none
};

// One projection of all experts of a layer: matrices of one shape and dtype. Made by ListExperts.
// The matrices and biases must outlive it. Immutable, so all ranks of a process share it.
struct ExpertMatrices {
  std::vector<const PackedMatrix*> matrices;  // [experts] [out_features, in_features]
  std::vector<const float*> biases;           // [experts] [out_features] or null
  DeviceBuffer addresses;                     // [experts] ExpertAddress, on the device
};

// output[i, :] = weight(experts[i]) * x + that expert's bias, for every choice i. x is input row i
// if the input has a row per choice, or row i / chosen if all choices of a row share one input.
// Results and the rounding of inputs are those of `linear` with the expert's matrix, bit for bit.
// FLOPs: 2 * rows * chosen * in * out. Bytes: every matrix that some row chose, the input, the
// output and the choices, once each.
struct ExpertLinearParams {
  ConstMatrixView input;  // [rows * chosen, in] or [rows, in]; rows <= kMostChoosingRows
  const ExpertMatrices* weights = nullptr;
  const int32_t* experts = nullptr;  // [rows * chosen] on the device, distinct within a row
  int chosen = 0;                    // per row
  MatrixView output;                 // [rows * chosen, out]; must not overlap input
  Activations activations = Activations::kFloat;
};

// output[r, :] += weights[r * chosen + i] * input[r * chosen + i, :], for i = 0, 1, .. in this
// order.
struct AddChoicesParams {
  ConstMatrixView input;           // [rows * chosen, cols]
  const float* weights = nullptr;  // [rows * chosen] on the device
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
