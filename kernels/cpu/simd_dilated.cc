// Dilated attention of the SIMD path. A branch of rate r leaves a query head one residue modulo r,
// of rows and of keys: counted anew, that is a causal problem of one head over 1/r of the keys.
// Keys are copied into pages that hold one kv head and one residue, attended there by Attention,
// and the states are merged: shard by shard in the tree of kernels/ops/shards.h, inside a shard
// branch by branch and chunk by chunk of absolute positions, so that a row's bits depend on its own
// query, position and keys.
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/page_layout.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/leaf_stack.h"

namespace annulus::cpu {
namespace {

// Positions of one shard whose keys are copied at a time, about.
constexpr int64_t kChunkTokens = 4096;

int64_t StateFloats(int64_t rows, int heads, int v_dim) {
  return RoundUp(rows * heads * (v_dim + 1), kPanel);
}

AttentionState StateAt(float* floats, int64_t rows, int heads, int v_dim) {
  return {floats, floats + rows * heads * v_dim, rows, heads, v_dim};
}

// Rows and pages of one item in one segment.
struct Segment {
  int64_t first_row = 0;
  int64_t rows = 0;
  std::span<const KvPageView> pages;
};

// What one residue modulo the rate keeps of a segment.
struct Residue {
  int value = 0;
  std::vector<int> heads;     // query heads
  std::vector<int> kv_heads;  // that these read, ascending
  std::vector<int64_t> rows;  // of the item

  // Of the chunk at hand.
  float* queries = nullptr;  // [heads][rows][k_dim]
  int64_t keys = 0;
  int64_t first_seeing = 0;           // rows before it see no key
  std::vector<int32_t> positions;     // [rows] the last key seen, counted from 0
  std::vector<int64_t> keys_before;   // [page of the chunk]
  std::vector<std::byte*> pages;      // [kv_heads][pages of each]
  std::vector<KvPageView> views;      // the same
  std::vector<AttentionState> state;  // [heads], rows from first_seeing on

  int64_t pages_of_each(int page_tokens) const { return CeilDiv(keys, page_tokens); }
};

// First slot of a page that holds a position of residue `value`, and how many slots do.
struct Slots {
  int first;
  int64_t count;
};
Slots SlotsOf(const KvPageView& page, int rate, int value) {
  const int first = (value - page.first_position % rate + rate) % rate;
  return {first, first < page.tokens ? CeilDiv(page.tokens - first, rate) : 0};
}

class DilatedRun {
 public:
  DilatedRun(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params,
             const AttentionItem& item)
      : isa_(isa),
        stream_(stream),
        params_(params),
        item_(item),
        shape_(params.shape),
        group_(params.heads / params.shape.kv_heads),
        layout_(isa, shape_),
        kept_shape_{shape_.page_tokens, 1, shape_.k_dim, shape_.v_dim, shape_.dtype},
        kept_layout_(isa, kept_shape_) {}

  // The shards that the pages belong to, each in a state of its own.
  absl::Status Run() {
    const int64_t rows = item_.positions.size();
    std::vector<std::vector<KvPageView>> leaves(params_.shards);
    for (const KvPageView& page : item_.pages) {
      const int leaf = LeafOfPage(page.first_position / shape_.page_tokens, params_.shards);
      if (!Attends(item_, leaf)) continue;
      leaves[leaf].push_back({page.data + item_.page_offset, page.first_position, page.tokens});
    }
    const int64_t floats = StateFloats(rows, params_.heads, shape_.v_dim);
    const int64_t used = params_.shards - std::count_if(leaves.begin(), leaves.end(),
                                                        [](auto& l) { return l.empty(); });
    const int64_t places = std::min<int64_t>(used, LeafStack::Places(params_.shards));
    ANNULUS_ASSIGN_OR_RETURN(
        std::byte * memory,
        stream_.ResultScratch(std::max<int64_t>(1, places) * floats * sizeof(float)));
    const auto state = [&](int place) {
      return StateAt(reinterpret_cast<float*>(memory) + place * floats, rows, params_.heads,
                     shape_.v_dim);
    };
    absl::Status status;
    const auto merge = [&](int into, int from) {
      status.Update(MergeState(isa_, stream_, {state(into), state(from)}));
    };
    LeafStack tree;
    for (int leaf = 0; leaf < params_.shards; ++leaf) {
      if (leaves[leaf].empty()) continue;
      result_ = state(tree.Push(leaf, merge));
      ANNULUS_RETURN_IF_ERROR(AttendBranches(leaves[leaf]));
    }
    const bool any = tree.Finish(merge);
    ANNULUS_RETURN_IF_ERROR(status);
    if (!item_.merges) Clear(item_.state);
    return any ? MergeState(isa_, stream_, {item_.state, state(0)}) : absl::OkStatus();
  }

 private:
  void Clear(const AttentionState& state) const {
    std::fill_n(state.o, state.rows * state.heads * state.v_dim, 0.0f);
    std::fill_n(state.lse, state.rows * state.heads, -std::numeric_limits<float>::infinity());
  }

  // `pages`: of one shard, ascending.
  absl::Status AttendBranches(std::span<const KvPageView> pages) {
    const int64_t rows = item_.positions.size();
    Clear(result_);
    for (const DilatedBranch& branch : item_.branches) {
      for (int64_t row = 0; row < rows;) {
        const Segment segment = SegmentOf(branch, row, pages);
        row = segment.first_row + segment.rows;
        if (segment.pages.empty()) continue;
        ANNULUS_RETURN_IF_ERROR(branch.rate == 1 ? AttendAll(segment)
                                                 : AttendResidues(segment, branch.rate));
      }
    }
    return absl::OkStatus();
  }

  Segment SegmentOf(const DilatedBranch& branch, int64_t first_row,
                    std::span<const KvPageView> pages) const {
    const int64_t begin = item_.positions[first_row] / branch.segment * int64_t{branch.segment};
    const auto rows_end = std::lower_bound(item_.positions.begin() + first_row,
                                           item_.positions.end(), begin + branch.segment);
    const int64_t last = *(rows_end - 1);
    const auto before = [](const KvPageView& page, int64_t position) {
      return page.first_position < position;
    };
    const auto pages_begin = std::lower_bound(pages.begin(), pages.end(), begin, before);
    const auto pages_end = std::lower_bound(pages_begin, pages.end(), last + 1, before);
    return {first_row, rows_end - item_.positions.begin() - first_row, {pages_begin, pages_end}};
  }

  // `shards`: 1 for kept keys, which are counted anew.
  absl::Status Attend(const KvPageShape& shape, int heads, int shards,
                      std::span<const AttentionItem> items) {
    AttentionParams params;
    params.shape = shape;
    params.shards = shards;
    params.heads = heads;
    params.scale = params_.scale;
    params.soft_cap = params_.soft_cap;
    params.items = items;
    return Attention(isa_, stream_, params);
  }

  // Rate 1: every head keeps everything.
  absl::Status AttendAll(const Segment& segment) {
    ANNULUS_ASSIGN_OR_RETURN(
        std::byte * memory,
        stream_.OuterScratch(StateFloats(segment.rows, params_.heads, shape_.v_dim) *
                             sizeof(float)));
    AttentionItem item;
    item.query = item_.query.row_range(segment.first_row, segment.rows);
    item.positions = item_.positions.subspan(segment.first_row, segment.rows);
    item.pages = segment.pages;
    item.state =
        StateAt(reinterpret_cast<float*>(memory), segment.rows, params_.heads, shape_.v_dim);
    ANNULUS_RETURN_IF_ERROR(Attend(shape_, params_.heads, params_.shards, {&item, 1}));
    stream_.ParallelFor(segment.rows, [&](int64_t r, int) {
      for (int h = 0; h < params_.heads; ++h) {
        const int64_t from = r * params_.heads + h;
        MergeRow(segment.first_row + r, h, item.state.o + from * shape_.v_dim,
                 item.state.lse[from]);
      }
    });
    return absl::OkStatus();
  }

  void MergeRow(int64_t row, int head, const float* o, float lse) const {
    const int64_t index = row * params_.heads + head;
    isa_.merge_row(result_.o + index * shape_.v_dim, result_.lse + index, o, lse, shape_.v_dim);
  }

  absl::Status AttendResidues(const Segment& segment, int rate) {
    std::vector<Residue> residues = ResiduesOf(segment, rate);
    if (residues.empty()) return absl::OkStatus();
    const int64_t chunk_tokens = kChunkTokens * params_.shards;
    for (size_t begin = 0; begin < segment.pages.size();) {
      const int64_t chunk = segment.pages[begin].first_position / chunk_tokens;
      size_t end = begin + 1;
      while (end < segment.pages.size() &&
             segment.pages[end].first_position / chunk_tokens == chunk) {
        ++end;
      }
      ANNULUS_RETURN_IF_ERROR(
          AttendChunk(segment.pages.subspan(begin, end - begin), rate, residues));
      begin = end;
    }
    return absl::OkStatus();
  }

  // The residues that have a head and a row.
  std::vector<Residue> ResiduesOf(const Segment& segment, int rate) const {
    std::vector<Residue> residues(std::min(rate, params_.heads));
    for (int h = 0; h < params_.heads; ++h) {
      Residue& residue = residues[h % rate];
      residue.value = h % rate;
      residue.heads.push_back(h);
      if (residue.kv_heads.empty() || residue.kv_heads.back() != h / group_) {
        residue.kv_heads.push_back(h / group_);
      }
    }
    for (int64_t r = segment.first_row; r < segment.first_row + segment.rows; ++r) {
      const size_t value = item_.positions[r] % rate;
      if (value < residues.size()) residues[value].rows.push_back(r);
    }
    std::erase_if(residues, [](const Residue& residue) { return residue.rows.empty(); });
    return residues;
  }

  // Which keys of `pages` the residue keeps, and how many of them each row sees.
  static void CountKeys(std::span<const KvPageView> pages, int rate,
                        std::span<const int32_t> positions, Residue& residue) {
    residue.keys = 0;
    residue.keys_before.clear();
    residue.positions.assign(residue.rows.size(), -1);
    size_t row = 0;
    for (const KvPageView& page : pages) {
      const Slots slots = SlotsOf(page, rate, residue.value);
      const int64_t first = int64_t{page.first_position} + slots.first;
      for (; row < residue.rows.size(); ++row) {
        const int64_t position = positions[residue.rows[row]];
        if (position >= first + slots.count * rate) break;
        const int64_t here = position < first ? 0 : (position - first) / rate + 1;
        residue.positions[row] = static_cast<int32_t>(residue.keys + here) - 1;
      }
      residue.keys_before.push_back(residue.keys);
      residue.keys += slots.count;
    }
    for (; row < residue.rows.size(); ++row) {
      residue.positions[row] = static_cast<int32_t>(residue.keys) - 1;
    }
    residue.first_seeing = std::lower_bound(residue.positions.begin(), residue.positions.end(), 0) -
                           residue.positions.begin();
  }

  absl::Status AttendChunk(std::span<const KvPageView> pages, int rate,
                           std::vector<Residue>& residues) {
    for (Residue& residue : residues) CountKeys(pages, rate, item_.positions, residue);
    ANNULUS_RETURN_IF_ERROR(TakeMemory(residues));
    CopyKeys(pages, rate, residues);
    CopyQueries(residues);
    std::vector<AttentionItem> items;
    for (Residue& residue : residues) AddItems(residue, items);
    ANNULUS_RETURN_IF_ERROR(Attend(kept_shape_, 1, 1, items));
    ForEachHead(residues, [&](const Residue& residue, size_t i) {
      const AttentionState& state = residue.state[i];
      for (int64_t r = 0; r < state.rows; ++r) {
        MergeRow(residue.rows[residue.first_seeing + r], residue.heads[i],
                 state.o + r * shape_.v_dim, state.lse[r]);
      }
    });
    return absl::OkStatus();
  }

  // Calls body(residue, index of one of its heads) on all threads.
  void ForEachHead(const std::vector<Residue>& residues,
                   absl::FunctionRef<void(const Residue&, size_t)> body) {
    std::vector<std::pair<const Residue*, size_t>> tasks;
    for (const Residue& residue : residues) {
      for (size_t i = 0; i < residue.heads.size(); ++i) tasks.emplace_back(&residue, i);
    }
    stream_.ParallelFor(tasks.size(),
                        [&](int64_t t, int) { body(*tasks[t].first, tasks[t].second); });
  }

  // Lays out the chunk's pages, queries and states in the workspace.
  absl::Status TakeMemory(std::vector<Residue>& residues) {
    const size_t page_bytes = kept_layout_.bytes();
    size_t bytes = 0;
    const auto take = [&](size_t more) {
      const size_t at = bytes;
      bytes += RoundUp(static_cast<int64_t>(more), 64);
      return at;
    };
    struct Places {
      size_t pages, queries, states;
    };
    std::vector<Places> places;
    for (const Residue& residue : residues) {
      const int64_t pages = residue.pages_of_each(shape_.page_tokens) * residue.kv_heads.size();
      const int64_t rows = residue.rows.size() * residue.heads.size();
      places.push_back({take(pages * page_bytes), take(rows * shape_.k_dim * sizeof(float)),
                        take(StateFloats(rows, 1, shape_.v_dim) * sizeof(float))});
    }
    ANNULUS_ASSIGN_OR_RETURN(std::byte * memory, stream_.OuterScratch(bytes));
    for (size_t i = 0; i < residues.size(); ++i) {
      Residue& residue = residues[i];
      residue.pages.clear();
      const int64_t pages = residue.pages_of_each(shape_.page_tokens) * residue.kv_heads.size();
      for (int64_t p = 0; p < pages; ++p) {
        residue.pages.push_back(memory + places[i].pages + p * page_bytes);
      }
      residue.queries = reinterpret_cast<float*>(memory + places[i].queries);
      residue.state.clear();
      const int64_t rows = residue.rows.size() - residue.first_seeing;
      float* const states = reinterpret_cast<float*>(memory + places[i].states);
      for (size_t h = 0; h < residue.heads.size(); ++h) {
        residue.state.push_back(
            StateAt(states + h * residue.rows.size() * (shape_.v_dim + 1), rows, 1, shape_.v_dim));
      }
    }
    return absl::OkStatus();
  }

  void CopyKeys(std::span<const KvPageView> pages, int rate, const std::vector<Residue>& residues) {
    stream_.ParallelFor(pages.size(), [&](int64_t p, int) {
      for (const Residue& residue : residues) {
        CopyKept(pages[p], rate, residue, residue.keys_before[p]);
      }
    });
  }

  // A page's kept slots become slots from `first_key` on of the residue's pages.
  void CopyKept(const KvPageView& page, int rate, const Residue& residue, int64_t first_key) const {
    const Slots slots = SlotsOf(page, rate, residue.value);
    const int64_t each = residue.pages_of_each(shape_.page_tokens);
    for (size_t i = 0; i < residue.kv_heads.size(); ++i) {
      for (int64_t n = 0; n < slots.count; ++n) {
        const int64_t key = first_key + n;
        const int slot = slots.first + static_cast<int>(n) * rate;
        CopySlot(shape_.dtype, {layout_, residue.kv_heads[i], slot}, page.data,
                 {kept_layout_, 0, static_cast<int>(key % shape_.page_tokens)},
                 residue.pages[i * each + key / shape_.page_tokens]);
      }
    }
  }

  void CopyQueries(const std::vector<Residue>& residues) {
    ForEachHead(residues, [&](const Residue& residue, size_t i) {
      float* to = residue.queries + i * residue.rows.size() * shape_.k_dim;
      for (const int64_t row : residue.rows) {
        to = std::copy_n(item_.query.row(row) + int64_t{residue.heads[i]} * shape_.k_dim,
                         shape_.k_dim, to);
      }
    });
  }

  void AddItems(Residue& residue, std::vector<AttentionItem>& items) const {
    const int64_t each = residue.pages_of_each(shape_.page_tokens);
    const int64_t rows = residue.rows.size();
    residue.views.clear();
    for (size_t p = 0; p < residue.pages.size(); ++p) {
      const int64_t first = p % each * shape_.page_tokens;
      residue.views.push_back(
          {residue.pages[p], static_cast<int32_t>(first),
           static_cast<int32_t>(std::min<int64_t>(shape_.page_tokens, residue.keys - first))});
    }
    for (size_t i = 0; i < residue.heads.size(); ++i) {
      const auto kv_head = std::lower_bound(residue.kv_heads.begin(), residue.kv_heads.end(),
                                            residue.heads[i] / group_);
      AttentionItem item;
      item.query = ConstMatrixView{residue.queries + i * rows * shape_.k_dim, rows, shape_.k_dim,
                                   shape_.k_dim}
                       .row_range(residue.first_seeing, rows - residue.first_seeing);
      item.positions = std::span(residue.positions).subspan(residue.first_seeing);
      item.pages =
          std::span(residue.views).subspan((kv_head - residue.kv_heads.begin()) * each, each);
      item.state = residue.state[i];
      items.push_back(item);
    }
  }

  const SimdKernels& isa_;
  CpuStream& stream_;
  const AttentionParams& params_;
  const AttentionItem& item_;
  const KvPageShape& shape_;
  const int group_;
  const PageLayout layout_;
  const KvPageShape kept_shape_;
  const PageLayout kept_layout_;
  AttentionState result_;  // of the shard at hand
};

}  // namespace

absl::Status DilatedAttention(const SimdKernels& isa, CpuStream& stream,
                              const AttentionParams& params, const AttentionItem& item) {
  return DilatedRun(isa, stream, params, item).Run();
}

}  // namespace annulus::cpu
