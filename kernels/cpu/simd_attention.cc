// Attention of the SIMD path: splits the work into units (item, kv head, query block) and those
// into pieces (a shard's pages in a span), lets the inner kernels attend them, and merges the
// pieces in the tree of kernels/ops/shards.h.
#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/attention_chunks.h"
#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/flush_subnormals.h"
#include "kernels/cpu/page_layout.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/leaf_stack.h"

namespace annulus::cpu {
namespace {

// Rows (positions x query heads of a group) that share each K/V tile. Enough that reading pages
// costs little beside computing; o and the page's tiles stay in the second-level cache. The paired
// kernels compute faster, so theirs are larger; more positions would only make the work uneven.
constexpr int kBlockRows = 96;
constexpr int kPairedBlockRows = 384;
constexpr int kPairedBlockPositions = 128;
// Blocks of so few rows wait for memory: the next chunk is fetched while one is attended. So do
// those of any size whose pages are chosen, as the processor cannot foresee where the next one is.
constexpr int kFetchRows = 32;
constexpr float kEmptyLse = -std::numeric_limits<float>::infinity();
// Pieces that are computed side by side when there are fewer units than threads need.
constexpr int64_t kWavePieces = 64;
constexpr size_t kWaveBytes = size_t{8} << 20;

class AttentionRun {
 public:
  AttentionRun(const SimdKernels& isa, const AttentionParams& params)
      : isa_(isa),
        params_(params),
        chunks_(isa, params.shape),
        layout_(chunks_.layout()),
        group_(params.heads / params.shape.kv_heads),
        units_(params, BlockPositions()) {
    for (const Unit& unit : units_.all()) {
      most_positions_ = std::max(most_positions_, unit.positions);
      if (HasFewRows(unit)) few_positions_ = std::max(few_positions_, unit.positions);
    }
  }

  absl::Status Run(CpuStream& stream) {
    const int64_t units = units_.size();
    if (units == 0) return absl::OkStatus();
    // A unit is one thread's: pieces are shared out better, and read memory in a worse order.
    const bool few = units < 4 * stream.threads() && units % stream.threads() != 0;
    return few ? RunPieces(stream) : RunUnits(stream);
  }

 private:
  // A piece and the index of its unit.
  struct Task {
    int64_t unit;
    Piece piece;
  };

  // Calls visit(piece) for every piece of which some row may see a key: leaves in order, spans of a
  // leaf ascending.
  template <class Visit>
  void ForEachPiece(const Unit& unit, const Visit& visit) const {
    const int64_t span_tokens = int64_t{kAttentionSpan} * params_.shards;
    const AttentionItem& item = *unit.item;
    const int end_leaf = item.leaves > 0 ? item.first_leaf + item.leaves : params_.shards;
    for (int leaf = item.first_leaf; leaf < end_leaf; ++leaf) {
      const int64_t end = unit.pages.end_of(leaf);
      int64_t page = unit.pages.Find(unit.pages.begin_of(leaf), end, unit.first_key);
      while (page < end && unit.pages[page].first_position < unit.end_key) {
        const int64_t span = unit.pages[page].first_position / span_tokens;
        const int64_t span_end = std::min(unit.end_key, (span + 1) * span_tokens);
        Piece piece{leaf, page, page + 1};
        while (piece.end < end && unit.pages[piece.end].first_position < span_end) ++piece.end;
        visit(piece);
        page = piece.end;
      }
    }
  }

  int BlockPositions() const {
    return std::max(1, layout_.paired() ? std::min(kPairedBlockRows / group_, kPairedBlockPositions)
                                        : kBlockRows / group_);
  }

  int64_t StateRows(int positions) const {
    return RoundUp(int64_t{positions} * group_, layout_.paired() ? isa_.paired->row_multiple : 1);
  }

  // Floats of a state of so many positions: o, then lse.
  int64_t StateFloats(int positions) const {
    return RoundUp(StateRows(positions) * (layout_.v_stride() + 1), kPanel);
  }

  // Floats of what a thread keeps while it attends: sums, maximum and paired queries.
  int64_t RunningFloats(int positions) const {
    const int64_t query = layout_.paired() ? layout_.k_dim() / 2 + 1 : 0;
    return RoundUp(StateRows(positions) * (kPanel + 1 + query), kPanel);
  }

  // `state`: StateFloats; `running`: RunningFloats.
  AttentionBlock Block(const Unit& unit, float* state, float* running) const {
    const int64_t rows = StateRows(unit.positions);
    AttentionBlock block;
    block.query =
        unit.item->query.row(unit.row) + int64_t{unit.kv_head} * group_ * params_.shape.k_dim;
    block.query_stride = unit.item->query.stride;
    block.positions = unit.item->positions.data() + unit.row;
    block.position_count = unit.positions;
    block.group = group_;
    block.k_dim = params_.shape.k_dim;
    block.k_pairs = layout_.paired() ? static_cast<int>(layout_.k_dim() / 2) : 0;
    block.v_stride = static_cast<int>(layout_.v_stride());
    block.scale = params_.scale;
    block.soft_cap = params_.soft_cap;
    block.window = params_.window;
    block.o = state;
    block.lse = LseOf(unit, state);
    block.sums = running;
    block.maximum = block.sums + rows * kPanel;
    block.queries_ready = false;
    block.query_pairs = reinterpret_cast<uint32_t*>(block.maximum + rows);
    block.row_positions = reinterpret_cast<int32_t*>(block.query_pairs + rows * block.k_pairs);
    return block;
  }

  template <class Float>
  Float* LseOf(const Unit& unit, Float* state) const {
    return state + StateRows(unit.positions) * layout_.v_stride();
  }

  // The slots of a page that some row of the unit may see.
  PagePart PartOf(const Unit& unit, int32_t page_index) const {
    const KvPageView& page = unit.pages.pages[page_index];
    PagePart part;
    part.page = &page;
    part.data = page.data + unit.item->page_offset;
    part.kv_head = unit.kv_head;
    part.begin = static_cast<int>(std::max<int64_t>(0, unit.first_key - page.first_position));
    part.end = static_cast<int>(std::min<int64_t>(page.tokens, unit.end_key - page.first_position));
    return part;
  }

  bool HasFewRows(const Unit& unit) const { return unit.positions * group_ <= kFetchRows; }

  // Leaves the state of the unit's rows over one piece in block.o and block.lse. `next_task`: what
  // this thread attends after it, most likely. Null: unknown. `wide`: of the calling thread.
  void AttendPiece(const Task& task, const Task* next_task, const AttentionBlock& block,
                   float* wide) const {
    const Unit& unit = units_[task.unit];
    // Weights of keys that matter little, times small values, are subnormal.
    const FlushSubnormals flush;
    chunks_.Begin(block);
    const bool fetch = HasFewRows(unit) || unit.pages.chosen != nullptr;
    PagePart part = PartOf(unit, unit.pages.indices[task.piece.begin]);
    for (int64_t i = task.piece.begin; i < task.piece.end; ++i) {
      PagePart next;
      if (i + 1 < task.piece.end) {
        next = PartOf(unit, unit.pages.indices[i + 1]);
      } else if (next_task != nullptr) {
        const Unit& next_unit = units_[next_task->unit];
        next = PartOf(next_unit, next_unit.pages.indices[next_task->piece.begin]);
      }
      chunks_.Attend(block, part, next.page != nullptr ? &next : nullptr, fetch, wide);
      part = next;
    }
    chunks_.Finish(block);
  }

  // What a unit of few rows keeps of one shard: the state of the span at hand, and of those before.
  struct ShardStates {
    AttentionBlock block;
    float* state = nullptr;
    float* earlier = nullptr;
    bool begun = false;
    bool has_earlier = false;
  };
  int64_t ShardFloats(int positions) const {
    return 2 * StateFloats(positions) + RunningFloats(positions);
  }

  // Few rows wait for memory, which is read best in one stream: their pages are taken in ascending
  // order, and each shard has a running softmax of its own. The sums are those of AttendPiece.
  // `floats`: ShardFloats(few_positions_) for each shard.
  void AttendInOneStream(const Unit& unit, std::span<ShardStates> shards, float* floats,
                         float* wide) const {
    const int64_t state_floats = StateFloats(few_positions_);
    for (size_t leaf = 0; leaf < shards.size(); ++leaf) {
      float* const own = floats + static_cast<int64_t>(leaf) * ShardFloats(few_positions_);
      shards[leaf] = {Block(unit, own, own + 2 * state_floats), own, own + state_floats};
    }
    const auto end_span = [&] {
      for (ShardStates& shard : shards) {
        if (!std::exchange(shard.begun, false)) continue;
        {
          const FlushSubnormals flush;
          chunks_.Finish(shard.block);
        }
        shard.block.queries_ready = true;
        if (std::exchange(shard.has_earlier, true)) {
          Merge(unit, shard.earlier, shard.state);
        } else {
          CopyState(unit, shard.state, shard.earlier);
        }
      }
    };
    const int64_t span_tokens = int64_t{kAttentionSpan} * params_.shards;
    int64_t span = -1;
    const PageList& pages = unit.pages;
    for (int64_t i = pages.FindAscending(unit.first_key); i < pages.count; ++i) {
      const PagePart part = PartOf(unit, pages.Ascending(i));
      const int64_t position = part.page->first_position;
      if (position >= unit.end_key) break;
      const int leaf = units_.order().LeafOf(*part.page);
      if (!Attends(*unit.item, leaf)) continue;
      if (std::exchange(span, position / span_tokens) != position / span_tokens) end_span();
      ShardStates& shard = shards[leaf];
      const FlushSubnormals flush;
      if (!std::exchange(shard.begun, true)) chunks_.Begin(shard.block);
      PagePart next;
      if (i + 1 < pages.count) next = PartOf(unit, pages.Ascending(i + 1));
      chunks_.Attend(shard.block, part, next.begin < next.end ? &next : nullptr, true, wide);
    }
    end_span();
  }

  void CopyState(const Unit& unit, const float* from, float* to) const {
    const int64_t rows = int64_t{unit.positions} * group_;
    std::copy_n(from, rows * layout_.v_stride(), to);
    std::copy_n(LseOf(unit, from), rows, LseOf(unit, to));
  }

  // Merges states of a unit's rows.
  void Merge(const Unit& unit, float* into, float* from) const {
    const int64_t v_stride = layout_.v_stride();
    float* const lse = LseOf(unit, into);
    const float* const from_lse = LseOf(unit, from);
    for (int row = 0; row < unit.positions * group_; ++row) {
      isa_.merge_row(into + row * v_stride, lse + row, from + row * v_stride, from_lse[row],
                     v_stride);
    }
  }

  // Writes the state of a unit's rows to the item's, or merges it there. `any`: false where they
  // see no key, and nothing is at `from`.
  void WriteResult(const Unit& unit, float* from, bool any) const {
    const AttentionState& state = unit.item->state;
    const int v_dim = params_.shape.v_dim;
    const int64_t ahead = int64_t{kPositionsAhead} * params_.heads * v_dim;
    if (!any && unit.item->merges) return;
    for (int p = 0; p < unit.positions; ++p) {
      for (int g = 0; g < group_; ++g) {
        const int64_t row = int64_t{p} * group_ + g;
        const int64_t index = (unit.row + p) * state.heads + int64_t{unit.kv_head} * group_ + g;
        float* const o = state.o + index * v_dim;
        const float* const from_o = from + row * layout_.v_stride();
        const float from_lse = any ? LseOf(unit, from)[row] : kEmptyLse;
        for (int d = 0; d < v_dim; d += kPanel) __builtin_prefetch(o + ahead + d, 1);
        if (!unit.item->merges) state.lse[index] = kEmptyLse;
        isa_.merge_row(o, state.lse + index, from_o, from_lse, v_dim);
        if (state.lse[index] == kEmptyLse) std::fill_n(o, v_dim, 0.0f);
      }
    }
  }

  // Floats of a thread of RunUnits, whose units have so many positions, and those of few rows so
  // many.
  int64_t UnitFloats(int most, int few) const {
    const int64_t shards = few > 0 ? params_.shards * ShardFloats(few) : 0;
    return LeafStack::Places(params_.shards) * StateFloats(most) + RunningFloats(most) + shards +
           chunks_.WideFloats();
  }

  // Units side by side: the pieces of one after the other, or its pages where it has few rows.
  absl::Status RunUnits(CpuStream& stream) const {
    const int64_t floats = StateFloats(most_positions_);
    const int64_t state_floats = LeafStack::Places(params_.shards) * floats;
    const int64_t running_floats = RunningFloats(most_positions_);
    const int64_t wide_floats = chunks_.WideFloats();
    const int64_t thread_floats = UnitFloats(most_positions_, few_positions_);
    // As much as any call asks for, so that what is held does not follow the lengths of prompts.
    const int most = BlockPositions();
    const int64_t planned = UnitFloats(most, std::min(most, kFetchRows / group_));
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch,
                             stream.Scratch(stream.threads() * planned * sizeof(float)));
    stream.ParallelFor(units_.size(), [&](int64_t index, int thread) {
      const Unit& unit = units_[index];
      float* const states = reinterpret_cast<float*>(scratch) + thread * thread_floats;
      float* const running = states + state_floats;
      float* const wide = running + running_floats;
      float* const shards = wide + wide_floats;
      LeafStack tree;
      const auto merge = [&](int into, int from) {
        Merge(unit, states + into * floats, states + from * floats);
      };
      const auto place = [&](int leaf) { return states + tree.Push(leaf, merge) * floats; };
      if (HasFewRows(unit)) {
        std::array<ShardStates, kMostVirtualShards> all;
        const std::span<ShardStates> used(all.data(), params_.shards);
        AttendInOneStream(unit, used, shards, wide);
        for (int leaf = 0; leaf < params_.shards; ++leaf) {
          if (used[leaf].has_earlier) CopyState(unit, used[leaf].earlier, place(leaf));
        }
      } else {
        AttendPieces(index, place, running, wide);
      }
      WriteResult(unit, states, tree.Finish(merge));
    });
    return absl::OkStatus();
  }

  // `place(leaf)`: where the state of the next piece goes.
  template <class Place>
  void AttendPieces(int64_t index, const Place& place, float* running, float* wide) const {
    const Unit& unit = units_[index];
    AttentionBlock block = Block(unit, running, running);  // the state follows
    const auto attend = [&](const Task& task, const Task* next) {
      block.o = place(task.piece.leaf);
      block.lse = LseOf(unit, block.o);
      AttendPiece(task, next, block, wide);
      block.queries_ready = true;
    };
    std::optional<Task> task;
    ForEachPiece(unit, [&](const Piece& piece) {
      const Task next{index, piece};
      if (task.has_value()) attend(*task, &next);
      task = next;
    });
    if (task.has_value()) attend(*task, nullptr);
  }

  // Pieces side by side (decode: few rows, long past), in waves that bound the workspace. The
  // states are merged in the same order as above, with the same bits.
  absl::Status RunPieces(CpuStream& stream) const {
    std::vector<Task> tasks;
    for (int64_t u = 0; u < units_.size(); ++u) {
      ForEachPiece(units_[u], [&](const Piece& piece) { tasks.push_back({u, piece}); });
    }
    const int64_t floats = StateFloats(most_positions_);
    const int64_t running_floats = RunningFloats(most_positions_);
    const int64_t wave = std::min(
        std::ssize(tasks),
        std::clamp<int64_t>(kWaveBytes / (floats * sizeof(float)), stream.threads(), kWavePieces));
    const int64_t tree_floats = LeafStack::Places(params_.shards) * floats;
    const int64_t thread_floats = running_floats + chunks_.WideFloats();
    const int64_t all_floats = tree_floats + wave * floats + stream.threads() * thread_floats;
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch, stream.Scratch(all_floats * sizeof(float)));
    float* const states = reinterpret_cast<float*>(scratch);
    float* const done = states + tree_floats;
    float* const threads = done + wave * floats;
    LeafStack tree;
    int64_t unit = 0;  // whose states are in the tree
    const auto merge = [&](int into, int from) {
      Merge(units_[unit], states + into * floats, states + from * floats);
    };
    const auto finish_before = [&](int64_t end) {
      for (; unit < end; ++unit) WriteResult(units_[unit], states, tree.Finish(merge));
    };
    for (int64_t first = 0; first < std::ssize(tasks); first += wave) {
      const int64_t count = std::min(wave, std::ssize(tasks) - first);
      stream.ParallelRuns(count, [&](int64_t i, int thread) {
        const Task& task = tasks[first + i];
        float* const own = threads + thread * thread_floats;
        AttendPiece(task, i + 1 < count ? &task + 1 : nullptr,
                    Block(units_[task.unit], done + i * floats, own), own + running_floats);
      });
      for (int64_t i = 0; i < count; ++i) {
        const Task& task = tasks[first + i];
        finish_before(task.unit);
        float* const state = states + tree.Push(task.piece.leaf, merge) * floats;
        CopyState(units_[task.unit], done + i * floats, state);
      }
    }
    finish_before(units_.size());
    return absl::OkStatus();
  }

  const SimdKernels& isa_;
  const AttentionParams& params_;
  const AttentionChunks chunks_;
  const PageLayout& layout_;
  const int group_;
  const AttentionUnits units_;
  int most_positions_ = 0;  // of a unit
  int few_positions_ = 0;   // of a unit with few rows; 0: there is none
};

}  // namespace

absl::Status Attention(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params) {
  CheckAttention(params);
  for (const AttentionItem& item : params.items) {
    if (item.branches.empty()) continue;
    ANNULUS_RETURN_IF_ERROR(DilatedAttention(isa, stream, params, item));
  }
  return AttentionRun(isa, params).Run(stream);
}

}  // namespace annulus::cpu
