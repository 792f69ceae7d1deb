#ifndef ANNULUS_ENGINE_SPARSE_GATES_H_
#define ANNULUS_ENGINE_SPARSE_GATES_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/model/files/tensor_source.h"
#include "kernels/registry.h"

namespace annulus {

// Gates predict which pages the rows of a query block will attend (SeerAttention, arXiv 2410.13276,
// section 3). For a query head h and its key head g:
//   score(page) = (Q_h q) . (K_g k) / sqrt(width)
// where q is the mean of the block's rotated queries and k the concatenation of the elementwise
// mean, minimum and maximum of the page's rotated keys. exp(score) estimates the page's attention.

// The gates of one layer. width 0: the layer has none.
struct GateLayer {
  int width = 0;
  std::vector<float> query;  // [heads, width, k_dim]
  std::vector<float> key;    // [kv_heads, width, 3 * k_dim]
};

// The gates of a model. Immutable.
struct AttentionGates {
  std::vector<GateLayer> layers;  // [layer]
  uint64_t fingerprint = 0;       // of all weights
};

// The model properties that gates must fit.
struct GateShape {
  std::vector<bool> layers;  // [layer] whether it needs gates; layers with a window do not
  int heads = 1;
  int kv_heads = 1;
  int k_dim = 1;
};

inline constexpr int kMostGateWidth = 1024;

// Reads tensors "layers.N.query" and "layers.N.key" (f32, bf16 or f16) of each layer that needs
// gates. INVALID_ARGUMENT names a tensor that is missing, has the wrong shape (with the right one),
// belongs to a layer without gates, or contains NaN or infinity.
absl::StatusOr<AttentionGates> ReadGates(const TensorSource& source, const GateShape& shape);

// Names of the tensors of `layer`.
std::string GateQueryName(size_t layer);
std::string GateKeyName(size_t layer);

// The projected keys (K_g k) of one layer's pages of one sequence on one rank. Each page is
// projected once, when it is complete, since complete pages never change. Not thread-safe.
class GateKeys {
 public:
  // Adds the complete pages of `pages`: all pages of the sequence on this rank, ascending. They
  // must begin with the pages that earlier calls saw.
  absl::Status Extend(Backend& backend, const OpTable& ops, Stream& stream,
                      const KvPageShape& shape, const GateLayer& gates,
                      std::span<const KvPageView> pages);

  // Computes scores[row][head][page], the log of the estimated attention, for `query` [rows, heads
  // * k_dim] and the first `pages` pages added.
  void Score(const GateLayer& gates, const ConstMatrixView& query, int heads, int kv_heads,
             int64_t pages, float* scores) const;

  int64_t pages() const { return pages_; }

 private:
  int64_t pages_ = 0;
  std::vector<float> keys_;  // [pages, kv_heads, width]
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_GATES_H_
