#ifndef ANNULUS_KERNELS_CPU_SIMD_OPS_H_
#define ANNULUS_KERNELS_CPU_SIMD_OPS_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cpu/cpu_stream.h"
#include "kernels/cpu/simd_kernels.h"
#include "kernels/registry.h"

// The ops of the SIMD tables: contracts as in kernels/ops/, inner loops from `isa`. Packed weights
// have one layout for every instruction set; that of pages is page_layout.h.
// Packed weights: panels of 16 output columns, [ceil(out / 16)][in][16], columns beyond `out` zero.

namespace annulus::cpu {

absl::StatusOr<PackedMatrix> PackMatrix(Backend& backend, const HostTensorView& source,
                                        DType dtype);
absl::Status Linear(const SimdKernels& isa, CpuStream& stream, const LinearParams& params);
absl::Status Embed(const SimdKernels& isa, CpuStream& stream, const EmbedParams& params);

absl::Status RmsNorm(const SimdKernels& isa, CpuStream& stream, const RmsNormParams& params);
absl::Status SiluMul(const SimdKernels& isa, CpuStream& stream, const SiluMulParams& params);
absl::Status RopeTable(const SimdKernels& isa, CpuStream& stream, const RopeTableParams& params);
absl::Status Rope(const SimdKernels& isa, CpuStream& stream, const RopeParams& params);

size_t KvPageBytes(const SimdKernels& isa, const KvPageShape& shape);
absl::Status KvAppend(const SimdKernels& isa, CpuStream& stream, const KvAppendParams& params);
absl::Status KvRead(const SimdKernels& isa, CpuStream& stream, const KvReadParams& params);

absl::Status Attention(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params);
absl::Status MergeState(const SimdKernels& isa, CpuStream& stream, const MergeStateParams& params);

// Whether pages of `dtype` hold one byte for each element.
inline bool IsNarrow(DType dtype) { return static_cast<int>(dtype) >= kStorageTypes; }
// The index of `dtype` in the tables of SimdKernels for storage types and for narrow ones.
int StorageIndex(DType dtype);
int NarrowIndex(DType dtype);

constexpr int64_t CeilDiv(int64_t a, int64_t b) { return (a + b - 1) / b; }
constexpr int64_t RoundUp(int64_t a, int64_t b) { return CeilDiv(a, b) * b; }

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_OPS_H_
