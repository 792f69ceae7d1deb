#ifndef ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_
#define ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cuda/common/device.h"
#include "kernels/ops/attention.h"

namespace annulus::cuda {

// Where one layer's part of a page keeps what: K [kv_heads][page_tokens][k_stride], then V the same
// way, then (kI8) the bf16 scales of K [kv_heads][page_tokens], then those of V. Strides are the
// dimensions rounded up to 16 elements, so that rows start at multiples of 16 bytes in every type;
// what lies between is 0, written with the row. `element` is the bytes of one element.
struct PageLayout {
  int page_tokens;
  int kv_heads;
  int k_dim;
  int v_dim;
  int k_stride;
  int v_stride;
  int element;
  DType dtype;

  ANNULUS_DEVICE int64_t Key(int head, int64_t slot) const {
    return (int64_t{head} * page_tokens + slot) * k_stride * element;
  }
  ANNULUS_DEVICE int64_t Value(int head, int64_t slot) const {
    return Key(kv_heads, 0) + (int64_t{head} * page_tokens + slot) * v_stride * element;
  }
  ANNULUS_DEVICE int64_t KeyScale(int head, int64_t slot) const {
    return Value(kv_heads, 0) + (int64_t{head} * page_tokens + slot) * 2;
  }
  ANNULUS_DEVICE int64_t ValueScale(int head, int64_t slot) const {
    return KeyScale(kv_heads + head, slot);
  }
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_PAGE_LAYOUT_H_
