#ifndef ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STREAMS_H_
#define ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STREAMS_H_

#include <algorithm>
#include <array>
#include <cstdint>
#include <span>
#include <utility>

#include "kernels/cpu/host/flush_subnormals.h"
#include "kernels/cpu/simd/attention_parties.h"
#include "kernels/cpu/simd/attention_states.h"

namespace annulus::cpu {

// Attends units of few rows. These wait for memory, which is read best in one stream: pages in
// ascending order, with a running softmax for each shard. The sums are those of the pieces, shard
// by shard, of the driver (simd/attention.cc).
class AttentionStreams {
 public:
  // What some rows keep of one shard: the state of the span at hand, and of those before.
  struct Shard {
    AttentionBlock block;
    StateRef earlier;
    bool begun = false;  // in this span
    bool has_earlier = false;
  };
  struct Walk {
    std::array<Shard, kMostVirtualShards> shards;  // by leaf
    int64_t span = -1;
  };

  AttentionStreams(const AttentionStates& states, const PageOrder& order,
                   const AttentionParams& params)
      : states_(states), order_(order), params_(params) {}

  // Scratch memory for units, and parties, of at most so many positions.
  int64_t Floats(int positions) const {
    return params_.shards * ShardFloats(positions) + GatheredFloats(positions);
  }

  // Calls done(unit, walk) with the result: in each shard `earlier`, where there is one. `floats`:
  // Floats(unit.positions). `wide`: see AttentionChunks::Attend.
  template <class Done>
  void AttendUnit(const Unit& unit, float* floats, float* wide, const Done& done) const {
    Walk walk;
    Begin(unit, floats, walk);
    AttendPages(unit, unit.pages.FindAscending(unit.first_key), unit.pages.count, walk, wide);
    EndSpan(unit, walk);
    done(unit, walk);
  }

  // The same for each member: first the pages that all share, for all rows in one block, then the
  // pages of each. `floats`: Floats of the positions of all.
  template <class Done>
  void AttendParty(const AttentionUnits& units, std::span<const int32_t> members,
                   int64_t shared_pages, float* floats, float* wide, const Done& done) const {
    const Unit& first = units[members[0]];
    int positions = 0;
    for (const int32_t member : members) positions += units[member].positions;
    float* const queries = floats + params_.shards * ShardFloats(positions);
    int32_t* const seen = reinterpret_cast<int32_t*>(queries + positions * QueryColumns());
    // Every row sees all of the shared keys, so one position does for all.
    std::fill_n(seen, positions, first.item->positions[first.row]);
    Gather(units, members, queries);
    AttentionItem item = *first.item;
    item.positions = {seen, static_cast<size_t>(positions)};
    Unit all = first;
    all.item = &item;
    all.row = 0;
    all.positions = positions;
    const KvPageView& last = first.pages.pages[first.pages.Ascending(shared_pages - 1)];
    all.end_key = int64_t{last.first_position} + last.tokens;
    Walk walk;
    Begin(all, floats, walk);
    for (int leaf = 0; leaf < params_.shards; ++leaf) {
      walk.shards[leaf].block.query = queries;
      walk.shards[leaf].block.query_stride = QueryColumns();
    }
    AttendPages(all, 0, shared_pages, walk, wide);
    int position = 0;
    for (const int32_t member : members) {
      const Unit& unit = units[member];
      Walk own = PartOfWalk(walk, unit, position);
      // Otherwise Begin does this; and without Finish, nothing would undo it.
      const bool begun = std::any_of(own.shards.begin(), own.shards.end(),
                                     [](const Shard& shard) { return shard.begun; });
      if (begun) states_.chunks().Resume(own.shards[0].block);
      AttendPages(unit, shared_pages, unit.pages.count, own, wide);
      EndSpan(unit, own);
      done(unit, own);
      position += unit.positions;
    }
  }

 private:
  int64_t ShardFloats(int positions) const {
    return 2 * states_.StateFloats(positions) + states_.RunningFloats(positions);
  }
  // A position's queries of one kv head.
  int64_t QueryColumns() const { return int64_t{states_.group()} * params_.shape.k_dim; }
  // Their queries, and a position of each.
  int64_t GatheredFloats(int positions) const {
    return RoundUp(positions * (QueryColumns() + 1), kPanel);
  }

  void Begin(const Unit& unit, float* floats, Walk& walk) const {
    const int64_t state_floats = states_.StateFloats(unit.positions);
    for (int leaf = 0; leaf < params_.shards; ++leaf) {
      float* const own = floats + leaf * ShardFloats(unit.positions);
      walk.shards[leaf] = {states_.Block(unit, own, own + 2 * state_floats),
                           states_.StateAt(own + state_floats, unit.positions)};
    }
  }

  void Gather(const AttentionUnits& units, std::span<const int32_t> members, float* to) const {
    for (const int32_t member : members) {
      const Unit& unit = units[member];
      for (int64_t row = unit.row; row < unit.row + unit.positions; ++row) {
        std::copy_n(unit.item->query.row(row) + unit.kv_head * QueryColumns(), QueryColumns(), to);
        to += QueryColumns();
      }
    }
  }

  // A member's rows of a party's walk, in place. `position`: the first of them in the party.
  Walk PartOfWalk(const Walk& all, const Unit& unit, int position) const {
    Walk own;
    own.span = all.span;
    const int64_t row = int64_t{position} * states_.group();
    const int64_t rows = int64_t{unit.positions} * states_.group();
    for (int leaf = 0; leaf < params_.shards; ++leaf) {
      const AttentionBlock& from = all.shards[leaf].block;
      const int64_t o = row * from.v_stride;
      Shard& shard = own.shards[leaf] = all.shards[leaf];
      shard.earlier.o += o;
      shard.earlier.lse += row;
      AttentionBlock& block = shard.block;
      // The unit's own queries and positions.
      block = states_.Block(unit, from.o + o, from.sums);
      block.lse = from.lse + row;
      block.sums = from.sums + row * kPanel;
      block.maximum = from.maximum + row;
      block.query_pairs = from.query_pairs + row * from.k_pairs;
      block.row_positions = from.row_positions + row;
      block.queries_ready = from.queries_ready;
      if (!states_.paired() || !(shard.begun || block.queries_ready)) continue;
      for (int64_t r = 0; r < rows; ++r) {
        block.row_positions[r] = block.positions[r / states_.group()];
      }
    }
    return own;
  }

  // Pages [begin, end) of the unit's, in ascending order, as far as its rows see them.
  void AttendPages(const Unit& unit, int64_t begin, int64_t end, Walk& walk, float* wide) const {
    const int64_t span_tokens = int64_t{kAttentionSpan} * params_.shards;
    const PageList& pages = unit.pages;
    for (int64_t i = begin; i < end; ++i) {
      const PagePart part = states_.PartOf(unit, pages.Ascending(i));
      const int64_t position = part.page->first_position;
      if (position >= unit.end_key) break;
      const int leaf = order_.LeafOf(*part.page);
      if (!Attends(*unit.item, leaf)) continue;
      const int64_t span = position / span_tokens;
      if (std::exchange(walk.span, span) != span) EndSpan(unit, walk);
      Shard& shard = walk.shards[leaf];
      const FlushSubnormals flush;
      if (!std::exchange(shard.begun, true)) states_.chunks().Begin(shard.block);
      PagePart next;
      if (i + 1 < pages.count) next = states_.PartOf(unit, pages.Ascending(i + 1));
      states_.chunks().Attend(shard.block, part, next.begin < next.end ? &next : nullptr, true,
                              wide);
    }
  }

  void EndSpan(const Unit& unit, Walk& walk) const {
    for (int leaf = 0; leaf < params_.shards; ++leaf) {
      Shard& shard = walk.shards[leaf];
      if (!std::exchange(shard.begun, false)) continue;
      {
        const FlushSubnormals flush;
        states_.chunks().Finish(shard.block);
      }
      shard.block.queries_ready = true;
      const StateRef state{shard.block.o, shard.block.lse};
      if (std::exchange(shard.has_earlier, true)) {
        states_.Merge(unit, shard.earlier, state);
      } else {
        states_.Copy(unit, state, shard.earlier);
      }
    }
  }

  const AttentionStates& states_;
  const PageOrder& order_;
  const AttentionParams& params_;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STREAMS_H_
