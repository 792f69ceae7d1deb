#ifndef ANNULUS_KERNELS_CUDA_PRODUCT_WAYS_H_
#define ANNULUS_KERNELS_CUDA_PRODUCT_WAYS_H_

#include <algorithm>
#include <bit>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/products.h"

namespace annulus::cuda {

// What a library's choice of algorithm (its "way") for a product depends on. Alignments are those
// of the addresses, up to 16 bytes; 0 means that there is no such address. cuBLASLt assumes that a
// bias is aligned like the one it was asked about (cublasLt.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER).
struct ProductKind {
  int64_t rows = 0;
  int64_t out = 0;
  int64_t in = 0;
  int64_t stride = 0;
  Factors factors = Factors::kBFloat16;
  bool scaled = false;
  bool accumulate = false;
  uint32_t bias_alignment = 0;
  uint32_t output_alignment = 0;

  auto operator<=>(const ProductKind&) const = default;
};

inline uint32_t AlignmentOf(const void* address) {
  const auto word = reinterpret_cast<uintptr_t>(address);
  return word == 0 ? 0 : uint32_t{1} << std::min(std::countr_zero(word), 4);
}

inline ProductKind KindOf(const Product& p) {
  return {p.rows,
          p.out,
          p.in,
          p.stride,
          p.factors,
          /*scaled=*/p.input_scales != nullptr,
          p.accumulate,
          AlignmentOf(p.bias),
          AlignmentOf(p.output)};
}

// A cache of the library's answers: it is asked once for each kind of product. Keeps negative
// answers too. Not thread-safe.
template <class Way>
class ProductWays {
 public:
  // Returns null if there is no way. Valid until the next call.
  absl::StatusOr<const Way*> Find(const ProductKind& kind,
                                  absl::FunctionRef<absl::StatusOr<std::optional<Way>>()> ask) {
    auto found = ways_.find(kind);
    if (found == ways_.end()) {
      absl::StatusOr<std::optional<Way>> way = ask();
      if (!way.ok()) return way.status();
      if (ways_.size() >= kMost) ways_.clear();
      found = ways_.emplace(kind, *std::move(way)).first;
    }
    return found->second.has_value() ? &*found->second : nullptr;
  }

  // Remembers that there is no way for this kind.
  void Drop(const ProductKind& kind) { ways_[kind] = std::nullopt; }

 private:
  static constexpr size_t kMost = 1024;

  std::map<ProductKind, std::optional<Way>> ways_;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_PRODUCT_WAYS_H_
