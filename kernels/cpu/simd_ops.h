#ifndef ANNULUS_KERNELS_CPU_SIMD_OPS_H_
#define ANNULUS_KERNELS_CPU_SIMD_OPS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/registry.h"

// The ops of the SIMD tables: contracts as in kernels/ops/, inner loops from `isa`. Packed weights
// and pages have one layout for every instruction set.
// Packed weights: panels of 16 output columns, [ceil(out / 16)][in][16], columns beyond `out` zero.
// Page, for every kv head: K as [page_tokens / 16][k_dim][16]; then, for every kv head: V as
// [page_tokens][v_dim rounded up to 16]; then (int8) the bf16 scales of K [kv_heads][page_tokens]
// and those of V.

namespace annulus::cpu {

absl::StatusOr<PackedMatrix> PackMatrix(Backend& backend, const HostTensorView& source,
                                        DType dtype);
absl::Status Linear(const SimdKernels& isa, CpuStream& stream, const LinearParams& params);
absl::Status Embed(const SimdKernels& isa, CpuStream& stream, const EmbedParams& params);

absl::Status RmsNorm(const SimdKernels& isa, CpuStream& stream, const RmsNormParams& params);
absl::Status SiluMul(const SimdKernels& isa, CpuStream& stream, const SiluMulParams& params);
absl::Status RopeTable(const SimdKernels& isa, CpuStream& stream, const RopeTableParams& params);
absl::Status Rope(const SimdKernels& isa, CpuStream& stream, const RopeParams& params);

size_t KvPageBytes(const KvPageShape& shape);
absl::Status KvAppend(const SimdKernels& isa, CpuStream& stream, const KvAppendParams& params);
absl::Status KvRead(const SimdKernels& isa, CpuStream& stream, const KvReadParams& params);

absl::Status Attention(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params);
absl::Status MergeState(const SimdKernels& isa, CpuStream& stream, const MergeStateParams& params);

// The index of `dtype` in the tables of SimdKernels.
int StorageIndex(DType dtype);

inline int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

// Byte offsets inside one layer's part of a page.
class PageLayout {
 public:
  explicit PageLayout(const KvPageShape& shape);

  int64_t v_stride() const { return v_stride_; }  // elements
  int64_t k_head(int head) const { return head * k_head_bytes_; }
  int64_t v_head(int head) const { return values_ + head * v_head_bytes_; }
  // Element 0 of a slot's key; element d lies 16 * d elements further.
  int64_t key(int head, int slot) const {
    return k_head(head) +
           (int64_t{slot / kPanel} * k_dim_ * kPanel + slot % kPanel) * element_bytes_;
  }
  int64_t value(int head, int slot) const {
    return v_head(head) + slot * v_stride_ * element_bytes_;
  }
  // The bf16 scale of a slot's key and value; int8 only.
  int64_t key_scale(int head, int slot) const {
    return scales_ + head * scale_head_bytes_ + slot * int64_t{sizeof(Bf16)};
  }
  int64_t value_scale(int head, int slot) const {
    return key_scale(static_cast<int>(kv_heads_) + head, slot);
  }
  size_t bytes() const;

 private:
  int64_t element_bytes_;
  int64_t kv_heads_;
  int64_t k_dim_;
  int64_t v_stride_;
  int64_t k_head_bytes_;
  int64_t v_head_bytes_;
  int64_t values_;
  int64_t scales_;
  int64_t scale_head_bytes_;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_OPS_H_
