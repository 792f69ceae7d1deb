#ifndef ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_RING_H_
#define ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_RING_H_

// The copies of the keys and values of a warp's groups into its ring. See attention_decode.h.
#include "kernels/cuda/sm80/attention_decode_rows.h"

namespace annulus::cuda {

// Starts the copies of a group's 16 rows of `row` bytes each, which follow each other from `from`
// on; absent rows and columns become 0. `turn` is KeyTurn or ValueTurn.
template <class C, class Turn>
ANNULUS_DEVICE void StartCopies(const std::byte* from, int row, int count,
                                Bytes16 (&slot)[C::kGroupChunks], const Turn& turn) {
  if (row == C::kRowBytes && count == C::kKeys) [[likely]] {
    from += Lane() * 16;
#pragma unroll
    for (int i = 0; i < C::kCopies; ++i) {
      const int key = (i * kWarp + Lane()) / C::kChunks;
      AsyncCopy16(&slot[i * kWarp + (Lane() ^ turn(key))], from + i * kWarp * 16, true);
    }
    return;
  }
#pragma unroll 1
  for (int at = Lane(); at < C::kGroupChunks; at += kWarp) {
    const int key = at / C::kChunks;
    const int chunk = at % C::kChunks;
    AsyncCopy16(&slot[at ^ turn(key)], from + key * row + chunk * 16,
                key < count && chunk * 16 < row);
  }
}

// The same for the scales of int8.
ANNULUS_DEVICE void StartScales(const std::byte* from, int count, uint16_t* scales) {
  if (Lane() >= 2) return;
  AsyncCopy16(scales + 8 * Lane(), from + 16 * Lane(), 8 * Lane() < count);
}

// A warp's groups of a unit, one after the other.
template <class C>
class GroupCursor {
 public:
  ANNULUS_DEVICE GroupCursor(const AttentionArguments& a, const AttentionUnit& unit,
                             const AttentionItemView& item)
      : item_(item),
        per_page_(a.layout.page_tokens / C::kKeys),
        page_(unit.page_begin),
        end_(unit.page_end),
        group_(WarpIndex()) {
    Arrive();
  }

  // The next group, whose page is still being loaded, or one without keys at the end.
  struct Group {
    KvPageView page;
    int32_t slot;
  };
  ANNULUS_DEVICE Group Next() {
    Group group{{nullptr, 0, 0}, group_ * C::kKeys};
    if (page_ < end_) group.page = item_.pages[index_];
    group_ += C::kWarps;
    Arrive();
    return group;
  }

 private:
  // Starts loading the index of the page here.
  ANNULUS_DEVICE void Arrive() {
    for (; group_ >= per_page_ && page_ < end_; ++page_) group_ -= per_page_;
    if (page_ < end_) index_ = item_.lists == nullptr ? page_ : item_.lists[page_];
  }

  const AttentionItemView& item_;
  const int per_page_;
  int page_;
  const int end_;
  int group_;
  int32_t index_ = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_SM80_ATTENTION_DECODE_RING_H_
