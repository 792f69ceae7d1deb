#ifndef ANNULUS_KERNELS_CPU_SIMD_DILATED_LAYOUT_H_
#define ANNULUS_KERNELS_CPU_SIMD_DILATED_LAYOUT_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/attention.h"
#include "kernels/ops/shards.h"

// What the layers of a step share of an item with branches: see simd/dilated.cc.

namespace annulus::cpu {

inline int64_t StateFloats(int64_t rows, int heads, int v_dim) {
  return RoundUp(rows * heads * (v_dim + 1), kPanel);
}

inline AttentionState StateAt(float* floats, int64_t rows, int heads, int v_dim) {
  return {floats, floats + rows * heads * v_dim, rows, heads, v_dim};
}

// First slot of a page that holds a position of residue `value`, and how many slots do.
struct KeptSlots {
  int first;
  int64_t count;
};
inline KeptSlots KeptSlotsOf(const KvPageView& page, int rate, int value) {
  const int first = (value - page.first_position % rate + rate) % rate;
  return {first, first < page.tokens ? CeilDiv(page.tokens - first, rate) : 0};
}

// What one residue modulo the rate keeps of a segment.
struct DilatedResidue {
  int value = 0;
  std::vector<int> heads;     // query heads
  std::vector<int> kv_heads;  // that these read, ascending
  std::vector<int64_t> rows;  // of the item
};

// The keys that a residue keeps of a chunk. A layer copies them, counted anew, into pages of one kv
// head, and its queries beside them.
struct KeptKeys {
  int64_t keys = 0;
  int64_t first_seeing = 0;          // rows before it see no key
  std::vector<int32_t> positions;    // [rows] the last key seen, counted from 0
  std::vector<int64_t> keys_before;  // [page of the chunk]
  int64_t pages_of_each = 0;         // of a kv head
  std::vector<KvPageView> pages;     // [kv_heads][pages_of_each]
  // Bytes from the start of the workspace.
  size_t pages_at = 0;
  size_t queries_at = 0;
  size_t states_at = 0;
  // Where those are: see DilatedLayout::Place.
  std::byte* page_data = nullptr;
  float* queries = nullptr;  // [heads][rows][k_dim]
};

// What one call of attention attends.
struct DilatedChunk {
  std::span<const KvPageView> pages;
  std::vector<KeptKeys> kept;               // [residue of the segment]
  std::vector<AttentionItem> items;         // [head of the segment]; rate 1: one item for all heads
  std::unique_ptr<AttentionLayout> layout;  // of that call
};

// The rows of an item in one segment of a branch, and the pages of one shard there.
struct DilatedSegment {
  struct Head {
    size_t residue;
    size_t index;  // in DilatedResidue::heads
  };

  int leaf = 0;
  int rate = 1;
  int64_t first_row = 0;
  int64_t rows = 0;
  std::span<const KvPageView> pages;
  std::vector<DilatedResidue> residues;  // that have a head and a row; rate 1: none
  std::vector<Head> heads;               // of all residues
  std::vector<DilatedChunk> chunks;      // ascending
};

// The segments of an item that hold rows and keys. What they attend depends on positions alone, so
// a layer only copies and computes.
class DilatedLayout final : public AttentionLayout {
 public:
  // `item` and its arrays must outlive this object.
  DilatedLayout(const SimdKernels& isa, const AttentionParams& params, const AttentionItem& item)
      : item_(item),
        shape_(params.shape),
        heads_(params.heads),
        chunk_tokens_(kChunkTokens * params.shards),
        page_bytes_(PageLayout(isa, KeptShape(shape_)).bytes()),
        pages_(params.shards) {
    for (const KvPageView& page : item.pages) {
      const int leaf = LeafOfPage(page.first_position / shape_.page_tokens, params.shards);
      if (Attends(item, leaf)) pages_[leaf].push_back(page);
    }
    for (int leaf = 0; leaf < params.shards; ++leaf) {
      AddSegments(leaf);
      if (!segments_.empty() && segments_.back().leaf == leaf) ++leaves_;
    }
  }

  // Pages of kept keys.
  static KvPageShape KeptShape(const KvPageShape& shape) {
    return {shape.page_tokens, 1, shape.k_dim, shape.v_dim, shape.dtype};
  }

  // Leaf by leaf, branch by branch, with ascending rows: the order in which states merge.
  std::span<DilatedSegment> segments() { return segments_; }
  int leaves() const { return leaves_; }  // that have a segment
  // Bytes of workspace that any chunk needs.
  size_t bytes() const { return bytes_; }
  size_t page_bytes() const { return page_bytes_; }  // of kept keys

  // Tells every chunk that its workspace begins at `memory`: bytes(), aligned to 64. The layouts of
  // chunks stay valid: items that share kept pages still do.
  void Place(std::byte* memory) {
    if (std::exchange(memory_, memory) == memory) return;
    for (DilatedSegment& segment : segments_) {
      for (DilatedChunk& chunk : segment.chunks) PlaceChunk(segment, chunk);
    }
  }

 private:
  // Positions of one shard whose keys are copied at a time, about.
  static constexpr int64_t kChunkTokens = 4096;

  void AddSegments(int leaf) {
    const int64_t rows = item_.positions.size();
    for (const DilatedBranch& branch : item_.branches) {
      for (int64_t row = 0; row < rows;) {
        DilatedSegment segment = SegmentOf(branch, row, leaf);
        row = segment.first_row + segment.rows;
        if (segment.pages.empty()) continue;
        if (branch.rate == 1) {
          AddWhole(segment);
        } else {
          AddChunks(segment);
        }
        if (!segment.chunks.empty()) segments_.push_back(std::move(segment));
      }
    }
  }

  DilatedSegment SegmentOf(const DilatedBranch& branch, int64_t first_row, int leaf) const {
    const int64_t begin = item_.positions[first_row] / branch.segment * int64_t{branch.segment};
    const auto rows_end = std::lower_bound(item_.positions.begin() + first_row,
                                           item_.positions.end(), begin + branch.segment);
    const int64_t last = *(rows_end - 1);
    const auto before = [](const KvPageView& page, int64_t position) {
      return page.first_position < position;
    };
    const std::vector<KvPageView>& pages = pages_[leaf];
    const auto pages_begin = std::lower_bound(pages.begin(), pages.end(), begin, before);
    const auto pages_end = std::lower_bound(pages_begin, pages.end(), last + 1, before);
    DilatedSegment segment;
    segment.leaf = leaf;
    segment.rate = branch.rate;
    segment.first_row = first_row;
    segment.rows = rows_end - item_.positions.begin() - first_row;
    segment.pages = std::span(pages_begin, pages_end);
    return segment;
  }

  // Rate 1: every head keeps everything.
  void AddWhole(DilatedSegment& segment) {
    AttentionItem& item = segment.chunks.emplace_back().items.emplace_back();
    item.positions = item_.positions.subspan(segment.first_row, segment.rows);
    item.pages = segment.pages;
    const int64_t floats = StateFloats(segment.rows, heads_, shape_.v_dim);
    bytes_ = std::max(bytes_, floats * sizeof(float));
  }

  void AddChunks(DilatedSegment& segment) {
    AddResidues(segment);
    if (segment.residues.empty()) return;
    const std::span<const KvPageView> pages = segment.pages;
    for (size_t begin = 0; begin < pages.size();) {
      const int64_t chunk = pages[begin].first_position / chunk_tokens_;
      size_t end = begin + 1;
      while (end < pages.size() && pages[end].first_position / chunk_tokens_ == chunk) ++end;
      AddChunk(pages.subspan(begin, end - begin), segment);
      begin = end;
    }
  }

  void AddResidues(DilatedSegment& segment) const {
    const int group = heads_ / shape_.kv_heads;
    std::vector<DilatedResidue>& residues = segment.residues;
    residues.resize(std::min(segment.rate, heads_));
    for (int h = 0; h < heads_; ++h) {
      DilatedResidue& residue = residues[h % segment.rate];
      residue.value = h % segment.rate;
      residue.heads.push_back(h);
      if (residue.kv_heads.empty() || residue.kv_heads.back() != h / group) {
        residue.kv_heads.push_back(h / group);
      }
    }
    for (int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
      const size_t value = item_.positions[r] % segment.rate;
      if (value < residues.size()) residues[value].rows.push_back(r);
    }
    std::erase_if(residues, [](const DilatedResidue& residue) { return residue.rows.empty(); });
    for (size_t i = 0; i < residues.size(); ++i) {
      for (size_t h = 0; h < residues[i].heads.size(); ++h) segment.heads.push_back({i, h});
    }
  }

  void AddChunk(std::span<const KvPageView> pages, DilatedSegment& segment) {
    DilatedChunk& chunk = segment.chunks.emplace_back();
    chunk.pages = pages;
    size_t bytes = 0;
    for (const DilatedResidue& residue : segment.residues) {
      KeptKeys& kept = chunk.kept.emplace_back();
      CountKeys(pages, segment.rate, residue, kept);
      ListPages(residue, kept);
      TakeBytes(residue, kept, bytes);
    }
    bytes_ = std::max(bytes_, bytes);
    for (const DilatedSegment::Head& head : segment.heads) {
      const DilatedResidue& residue = segment.residues[head.residue];
      const KeptKeys& kept = chunk.kept[head.residue];
      const int group = heads_ / shape_.kv_heads;
      const auto kv_head = std::lower_bound(residue.kv_heads.begin(), residue.kv_heads.end(),
                                            residue.heads[head.index] / group);
      const int64_t each = kept.pages_of_each;
      AttentionItem& item = chunk.items.emplace_back();
      item.positions = std::span(kept.positions).subspan(kept.first_seeing);
      item.pages = std::span(kept.pages).subspan((kv_head - residue.kv_heads.begin()) * each, each);
    }
  }

  // Which keys of `pages` the residue keeps, and how many of them each row sees.
  void CountKeys(std::span<const KvPageView> pages, int rate, const DilatedResidue& residue,
                 KeptKeys& kept) const {
    kept.positions.assign(residue.rows.size(), -1);
    size_t row = 0;
    for (const KvPageView& page : pages) {
      const KeptSlots slots = KeptSlotsOf(page, rate, residue.value);
      const int64_t first = int64_t{page.first_position} + slots.first;
      for (; row < residue.rows.size(); ++row) {
        const int64_t position = item_.positions[residue.rows[row]];
        if (position >= first + slots.count * rate) break;
        const int64_t here = position < first ? 0 : (position - first) / rate + 1;
        kept.positions[row] = static_cast<int32_t>(kept.keys + here) - 1;
      }
      kept.keys_before.push_back(kept.keys);
      kept.keys += slots.count;
    }
    for (; row < residue.rows.size(); ++row) {
      kept.positions[row] = static_cast<int32_t>(kept.keys) - 1;
    }
    kept.first_seeing =
        std::lower_bound(kept.positions.begin(), kept.positions.end(), 0) - kept.positions.begin();
  }

  void ListPages(const DilatedResidue& residue, KeptKeys& kept) const {
    kept.pages_of_each = CeilDiv(kept.keys, shape_.page_tokens);
    for (size_t h = 0; h < residue.kv_heads.size(); ++h) {
      for (int64_t first = 0; first < kept.keys; first += shape_.page_tokens) {
        const int64_t tokens = std::min<int64_t>(shape_.page_tokens, kept.keys - first);
        kept.pages.push_back({nullptr, static_cast<int32_t>(first), static_cast<int32_t>(tokens)});
      }
    }
  }

  // Takes the workspace of the residue from `bytes` on.
  void TakeBytes(const DilatedResidue& residue, KeptKeys& kept, size_t& bytes) const {
    const auto take = [&](size_t more) {
      const size_t at = bytes;
      bytes += RoundUp(static_cast<int64_t>(more), 64);
      return at;
    };
    const int64_t rows = residue.rows.size() * residue.heads.size();
    kept.pages_at = take(kept.pages.size() * page_bytes_);
    kept.queries_at = take(rows * shape_.k_dim * sizeof(float));
    kept.states_at = take(StateFloats(rows, 1, shape_.v_dim) * sizeof(float));
  }

  void PlaceChunk(const DilatedSegment& segment, DilatedChunk& chunk) const {
    if (segment.rate == 1) {
      chunk.items.front().state =
          StateAt(reinterpret_cast<float*>(memory_), segment.rows, heads_, shape_.v_dim);
      return;
    }
    for (KeptKeys& kept : chunk.kept) {
      kept.page_data = memory_ + kept.pages_at;
      kept.queries = reinterpret_cast<float*>(memory_ + kept.queries_at);
      for (size_t p = 0; p < kept.pages.size(); ++p) {
        kept.pages[p].data = kept.page_data + p * page_bytes_;
      }
    }
    for (size_t i = 0; i < segment.heads.size(); ++i) {
      const DilatedSegment::Head& head = segment.heads[i];
      const KeptKeys& kept = chunk.kept[head.residue];
      const int64_t all = segment.residues[head.residue].rows.size();
      const int64_t rows = all - kept.first_seeing;
      const int64_t first = static_cast<int64_t>(head.index) * all;
      float* const states = reinterpret_cast<float*>(memory_ + kept.states_at);
      AttentionItem& item = chunk.items[i];
      item.query = {kept.queries + (first + kept.first_seeing) * shape_.k_dim, rows, shape_.k_dim,
                    shape_.k_dim};
      item.state = StateAt(states + first * (shape_.v_dim + 1), rows, 1, shape_.v_dim);
    }
  }

  const AttentionItem& item_;
  const KvPageShape shape_;
  const int heads_;
  const int64_t chunk_tokens_;
  const size_t page_bytes_;
  std::vector<std::vector<KvPageView>> pages_;  // [leaf]
  std::vector<DilatedSegment> segments_;
  int leaves_ = 0;
  size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_DILATED_LAYOUT_H_
