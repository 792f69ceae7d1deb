// Dilated attention of the SIMD path. A branch of rate r leaves a query head one residue modulo r,
// of rows and of keys: counted anew, that is a causal problem of one head over 1/r of the keys.
// Keys are copied into pages that hold one kv head and one residue, attended there by Attention,
// and the states are merged: shard by shard in the tree of kernels/ops/shards.h, inside a shard
// branch by branch and chunk by chunk of absolute positions, so that a row's bits depend on its own
// query, position and keys.
#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/dilated_layout.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/leaf_stack.h"

namespace annulus::cpu {
namespace {

class DilatedRun {
 public:
  DilatedRun(const SimdKernels& isa, CpuStream& stream, const AttentionParams& params,
             const AttentionItem& item, DilatedLayout& layout)
      : isa_(isa),
        stream_(stream),
        params_(params),
        item_(item),
        shape_(params.shape),
        layout_(layout),
        pages_(isa, shape_),
        kept_shape_(DilatedLayout::KeptShape(shape_)),
        kept_pages_(isa, kept_shape_) {}

  // The shards that the pages belong to, each in a state of its own.
  absl::Status Run() {
    const int64_t rows = item_.positions.size();
    const int64_t floats = StateFloats(rows, params_.heads, shape_.v_dim);
    const int64_t places = std::clamp(layout_.leaves(), 1, LeafStack::Places(params_.shards));
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const results,
                             stream_.ResultScratch(places * floats * sizeof(float)));
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const memory, stream_.OuterScratch(layout_.bytes()));
    layout_.Place(memory);
    const auto state = [&](int place) {
      return StateAt(reinterpret_cast<float*>(results) + place * floats, rows, params_.heads,
                     shape_.v_dim);
    };
    absl::Status status;
    const auto merge = [&](int into, int from) {
      status.Update(MergeState(isa_, stream_, {state(into), state(from)}));
    };
    LeafStack tree;
    int leaf = -1;
    for (DilatedSegment& segment : layout_.segments()) {
      if (std::exchange(leaf, segment.leaf) != segment.leaf) {
        result_ = state(tree.Push(leaf, merge));
        Clear(result_);
      }
      for (DilatedChunk& chunk : segment.chunks) {
        ANNULUS_RETURN_IF_ERROR(segment.rate == 1 ? AttendAll(segment, chunk)
                                                  : AttendKept(segment, chunk));
      }
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

  // `shards`: 1 for kept keys, which are counted anew.
  absl::Status Attend(const KvPageShape& shape, int heads, int shards, DilatedChunk& chunk) {
    AttentionParams params;
    params.shape = shape;
    params.shards = shards;
    params.heads = heads;
    params.scale = params_.scale;
    params.soft_cap = params_.soft_cap;
    params.items = chunk.items;
    params.layout = &chunk.layout;
    return Attention(isa_, stream_, params);
  }

  // Rate 1: every head keeps everything.
  absl::Status AttendAll(const DilatedSegment& segment, DilatedChunk& chunk) {
    AttentionItem& item = chunk.items.front();
    item.query = item_.query.row_range(segment.first_row, segment.rows);
    item.page_offset = item_.page_offset;
    ANNULUS_RETURN_IF_ERROR(Attend(shape_, params_.heads, params_.shards, chunk));
    stream_.ParallelFor(segment.rows, [&](int64_t r, int) {
      const int64_t from = r * params_.heads;
      MergeHeads(segment.first_row + r, 0, params_.heads, item.state.o + from * shape_.v_dim,
                 item.state.lse + from);
    });
    return absl::OkStatus();
  }

  // Heads [head, head + count) of a row.
  void MergeHeads(int64_t row, int head, int count, const float* o, const float* lse) const {
    const int64_t index = row * params_.heads + head;
    isa_.merge_rows({.o = result_.o + index * shape_.v_dim,
                     .o_stride = shape_.v_dim,
                     .lse = result_.lse + index,
                     .from_o = o,
                     .from_stride = shape_.v_dim,
                     .from_lse = lse,
                     .rows = count,
                     .v_dim = shape_.v_dim});
  }

  absl::Status AttendKept(const DilatedSegment& segment, DilatedChunk& chunk) {
    CopyKeys(segment, chunk);
    CopyQueries(segment, chunk);
    ANNULUS_RETURN_IF_ERROR(Attend(kept_shape_, 1, 1, chunk));
    stream_.ParallelFor(segment.heads.size(), [&](int64_t i, int) {
      const auto [of, index] = segment.heads[i];
      const DilatedResidue& residue = segment.residues[of];
      const AttentionState& state = chunk.items[i].state;
      for (int64_t r = 0; r < state.rows; ++r) {
        MergeHeads(residue.rows[chunk.kept[of].first_seeing + r], residue.heads[index], 1,
                   state.o + r * shape_.v_dim, state.lse + r);
      }
    });
    return absl::OkStatus();
  }

  void CopyKeys(const DilatedSegment& segment, const DilatedChunk& chunk) {
    stream_.ParallelFor(chunk.pages.size(), [&](int64_t p, int) {
      for (size_t i = 0; i < segment.residues.size(); ++i) {
        CopyPage(chunk.pages[p], segment.rate, segment.residues[i], chunk.kept[i],
                 chunk.kept[i].keys_before[p]);
      }
    });
  }

  // A page's kept slots become slots from `first_key` on of the residue's pages.
  void CopyPage(const KvPageView& page, int rate, const DilatedResidue& residue,
                const KeptKeys& kept, int64_t first_key) const {
    const KeptSlots slots = KeptSlotsOf(page, rate, residue.value);
    for (size_t i = 0; i < residue.kv_heads.size(); ++i) {
      for (int64_t n = 0; n < slots.count; ++n) {
        const int64_t key = first_key + n;
        const int slot = slots.first + static_cast<int>(n) * rate;
        const int64_t to = i * kept.pages_of_each + key / shape_.page_tokens;
        CopySlot(shape_.dtype, {pages_, residue.kv_heads[i], slot}, page.data + item_.page_offset,
                 {kept_pages_, 0, static_cast<int>(key % shape_.page_tokens)},
                 kept.page_data + to * layout_.page_bytes());
      }
    }
  }

  void CopyQueries(const DilatedSegment& segment, const DilatedChunk& chunk) {
    stream_.ParallelFor(segment.heads.size(), [&](int64_t i, int) {
      const auto [of, index] = segment.heads[i];
      const DilatedResidue& residue = segment.residues[of];
      float* to = chunk.kept[of].queries + index * residue.rows.size() * shape_.k_dim;
      for (const int64_t row : residue.rows) {
        to = std::copy_n(item_.query.row(row) + int64_t{residue.heads[index]} * shape_.k_dim,
                         shape_.k_dim, to);
      }
    });
  }

  const SimdKernels& isa_;
  CpuStream& stream_;
  const AttentionParams& params_;
  const AttentionItem& item_;
  const KvPageShape& shape_;
  DilatedLayout& layout_;
  const PageLayout pages_;
  const KvPageShape kept_shape_;
  const PageLayout kept_pages_;
  AttentionState result_;  // of the shard at hand
};

}  // namespace

absl::Status DilatedAttention(const SimdKernels& isa, CpuStream& stream,
                              const AttentionParams& params, const AttentionItem& item,
                              std::unique_ptr<AttentionLayout>& layout) {
  if (layout == nullptr) layout = std::make_unique<DilatedLayout>(isa, params, item);
  return DilatedRun(isa, stream, params, item, static_cast<DilatedLayout&>(*layout)).Run();
}

}  // namespace annulus::cpu
