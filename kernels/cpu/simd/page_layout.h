#ifndef ANNULUS_KERNELS_CPU_SIMD_PAGE_LAYOUT_H_
#define ANNULUS_KERNELS_CPU_SIMD_PAGE_LAYOUT_H_

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/ops/attention.h"

namespace annulus::cpu {

// Byte offsets inside one layer's part of a page, for the SIMD tables. A page is plain or paired,
// depending on its storage type and on the table's kernels. It holds, in this order:
//   K, for every kv head. Plain: [page_tokens / 16][k_dim][16], so that a vector holds 16 keys.
//      Paired: [page_tokens / 16][k_pairs][16][2], two neighbouring elements of 16 keys, for dot
//      products of pairs. Keys are padded with 0 to a multiple of PairedAttention::k_multiple.
//   V, for every kv head. Plain: [page_tokens][v_stride]. Paired: [page_tokens / 2][v_stride][2],
//      one element of two neighbouring slots. Columns from v_dim on are 0.
//   Scales, int8 only: bf16, [kv_heads][page_tokens] for K, then the same for V.
// Paired 8-bit types store two pairs together: K as [page_tokens / 16][k_pairs / 2][16][4] and V as
// [page_tokens / 4][v_stride][4], each four elements in the order 0, 2, 1, 3. So 64 bytes widen to
// two vectors of 16 pairs (isa/dot_codes.h).
class PageLayout {
 public:
  PageLayout(const SimdKernels& isa, const KvPageShape& shape);

  bool paired() const { return together_ > 1; }
  int64_t k_dim() const { return k_dim_; }        // elements, including padding
  int64_t v_stride() const { return v_stride_; }  // elements
  size_t bytes() const { return bytes_; }

  int64_t k_head(int head) const { return head * k_head_bytes_; }
  int64_t v_head(int head) const { return values_ + head * v_head_bytes_; }
  // The bf16 scales of a head's keys and values; int8 only.
  int64_t k_scales(int head) const { return scales_ + head * scale_head_bytes_; }
  int64_t v_scales(int head) const { return k_scales(kv_heads_ + head); }

  // Index of element `d` of a slot's key or value, relative to the head's part.
  int64_t key_element(int slot, int64_t d) const {
    return slot / kPanel * k_dim_ * kPanel + d / together_ * kPanel * together_ +
           slot % kPanel * together_ + Place(d);
  }
  int64_t value_element(int slot, int64_t d) const {
    return (slot / together_ * v_stride_ + d) * together_ + Place(slot);
  }

 private:
  // The place of element i within the elements that are stored together.
  int64_t Place(int64_t i) const {
    const int64_t place = i % together_;
    return together_ < 4 ? place : (place & 1) << 1 | place >> 1;
  }

  // elements of a key and slots of values stored together: 1 plain, 2 paired, 4 paired 8-bit
  int together_;
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

// One slot of one kv head in a page of `layout`.
struct HeadSlot {
  const PageLayout& layout;
  int kv_head;
  int slot;
};

// Copies a slot's key and value, bit for bit, between pages of two layouts with the same storage
// type and dimensions.
void CopySlot(DType dtype, const HeadSlot& from, const std::byte* from_page, const HeadSlot& to,
              std::byte* to_page);

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_PAGE_LAYOUT_H_
