#ifndef ANNULUS_KERNELS_CPU_PAGE_LAYOUT_H_
#define ANNULUS_KERNELS_CPU_PAGE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd_kernels.h"
#include "kernels/ops/attention.h"

namespace annulus::cpu {

// Byte offsets inside one layer's part of a page of the SIMD tables. A page is plain or paired, by
// its storage type and by what the table's kernels read.
//   K, for every kv head: plain [page_tokens / 16][k_dim][16], a vector holds 16 keys; paired
//      [page_tokens / 16][k_pairs][16][2], two neighbouring elements of 16 keys, for dot products
//      of pairs. Keys are padded with 0 to a multiple of
//      PairedAttention::k_multiple.
//   V, for every kv head: plain [page_tokens][v_stride]; paired [page_tokens / 2][v_stride][2], one
//      element of two neighbouring slots. Columns from v_dim on are 0.
//   Paired 8-bit types hold two pairs together, first and second elements in turn: K is
//      [page_tokens / 16][k_pairs / 2][16][4] and V [page_tokens / 4][v_stride][4], each four in
//      the order 0, 2, 1, 3. So 64 bytes become two vectors of 16 pairs (isa_dot_codes.h).
//   int8 only: the bf16 scales of K [kv_heads][page_tokens], and those of V.
class PageLayout {
 public:
  PageLayout(const SimdKernels& isa, const KvPageShape& shape);

  bool paired() const { return together_ > 1; }
  int64_t k_dim() const { return k_dim_; }        // elements, padding included
  int64_t v_stride() const { return v_stride_; }  // elements
  size_t bytes() const { return bytes_; }

  int64_t k_head(int head) const { return head * k_head_bytes_; }
  int64_t v_head(int head) const { return values_ + head * v_head_bytes_; }
  // The bf16 scales of a head's keys and values; int8 only.
  int64_t k_scales(int head) const { return scales_ + head * scale_head_bytes_; }
  int64_t v_scales(int head) const { return k_scales(kv_heads_ + head); }

  // Element `d` of a slot's key or value, in elements from the head's part.
  int64_t key_element(int slot, int64_t d) const {
    return slot / kPanel * k_dim_ * kPanel + d / together_ * kPanel * together_ +
           slot % kPanel * together_ + Place(d);
  }
  int64_t value_element(int slot, int64_t d) const {
    return (slot / together_ * v_stride_ + d) * together_ + Place(slot);
  }

 private:
  // Where the i-th lies among those that are held together.
  int64_t Place(int64_t i) const {
    const int64_t place = i % together_;
    return together_ < 4 ? place : (place & 1) << 1 | place >> 1;
  }

  int together_;  // elements of a key, slots of values: 1, or where paired 2, or of 8 bits 4
  int kv_heads_;
  int64_t k_dim_;
  int64_t v_stride_;
  int64_t k_head_bytes_;
  int64_t v_head_bytes_;
  int64_t scale_head_bytes_;
  int64_t values_;
  int64_t scales_;
  size_t bytes_;
};

// One slot of one kv head: where a page of `layout` keeps its key and value.
struct HeadSlot {
  const PageLayout& layout;
  int kv_head;
  int slot;
};

// Copies a slot's key and value, bit for bit, between pages of two layouts that have the same
// storage type and dimensions.
void CopySlot(DType dtype, const HeadSlot& from, const std::byte* from_page, const HeadSlot& to,
              std::byte* to_page);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_PAGE_LAYOUT_H_
