#ifndef ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STATES_H_
#define ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STATES_H_

#include <algorithm>
#include <cstdint>
#include <limits>

#include "kernels/cpu/simd/attention_chunks.h"
#include "kernels/cpu/simd/attention_unit.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/attention.h"

namespace annulus::cpu {

inline constexpr float kEmptyLse = -std::numeric_limits<float>::infinity();

// The state of some rows, somewhere in a thread's scratch memory.
struct StateRef {
  float* o = nullptr;    // [rows][v_stride]
  float* lse = nullptr;  // [rows]
};

// Lays out the states of units in scratch memory, and merges them.
class AttentionStates {
 public:
  AttentionStates(const SimdKernels& isa, const AttentionParams& params)
      : isa_(isa),
        params_(params),
        chunks_(isa, params.shape),
        layout_(chunks_.layout()),
        group_(params.heads / params.shape.kv_heads),
        row_multiple_(layout_.paired() ? isa.paired->row_multiple : 1) {}

  const AttentionChunks& chunks() const { return chunks_; }
  int group() const { return group_; }
  bool paired() const { return layout_.paired(); }
  // The inner kernels touch no row after a block of at most so many.
  int exact_rows() const {
    return paired() ? isa_.paired->exact_rows : std::numeric_limits<int>::max();
  }

  // Floats of a state of so many positions: o, then lse.
  int64_t StateFloats(int positions) const {
    return RoundUp(StateRows(positions) * (layout_.v_stride() + 1), kPanel);
  }

  // Floats of what a thread keeps while it attends: sums, maximum and paired queries.
  int64_t RunningFloats(int positions) const {
    const int64_t query = paired() ? layout_.k_dim() / 2 + 1 : 0;
    return RoundUp(StateRows(positions) * (kPanel + 1 + query), kPanel);
  }

  // The state of so many positions that begins at `floats`, of StateFloats.
  StateRef StateAt(float* floats, int positions) const {
    return {floats, floats + StateRows(positions) * layout_.v_stride()};
  }

  // `state`: StateFloats; `running`: RunningFloats.
  AttentionBlock Block(const Unit& unit, float* state, float* running) const {
    const int64_t rows = StateRows(unit.positions);
    const StateRef at = StateAt(state, unit.positions);
    AttentionBlock block;
    block.query =
        unit.item->query.row(unit.row) + int64_t{unit.kv_head} * group_ * params_.shape.k_dim;
    block.query_stride = unit.item->query.stride;
    block.positions = unit.item->positions.data() + unit.row;
    block.position_count = unit.positions;
    block.group = group_;
    block.k_dim = params_.shape.k_dim;
    block.k_pairs = paired() ? static_cast<int>(layout_.k_dim() / 2) : 0;
    block.v_stride = static_cast<int>(layout_.v_stride());
    block.scale = params_.scale;
    block.soft_cap = params_.soft_cap;
    block.window = params_.window;
    block.o = at.o;
    block.lse = at.lse;
    block.sums = running;
    block.maximum = block.sums + rows * kPanel;
    block.queries_ready = false;
    block.query_pairs = reinterpret_cast<uint32_t*>(block.maximum + rows);
    block.row_positions = reinterpret_cast<int32_t*>(block.query_pairs + rows * block.k_pairs);
    return block;
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

  // Of a unit's rows.
  void Copy(const Unit& unit, StateRef from, StateRef to) const {
    const int64_t rows = int64_t{unit.positions} * group_;
    std::copy_n(from.o, rows * layout_.v_stride(), to.o);
    std::copy_n(from.lse, rows, to.lse);
  }

  // Merges states of a unit's rows.
  void Merge(const Unit& unit, StateRef into, StateRef from) const {
    const int64_t v_stride = layout_.v_stride();
    isa_.merge_rows({.o = into.o,
                     .o_stride = v_stride,
                     .lse = into.lse,
                     .from_o = from.o,
                     .from_stride = v_stride,
                     .from_lse = from.lse,
                     .rows = int64_t{unit.positions} * group_,
                     .v_dim = v_stride});
  }

  // Writes the state of a unit's rows to the item's, or merges it there. `any`: false where they
  // see no key, and nothing is at `from`.
  void WriteResult(const Unit& unit, StateRef from, bool any) const {
    const AttentionState& state = unit.item->state;
    const int v_dim = params_.shape.v_dim;
    const int64_t ahead = int64_t{kPositionsAhead} * params_.heads * v_dim;
    if (!any && unit.item->merges) return;
    for (int p = 0; p < unit.positions; ++p) {
      const int64_t row = int64_t{p} * group_;
      const int64_t index = (unit.row + p) * state.heads + int64_t{unit.kv_head} * group_;
      float* const o = state.o + index * v_dim;
      float* const lse = state.lse + index;
      for (int d = 0; d < group_ * v_dim; d += kPanel) __builtin_prefetch(o + ahead + d, 1);
      if (!unit.item->merges) std::fill_n(lse, group_, kEmptyLse);
      if (any) {
        isa_.merge_rows({.o = o,
                         .o_stride = v_dim,
                         .lse = lse,
                         .from_o = from.o + row * layout_.v_stride(),
                         .from_stride = layout_.v_stride(),
                         .from_lse = from.lse + row,
                         .rows = group_,
                         .v_dim = v_dim});
      }
      for (int g = 0; g < group_; ++g) {
        if (lse[g] == kEmptyLse) std::fill_n(o + g * v_dim, v_dim, 0.0f);
      }
    }
  }

 private:
  int64_t StateRows(int positions) const {
    return RoundUp(int64_t{positions} * group_, row_multiple_);
  }

  const SimdKernels& isa_;
  const AttentionParams& params_;
  const AttentionChunks chunks_;
  const PageLayout& layout_;
  const int group_;
  const int row_multiple_;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_ATTENTION_STATES_H_
