#ifndef ANNULUS_ENGINE_SPARSE_GATES_H_
#define ANNULUS_ENGINE_SPARSE_GATES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/tensor_source.h"
#include "kernels/registry.h"

namespace annulus {

// Gates tell which pages the rows of a query block will attend (SeerAttention, arXiv 2410.13276,
// section 3): of a query head h and its key head g
//   score(page) = (Q_h q) . (K_g k) / sqrt(width)
// where q is the mean of the block's rotated queries and k the mean, the least and the greatest of
// the page's rotated keys, element by element, one after another. exp(score) estimates the
// attention that the page gets.

// One layer's; width 0: it has none.
struct GateLayer {
  int width = 0;
  std::vector<float> query;  // [heads, width, k_dim]
  std::vector<float> key;    // [kv_heads, width, 3 * k_dim]
};

// A model's. Immutable once read.
struct AttentionGates {
  std::vector<GateLayer> layers;  // [layer]
  uint64_t fingerprint = 0;       // of all weights
};

// The model that gates must fit.
struct GateShape {
  std::vector<bool> layers;  // [layer] whether it needs gates: those without a window
  int heads = 1;
  int kv_heads = 1;
  int k_dim = 1;
};

inline constexpr int kMostGateWidth = 1024;

// Tensors "layers.N.query" and "layers.N.key" of each layer that needs them, of f32, bf16 or f16.
// INVALID_ARGUMENT names a tensor that is missing, or of another shape, with the allowed one, or of
// a layer that takes none, or that holds NaN or infinity.
absl::StatusOr<AttentionGates> ReadGates(const TensorSource& source, const GateShape& shape);

// The tensors' names.
std::string GateQueryName(size_t layer);
std::string GateKeyName(size_t layer);

// What gates know of one layer's pages of one sequence on one rank: K_g k of each. A page is
// projected once, when it is complete: what is written never changes. Not thread-safe.
class GateKeys {
 public:
  // Adds the complete pages among `pages`: all pages of the sequence on this rank, ascending, of
  // which earlier calls saw the first ones.
  absl::Status Extend(Backend& backend, const OpTable& ops, Stream& stream,
                      const KvPageShape& shape, const GateLayer& gates,
                      std::span<const KvPageView> pages);

  // scores[row][head][page], log of the estimated attention, for `query` [rows, heads * k_dim] and
  // the first `pages` known ones.
  void Score(const GateLayer& gates, const ConstMatrixView& query, int heads, int kv_heads,
             int64_t pages, float* scores) const;

  int64_t pages() const { return pages_; }

 private:
  int64_t pages_ = 0;
  std::vector<float> keys_;  // [pages, kv_heads, width]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_GATES_H_
