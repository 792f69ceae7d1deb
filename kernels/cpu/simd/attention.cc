// Attention of the SIMD path: splits the work into units (item, kv head, query block) and those
// into pieces (a shard's pages in a span), lets the inner kernels attend them, and merges the
// pieces in the tree of kernels/ops/shards.h.
#include <algorithm>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/flush_subnormals.h"
#include "kernels/cpu/simd/attention_parties.h"
#include "kernels/cpu/simd/attention_states.h"
#include "kernels/cpu/simd/attention_streams.h"
#include "kernels/cpu/simd/attention_unit.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/ops/checks.h"
#include "kernels/ops/leaf_stack.h"

namespace annulus::cpu {
namespace {

// Rows (positions x query heads of a group) that share each K/V tile. Enough that reading pages
// costs little compared with computing; o and the page's tiles stay in the second-level cache. The
// paired kernels compute faster, so theirs are larger; more positions would only make the work
// uneven.
constexpr int kBlockRows = 96;
constexpr int kPairedBlockRows = 384;
constexpr int kPairedBlockPositions = 128;
// Blocks of so few rows wait for memory: the next chunk is fetched while one is attended. So do
// those of any size whose pages are chosen, as the processor cannot foresee where the next one is.
constexpr int kFetchRows = 32;
// Pieces that are computed side by side when there are fewer units than threads need.
constexpr int64_t kWavePieces = 64;
constexpr size_t kWaveBytes = size_t{8} << 20;

// A piece and the index of its unit.
struct PieceTask {
  int64_t unit;
  Piece piece;
};

// The most positions of a unit.
int BlockPositions(const AttentionStates& states) {
  const int rows = states.paired()
                       ? std::min(kPairedBlockRows / states.group(), kPairedBlockPositions)
                       : kBlockRows / states.group();
  return std::max(1, rows);
}

// The most rows of a unit that may join others, which must not touch its neighbours'. A window
// hides shared keys from some rows.
int PartyRows(const AttentionStates& states, const AttentionParams& params) {
  return params.window > 0 ? 0 : std::min(kFetchRows, states.exact_rows());
}

bool HasFewRows(const Unit& unit, int group) { return unit.positions * group <= kFetchRows; }

// Calls visit(piece) for every piece of which some row may see a key: leaves in order, spans of a
// leaf ascending.
template <class Visit>
void ForEachPiece(const Unit& unit, int shards, const Visit& visit) {
  const int64_t span_tokens = int64_t{kAttentionSpan} * shards;
  const AttentionItem& item = *unit.item;
  const int end_leaf = item.leaves > 0 ? item.first_leaf + item.leaves : shards;
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

// What calls with one AttentionParams::layout share.
struct UnitLayout final : AttentionLayout {
  UnitLayout(const AttentionStates& states, const AttentionParams& params, int threads)
      : items(params.items),
        units(params, BlockPositions(states)),
        parties(units, states.group(), PartyRows(states, params), threads),
        few_positions(parties.most_positions()),
        dilated(params.items.size()) {
    for (const Unit& unit : units.all()) {
      most_positions = std::max(most_positions, unit.positions);
      if (HasFewRows(unit, states.group())) few_positions = std::max(few_positions, unit.positions);
    }
    // A unit is one thread's: pieces are shared out better, and read memory in a worse order.
    in_pieces = units.size() < 4 * threads && units.size() % threads != 0;
    for (int64_t u = 0; in_pieces && u < units.size(); ++u) {
      ForEachPiece(units[u], params.shards, [&](const Piece& piece) {
        tasks.push_back({u, piece});
      });
    }
  }

  const std::span<const AttentionItem> items;
  const AttentionUnits units;
  const AttentionParties parties;
  int most_positions = 0;  // of a unit
  int few_positions;       // of a unit with few rows, or of a party; 0: there is none
  bool in_pieces;          // whether threads share out `tasks` instead of units
  std::vector<PieceTask> tasks;
  std::vector<std::unique_ptr<AttentionLayout>> dilated;  // [item] null unless it has branches
};

class AttentionRun {
 public:
  AttentionRun(const AttentionStates& states, const AttentionParams& params,
               const UnitLayout& layout)
      : params_(params),
        states_(states),
        group_(states.group()),
        layout_(layout),
        units_(layout.units),
        parties_(layout.parties),
        streams_(states, units_.order(), params) {}

  absl::Status Run(CpuStream& stream) const {
    if (units_.size() == 0) return absl::OkStatus();
    return layout_.in_pieces ? RunPieces(stream) : RunUnits(stream);
  }

 private:
  // Leaves the state of the unit's rows over one piece in block.o and block.lse. `next_task`: what
  // this thread attends after it, most likely. Null: unknown. `wide`: of the calling thread.
  void AttendPiece(const PieceTask& task, const PieceTask* next_task, const AttentionBlock& block,
                   float* wide) const {
    const Unit& unit = units_[task.unit];
    // Weights of keys that matter little, times small values, are subnormal.
    const FlushSubnormals flush;
    const AttentionChunks& chunks = states_.chunks();
    chunks.Begin(block);
    if (chunks.TakesTogether() && !HasFewRows(unit, group_)) {
      AttentionChunks::Waiting waiting;
      for (int64_t i = task.piece.begin; i < task.piece.end; ++i) {
        chunks.AttendTogether(block, states_.PartOf(unit, unit.pages.indices[i]), waiting);
      }
      chunks.AttendWaiting(block, waiting);
    } else {
      AttendPages(task, next_task, block, wide);
    }
    chunks.Finish(block);
  }

  // The pages of a piece one by one, each of which is prefetched while the one before is attended.
  void AttendPages(const PieceTask& task, const PieceTask* next_task, const AttentionBlock& block,
                   float* wide) const {
    const Unit& unit = units_[task.unit];
    const bool fetch = HasFewRows(unit, group_) || unit.pages.chosen != nullptr;
    PagePart part = states_.PartOf(unit, unit.pages.indices[task.piece.begin]);
    for (int64_t i = task.piece.begin; i < task.piece.end; ++i) {
      PagePart next;
      if (i + 1 < task.piece.end) {
        next = states_.PartOf(unit, unit.pages.indices[i + 1]);
      } else if (next_task != nullptr) {
        const Unit& next_unit = units_[next_task->unit];
        next = states_.PartOf(next_unit, next_unit.pages.indices[next_task->piece.begin]);
      }
      states_.chunks().Attend(block, part, next.page != nullptr ? &next : nullptr, fetch, wide);
      part = next;
    }
  }

  // Floats of a thread of RunUnits, whose units have so many positions, and those of few rows, and
  // parties, so many.
  int64_t UnitFloats(int most, int few) const {
    return LeafStack::Places(params_.shards) * states_.StateFloats(most) +
           states_.RunningFloats(most) + (few > 0 ? streams_.Floats(few) : 0) +
           states_.chunks().WideFloats();
  }

  // Units side by side: the pieces of one after the other, or its pages where it has few rows.
  absl::Status RunUnits(CpuStream& stream) const {
    const int most_positions = layout_.most_positions;
    const int64_t floats = states_.StateFloats(most_positions);
    const int64_t state_floats = LeafStack::Places(params_.shards) * floats;
    const int64_t running_floats = states_.RunningFloats(most_positions);
    const int64_t wide_floats = states_.chunks().WideFloats();
    const int64_t thread_floats = UnitFloats(most_positions, layout_.few_positions);
    // The maximum that any call needs, so that the held memory does not depend on prompt lengths.
    const int most = BlockPositions(states_);
    const int few_rows = PartyRows(states_, params_) > 0 ? AttentionParties::kMostRows : kFetchRows;
    const int64_t planned = UnitFloats(most, few_rows / group_);
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch,
                             stream.Scratch(stream.threads() * planned * sizeof(float)));
    stream.ParallelFor(std::ssize(parties_.all()), [&](int64_t index, int thread) {
      const Party& party = parties_.all()[index];
      const std::span<const int32_t> members = parties_.members(party);
      const Unit& unit = units_[members[0]];
      float* const states = reinterpret_cast<float*>(scratch) + thread * thread_floats;
      float* const running = states + state_floats;
      float* const wide = running + running_floats;
      float* const streams = wide + wide_floats;
      LeafStack tree;
      const auto at = [&](const Unit& of, int place) {
        return states_.StateAt(states + place * floats, of.positions);
      };
      const auto finish = [&](const Unit& of, const AttentionStreams::Walk& walk) {
        const auto merge = [&](int into, int from) {
          states_.Merge(of, at(of, into), at(of, from));
        };
        for (int leaf = 0; leaf < params_.shards; ++leaf) {
          const AttentionStreams::Shard& shard = walk.shards[leaf];
          if (shard.has_earlier) states_.Copy(of, shard.earlier, at(of, tree.Push(leaf, merge)));
        }
        const bool any = tree.Finish(merge);
        states_.WriteResult(of, at(of, 0), any);
      };
      if (party.count > 1) {
        streams_.AttendParty(units_, members, party.shared_pages, streams, wide, finish);
      } else if (HasFewRows(unit, group_)) {
        streams_.AttendUnit(unit, streams, wide, finish);
      } else {
        const auto merge = [&](int into, int from) {
          states_.Merge(unit, at(unit, into), at(unit, from));
        };
        const auto place = [&](int leaf) { return at(unit, tree.Push(leaf, merge)); };
        AttendPieces(members[0], place, running, wide);
        const bool any = tree.Finish(merge);
        states_.WriteResult(unit, at(unit, 0), any);
      }
    });
    return absl::OkStatus();
  }

  // `place(leaf)`: where the state of the next piece goes.
  template <class Place>
  void AttendPieces(int64_t index, const Place& place, float* running, float* wide) const {
    const Unit& unit = units_[index];
    AttentionBlock block = states_.Block(unit, running, running);  // the state follows
    const auto attend = [&](const PieceTask& task, const PieceTask* next) {
      const StateRef state = place(task.piece.leaf);
      block.o = state.o;
      block.lse = state.lse;
      AttendPiece(task, next, block, wide);
      block.queries_ready = true;
    };
    std::optional<PieceTask> task;
    ForEachPiece(unit, params_.shards, [&](const Piece& piece) {
      const PieceTask next{index, piece};
      if (task.has_value()) attend(*task, &next);
      task = next;
    });
    if (task.has_value()) attend(*task, nullptr);
  }

  // Pieces side by side (decode: few rows, long past), in waves that bound the workspace. The
  // states are merged in the same order as above, with the same bits.
  absl::Status RunPieces(CpuStream& stream) const {
    const std::span<const PieceTask> tasks = layout_.tasks;
    const int64_t floats = states_.StateFloats(layout_.most_positions);
    const int64_t running_floats = states_.RunningFloats(layout_.most_positions);
    const int64_t wave = std::min(
        std::ssize(tasks),
        std::clamp<int64_t>(kWaveBytes / (floats * sizeof(float)), stream.threads(), kWavePieces));
    const int64_t tree_floats = LeafStack::Places(params_.shards) * floats;
    const int64_t thread_floats = running_floats + states_.chunks().WideFloats();
    const int64_t all_floats = tree_floats + wave * floats + stream.threads() * thread_floats;
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch, stream.Scratch(all_floats * sizeof(float)));
    float* const states = reinterpret_cast<float*>(scratch);
    float* const done = states + tree_floats;
    float* const threads = done + wave * floats;
    const auto at = [&](int64_t u, float* state) {
      return states_.StateAt(state, units_[u].positions);
    };
    LeafStack tree;
    int64_t unit = 0;  // whose states are in the tree
    const auto merge = [&](int into, int from) {
      states_.Merge(units_[unit], at(unit, states + into * floats),
                    at(unit, states + from * floats));
    };
    const auto finish_before = [&](int64_t end) {
      for (; unit < end; ++unit) {
        const bool any = tree.Finish(merge);
        states_.WriteResult(units_[unit], at(unit, states), any);
      }
    };
    for (int64_t first = 0; first < std::ssize(tasks); first += wave) {
      const int64_t count = std::min(wave, std::ssize(tasks) - first);
      stream.ParallelRuns(count, [&](int64_t i, int thread) {
        const PieceTask& task = tasks[first + i];
        float* const own = threads + thread * thread_floats;
        AttendPiece(task, i + 1 < count ? &task + 1 : nullptr,
                    states_.Block(units_[task.unit], done + i * floats, own), own + running_floats);
      });
      for (int64_t i = 0; i < count; ++i) {
        const PieceTask& task = tasks[first + i];
        finish_before(task.unit);
        float* const state = states + tree.Push(task.piece.leaf, merge) * floats;
        states_.Copy(units_[task.unit], at(task.unit, done + i * floats), at(task.unit, state));
      }
    }
    finish_before(units_.size());
    return absl::OkStatus();
  }

  const AttentionParams& params_;
  const AttentionStates& states_;
  const int group_;
  const UnitLayout& layout_;
  const AttentionUnits& units_;
  const AttentionParties& parties_;
  const AttentionStreams streams_;
};

}  // namespace

absl::Status Attention(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params) {
  CheckAttention(params);
  const AttentionStates states(isa, params);
  std::unique_ptr<AttentionLayout> own;
  std::unique_ptr<AttentionLayout>& kept = params.layout != nullptr ? *params.layout : own;
  if (kept == nullptr) kept = std::make_unique<UnitLayout>(states, params, stream.threads());
  auto& layout = static_cast<UnitLayout&>(*kept);
  ANNULUS_CHECK(layout.items.data() == params.items.data() &&
                layout.items.size() == params.items.size())
      << "a layout of other items";
  for (size_t i = 0; i < params.items.size(); ++i) {
    if (params.items[i].branches.empty()) continue;
    ANNULUS_RETURN_IF_ERROR(
        DilatedAttention(isa, stream, params, params.items[i], layout.dilated[i]));
  }
  return AttentionRun(states, params, layout).Run(stream);
}

}  // namespace annulus::cpu
