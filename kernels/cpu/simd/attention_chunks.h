#ifndef ANNULUS_KERNELS_CPU_SIMD_ATTENTION_CHUNKS_H_
#define ANNULUS_KERNELS_CPU_SIMD_ATTENTION_CHUNKS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/simd/kernels.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/attention.h"

namespace annulus::cpu {

// Slots [begin, end) of one page, for one kv head.
struct PagePart {
  const KvPageView* page = nullptr;
  const std::byte* data = nullptr;  // the page's bytes in this layer
  int kv_head = 0;
  int begin = 0;
  int end = 0;
};

// Feeds pages to the inner kernels in chunks of kKeyChunk keys.
class AttentionChunks {
 public:
  AttentionChunks(const SimdKernels& isa, const KvPageShape& shape)
      : isa_(isa),
        shape_(shape),
        layout_(isa, shape),
        narrow_(IsNarrow(shape.dtype)),
        element_bytes_(DTypeSize(shape.dtype)),
        begin_(layout_.paired() ? isa.paired->begin : isa.attention_begin),
        keys_(isa.attention_keys[StorageIndex(narrow_ || layout_.paired() ? DType::kF32
                                                                          : shape.dtype)]),
        finish_(layout_.paired() ? isa.paired->finish : isa.attention_finish) {}

  const PageLayout& layout() const { return layout_; }

  // Size, in floats, of the buffer into which one thread widens a chunk of an 8-bit page.
  int64_t WideFloats() const {
    if (!narrow_) return 0;
    return kKeyChunk * RoundUp(layout_.k_dim() + layout_.v_stride(), kPanel);
  }

  void Begin(const AttentionBlock& block) const { begin_(block); }
  // Before Attend with rows of a block that was begun as a whole: see PairedAttention.
  void Resume(const AttentionBlock& block) const {
    if (layout_.paired() && isa_.paired->resume != nullptr) isa_.paired->resume(block);
  }
  void Finish(const AttentionBlock& block) const { finish_(block); }

  // Adds part of a page to the block's running softmax. `next` is the part that comes after it, or
  // null if unknown; if `fetch`, its first keys are prefetched meanwhile. `wide` has WideFloats()
  // floats.
  void Attend(const AttentionBlock& block, const PagePart& part, const PagePart* next, bool fetch,
              float* wide) const {
    for (int chunk = FirstChunk(part); chunk < part.end; chunk += kKeyChunk) {
      AttentionKeys keys = ChunkKeys(part, chunk);
      FetchAhead ahead;
      if (fetch && chunk + kKeyChunk < part.end) {
        ahead = AheadOf(part, chunk + kKeyChunk);
        keys.ahead = &ahead;
      } else if (fetch && next != nullptr) {
        ahead = AheadOf(*next, FirstChunk(*next));
        keys.ahead = &ahead;
      }
      if (narrow_) {
        AttendNarrow(block, keys, part, chunk, wide);
      } else {
        AttendOne(block, keys);
      }
    }
  }

  // Chunks that wait until they are attended together.
  struct Waiting {
    AttentionKeys keys[kChunksTogether];
    int count = 0;
  };

  // Whether AttendTogether is faster than Attend, for blocks that prefetch nothing.
  bool TakesTogether() const { return layout_.paired() && !narrow_ && isa_.paired->chunks > 1; }

  // Like Attend, with the same bits, but lets chunks wait for the next call, or for AttendWaiting.
  void AttendTogether(const AttentionBlock& block, const PagePart& part, Waiting& waiting) const {
    for (int chunk = FirstChunk(part); chunk < part.end; chunk += kKeyChunk) {
      waiting.keys[waiting.count++] = ChunkKeys(part, chunk);
      if (waiting.count == isa_.paired->chunks) AttendWaiting(block, waiting);
    }
  }
  void AttendWaiting(const AttentionBlock& block, Waiting& waiting) const {
    if (waiting.count > 0) isa_.paired->keys(block, waiting.keys, waiting.count);
    waiting.count = 0;
  }

 private:
  static int FirstChunk(const PagePart& part) { return part.begin / kKeyChunk * kKeyChunk; }

  // One chunk's keys and values, as stored.
  AttentionKeys ChunkKeys(const PagePart& part, int chunk) const {
    const std::byte* const data = part.data;
    AttentionKeys keys;
    keys.k = data + layout_.k_head(part.kv_head) + chunk * layout_.k_dim() * element_bytes_;
    keys.v = data + layout_.v_head(part.kv_head) + chunk * layout_.v_stride() * element_bytes_;
    keys.k_scales = keys.v_scales = nullptr;
    keys.first_position = int64_t{part.page->first_position} + chunk;
    keys.ahead = nullptr;
    keys.narrow = nullptr;
    keys.widen_values = nullptr;
    keys.slots = std::min(kKeyChunk, shape_.page_tokens - chunk);
    keys.begin = std::max(0, part.begin - chunk);
    keys.end = std::min(keys.slots, part.end - chunk);
    return keys;
  }

  // The memory of a chunk, to be prefetched while the chunk before it is attended. Prefetches the
  // scales of int8 at once, since they are few.
  FetchAhead AheadOf(const PagePart& part, int chunk) const {
    const AttentionKeys keys = ChunkKeys(part, chunk);
    const auto lines = [&](int64_t columns) {
      return static_cast<int>((keys.slots * columns * element_bytes_ + kLineBytes - 1) /
                              kLineBytes);
    };
    if (shape_.dtype == DType::kI8) {
      const int64_t offset = chunk * int64_t{sizeof(Bf16)};
      for (int64_t byte = 0; byte < kKeyChunk * int64_t{sizeof(Bf16)}; byte += kLineBytes) {
        __builtin_prefetch(part.data + layout_.k_scales(part.kv_head) + offset + byte);
        __builtin_prefetch(part.data + layout_.v_scales(part.kv_head) + offset + byte);
      }
    }
    return {{static_cast<const char*>(keys.k), static_cast<const char*>(keys.v)},
            {lines(layout_.k_dim()), lines(layout_.v_stride())}};
  }

  // Widens a chunk of an 8-bit page into `wide`, then attends it.
  void AttendNarrow(const AttentionBlock& block, const AttentionKeys& keys, const PagePart& part,
                    int chunk, float* wide) const {
    const auto scales = [&](int64_t offset) {
      return reinterpret_cast<const Bf16*>(part.data + offset) + chunk;
    };
    NarrowKeys narrow;
    narrow.k = keys.k;
    narrow.v = keys.v;
    narrow.k_scales = scales(layout_.k_scales(part.kv_head));
    narrow.v_scales = scales(layout_.v_scales(part.kv_head));
    narrow.begin = 0;
    narrow.end = static_cast<int>(RoundUp(keys.end, kPanel));
    narrow.ahead = keys.ahead;
    narrow.k_dim = static_cast<int>(layout_.k_dim());
    narrow.v_stride = block.v_stride;
    narrow.wide_k = wide;
    const size_t wide_bytes = layout_.paired() ? sizeof(Bf16) : sizeof(float);
    narrow.wide_v = reinterpret_cast<std::byte*>(wide) + kKeyChunk * layout_.k_dim() * wide_bytes;
    AttentionKeys widened = keys;
    widened.slots = narrow.end;
    const int index = NarrowIndex(shape_.dtype);
    if (layout_.paired()) {
      const PairedAttention& paired = *isa_.paired;
      if (shape_.dtype == DType::kI8) {
        widened.k_scales = narrow.k_scales;
        widened.v_scales = narrow.v_scales;
      }
      paired.widen_keys[index](narrow);
      if (block.position_count * block.group <= paired.staged_rows) {
        narrow.wide_v = wide;
        widened.narrow = &narrow;
        widened.widen_values = paired.widen_values[index];
      } else {
        paired.widen_values[index](narrow);
      }
    } else {
      isa_.widen_keys[index](narrow);
    }
    widened.k = narrow.wide_k;
    widened.v = narrow.wide_v;
    AttendOne(block, widened);
  }

  // One chunk in the form that the inner kernels take.
  void AttendOne(const AttentionBlock& block, const AttentionKeys& keys) const {
    if (layout_.paired()) {
      isa_.paired->keys(block, &keys, 1);
    } else {
      keys_(block, keys);
    }
  }

  const SimdKernels& isa_;
  const KvPageShape& shape_;
  const PageLayout layout_;
  const bool narrow_;  // 8-bit pages
  const int64_t element_bytes_;
  void (*const begin_)(const AttentionBlock&);
  void (*const keys_)(const AttentionBlock&, const AttentionKeys&);  // unless pages are paired
  void (*const finish_)(const AttentionBlock&);
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_ATTENTION_CHUNKS_H_
