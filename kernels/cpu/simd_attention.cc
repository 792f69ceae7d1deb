// Attention of the SIMD path: splits the work into units (item, kv head, query block) and
// spans, finds their pages, and lets the inner kernels attend them.
#include <algorithm>
#include <limits>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/attention_unit.h"
#include "kernels/cpu/flush_subnormals.h"
#include "kernels/cpu/page_layout.h"
#include "kernels/cpu/simd_ops.h"
#include "kernels/ops/checks.h"

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
// Span states that are computed side by side when there are fewer units than threads need.
constexpr int64_t kWaveSpans = 64;
constexpr size_t kWaveBytes = size_t{8} << 20;

class AttentionRun {
 public:
  AttentionRun(const SimdKernels& isa, const AttentionParams& params)
      : isa_(isa),
        params_(params),
        layout_(isa, params.shape),
        narrow_(IsNarrow(params.shape.dtype)),
        element_bytes_(DTypeSize(params.shape.dtype)),
        begin_(layout_.paired() ? isa.paired->begin : isa.attention_begin),
        keys_(layout_.paired()
                  ? isa.paired->keys
                  : isa.attention_keys[StorageIndex(narrow_ ? DType::kF32 : params.shape.dtype)]),
        finish_(layout_.paired() ? isa.paired->finish : isa.attention_finish),
        group_(params.heads / params.shape.kv_heads),
        block_positions_(std::max(
            1, layout_.paired() ? std::min(kPairedBlockRows / group_, kPairedBlockPositions)
                                : kBlockRows / group_)) {
    for (const AttentionItem& item : params.items) {
      if (item.branches.empty()) AddItem(item);
    }
    // Causal blocks grow with their position: the longest are started first.
    std::reverse(units_.begin(), units_.end());
  }

  absl::Status Run(CpuStream& stream) {
    int64_t spans = 0;
    for (const Unit& unit : units_) spans += unit.end_span - unit.first_span;
    const int64_t units = units_.size();
    const bool few = stream.threads() > 1 && units < 4 * stream.threads() && spans > units;
    return few ? RunSpans(stream, spans) : RunUnits(stream);
  }

 private:
  void AddItem(const AttentionItem& item) {
    const int64_t rows = item.positions.size();
    if (item.blocks.full) {
      const PageList pages{item.pages, nullptr, static_cast<int64_t>(item.pages.size())};
      for (int h = 0; h < params_.shape.kv_heads; ++h) AddRows(item, h, 0, rows, pages);
      return;
    }
    const BlockLists& lists = item.blocks;
    const int64_t blocks = lists.query_block_rows.size() - 1;
    const int heads_per_group = params_.shape.kv_heads / lists.head_groups;
    for (int64_t b = 0; b < blocks; ++b) {
      for (int h = 0; h < params_.shape.kv_heads; ++h) {
        const int64_t list = h / heads_per_group * blocks + b;
        const int32_t begin = lists.offsets[list];
        const PageList pages{item.pages, lists.pages.data() + begin,
                             lists.offsets[list + 1] - begin};
        AddRows(item, h, lists.query_block_rows[b], lists.query_block_rows[b + 1], pages);
      }
    }
  }

  void AddRows(const AttentionItem& item, int kv_head, int64_t begin, int64_t end,
               const PageList& pages) {
    for (int64_t row = begin; row < end; row += block_positions_) {
      Unit unit;
      unit.item = &item;
      unit.kv_head = kv_head;
      unit.row = row;
      unit.positions = static_cast<int>(std::min<int64_t>(block_positions_, end - row));
      unit.pages = pages;
      FindKeys(&unit);
      units_.push_back(unit);
    }
  }

  // The range of keys that some row of the unit sees, clipped to the pages there are.
  void FindKeys(Unit* unit) const {
    const std::span<const int32_t> positions = unit->item->positions;
    const int64_t oldest =
        params_.window > 0 ? int64_t{positions[unit->row]} - params_.window + 1 : 0;
    unit->first_key = std::max<int64_t>(0, oldest);
    unit->end_key = int64_t{positions[unit->row + unit->positions - 1]} + 1;
    unit->first_span = unit->end_span = 0;
    const int64_t begin = unit->pages.Find(0, unit->first_key);
    if (begin == unit->pages.count) return;
    const KvPageView& last = unit->pages[unit->pages.count - 1];
    unit->first_key = std::max<int64_t>(unit->first_key, unit->pages[begin].first_position);
    unit->end_key = std::min(unit->end_key, int64_t{last.first_position} + last.tokens);
    if (unit->first_key >= unit->end_key) return;
    unit->first_span = unit->first_key / kAttentionSpan;
    unit->end_span = (unit->end_key - 1) / kAttentionSpan + 1;
  }

  int64_t StateRows(int positions) const {
    return RoundUp(int64_t{positions} * group_, layout_.paired() ? isa_.paired->row_multiple : 1);
  }

  // Floats of one span state: o, sums, maximum and lse of a block's rows, and paired queries.
  int64_t StateFloats() const {
    const int64_t rows = StateRows(block_positions_);
    const int64_t query = layout_.paired() ? layout_.k_dim() / 2 + 1 : 0;
    return RoundUp(rows * (layout_.v_stride() + kPanel + 2 + query), kPanel);
  }

  AttentionBlock Block(const Unit& unit, float* state) const {
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
    block.sums = block.o + rows * layout_.v_stride();
    block.maximum = block.sums + rows * kPanel;
    block.lse = block.maximum + rows;
    block.queries_ready = false;
    block.query_pairs = reinterpret_cast<uint32_t*>(block.lse + rows);
    block.row_positions = reinterpret_cast<int32_t*>(block.query_pairs + rows * block.k_pairs);
    return block;
  }

  // Floats' worth of memory that one thread widens a chunk of an 8-bit page into.
  int64_t WideFloats() const {
    if (!narrow_) return 0;
    return kKeyChunk * RoundUp(layout_.k_dim() + layout_.v_stride(), kPanel);
  }

  // The part of one page that a unit attends.
  struct PagePart {
    const KvPageView* page;
    int begin;  // slots
    int end;
  };

  // One chunk's keys and values of one kv head as they are stored.
  AttentionKeys ChunkKeys(const PagePart& part, int kv_head, int chunk) const {
    const std::byte* const data = part.page->data;
    AttentionKeys keys;
    keys.k = data + layout_.k_head(kv_head) + chunk * layout_.k_dim() * element_bytes_;
    keys.v = data + layout_.v_head(kv_head) + chunk * layout_.v_stride() * element_bytes_;
    keys.k_scales = keys.v_scales = nullptr;
    keys.first_position = int64_t{part.page->first_position} + chunk;
    keys.ahead = nullptr;
    keys.narrow = nullptr;
    keys.widen_values = nullptr;
    keys.slots = std::min(kKeyChunk, params_.shape.page_tokens - chunk);
    keys.begin = std::max(0, part.begin - chunk);
    keys.end = std::min(keys.slots, part.end - chunk);
    return keys;
  }

  // What lies at `keys`, to be asked for while the chunk before is attended. The scales of int8 are
  // few: they are asked for at once.
  FetchAhead AheadOf(const AttentionKeys& keys, const PagePart& part, int kv_head,
                     int chunk) const {
    const auto lines = [&](int64_t columns) {
      return static_cast<int>((keys.slots * columns * element_bytes_ + kLineBytes - 1) /
                              kLineBytes);
    };
    if (params_.shape.dtype == DType::kI8) {
      const int64_t offset = chunk * int64_t{sizeof(Bf16)};
      for (int64_t byte = 0; byte < kKeyChunk * int64_t{sizeof(Bf16)}; byte += kLineBytes) {
        __builtin_prefetch(part.page->data + layout_.k_scales(kv_head) + offset + byte);
        __builtin_prefetch(part.page->data + layout_.v_scales(kv_head) + offset + byte);
      }
    }
    return {{static_cast<const char*>(keys.k), static_cast<const char*>(keys.v)},
            {lines(layout_.k_dim()), lines(layout_.v_stride())}};
  }

  // A chunk of an 8-bit page: widened in `wide`, then attended.
  void AttendNarrow(const AttentionBlock& block, const AttentionKeys& keys, const PagePart& part,
                    int kv_head, int chunk, float* wide) const {
    const auto scales = [&](int64_t offset) {
      return reinterpret_cast<const Bf16*>(part.page->data + offset) + chunk;
    };
    NarrowKeys narrow;
    narrow.k = keys.k;
    narrow.v = keys.v;
    narrow.k_scales = scales(layout_.k_scales(kv_head));
    narrow.v_scales = scales(layout_.v_scales(kv_head));
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
    const int index = NarrowIndex(params_.shape.dtype);
    if (layout_.paired()) {
      const PairedAttention& paired = *isa_.paired;
      if (params_.shape.dtype == DType::kI8) {
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
    keys_(block, widened);
  }

  // Leaves the state of the unit's rows over one span in block.o and block.lse. `wide`: WideFloats
  // of the calling thread.
  void AttendSpan(const Unit& unit, int64_t span, const AttentionBlock& block, float* wide) const {
    // Weights of keys that matter little, times small values, are subnormal.
    const FlushSubnormals flush;
    begin_(block);
    const int64_t first_key = std::max(unit.first_key, span * kAttentionSpan);
    const int64_t end_key = std::min(unit.end_key, (span + 1) * kAttentionSpan);
    const auto part_of = [&](int64_t i) {
      const KvPageView& page = unit.pages[i];
      PagePart part;
      part.page = &page;
      part.begin = static_cast<int>(std::max<int64_t>(0, first_key - page.first_position));
      part.end = static_cast<int>(std::min<int64_t>(page.tokens, end_key - page.first_position));
      return part;
    };
    const auto first_chunk = [](const PagePart& part) {
      return part.begin / kKeyChunk * kKeyChunk;
    };
    const bool fetch = unit.positions * group_ <= kFetchRows || unit.pages.chosen();
    for (int64_t i = unit.pages.Find(0, first_key);
         i < unit.pages.count && unit.pages[i].first_position < end_key; ++i) {
      const PagePart part = part_of(i);
      for (int chunk = first_chunk(part); chunk < part.end; chunk += kKeyChunk) {
        AttentionKeys keys = ChunkKeys(part, unit.kv_head, chunk);
        FetchAhead ahead;
        if (fetch) {
          PagePart next = part;
          int next_chunk = chunk + kKeyChunk;
          if (next_chunk >= part.end && i + 1 < unit.pages.count) {
            next = part_of(i + 1);
            next_chunk = first_chunk(next);
          }
          if (next_chunk < next.end) {
            ahead =
                AheadOf(ChunkKeys(next, unit.kv_head, next_chunk), next, unit.kv_head, next_chunk);
            keys.ahead = &ahead;
          }
        }
        if (narrow_) {
          AttendNarrow(block, keys, part, unit.kv_head, chunk, wide);
        } else {
          keys_(block, keys);
        }
      }
    }
    finish_(block);
  }

  // Whether a unit's spans are merged with each other, apart, before they are with what the state
  // holds. So a row has the bits that it has where another rank attends it and merge_state follows.
  bool Apart(const Unit& unit) const {
    return unit.item->merges && unit.end_span - unit.first_span > 1;
  }
  int64_t ApartFloats() const {
    const bool any =
        std::any_of(units_.begin(), units_.end(), [this](const Unit& unit) { return Apart(unit); });
    const int64_t rows = int64_t{block_positions_} * group_;
    return any ? RoundUp(rows * (params_.shape.v_dim + 1), kPanel) : 0;
  }

  // Calls visit(o, lse, row of the block) for every row of the unit's result: at `apart`
  // (ApartFloats), or where that is null in the item's state.
  template <class Visit>
  void ForEachResult(const Unit& unit, float* apart, const Visit& visit) const {
    const AttentionState& state = unit.item->state;
    for (int p = 0; p < unit.positions; ++p) {
      for (int g = 0; g < group_; ++g) {
        const int64_t row = int64_t{p} * group_ + g;
        const int64_t index = (unit.row + p) * state.heads + int64_t{unit.kv_head} * group_ + g;
        if (apart != nullptr) {
          visit(apart + row * (state.v_dim + 1), apart + row * (state.v_dim + 1) + state.v_dim,
                row);
        } else {
          visit(state.o + index * state.v_dim, state.lse + index, row);
        }
      }
    }
  }

  // An empty state's o is written last and only where nothing was merged: merging into an empty
  // state copies, so that most results are written once.
  void BeginResult(const Unit& unit, float* apart) const {
    if (unit.item->merges && apart == nullptr) return;
    ForEachResult(unit, apart, [](float*, float* lse, int64_t) { *lse = kEmptyLse; });
  }
  void EndResult(const Unit& unit, float* apart) const {
    const int v_dim = params_.shape.v_dim;
    ForEachResult(unit, nullptr, [&](float* o, float* lse, int64_t row) {
      if (apart != nullptr) {
        const float* const from = apart + row * (v_dim + 1);
        isa_.merge_row(o, lse, from, from[v_dim], v_dim);
      }
      if (*lse == kEmptyLse) std::fill_n(o, v_dim, 0.0f);
    });
  }

  void MergeSpan(const Unit& unit, const AttentionBlock& block, float* apart) const {
    const int v_dim = params_.shape.v_dim;
    const int64_t ahead = int64_t{kPositionsAhead} * params_.heads * v_dim;
    ForEachResult(unit, apart, [&](float* o, float* lse, int64_t row) {
      for (int d = 0; d < v_dim; d += kPanel) __builtin_prefetch(o + ahead + d, 1);
      isa_.merge_row(o, lse, block.o + row * block.v_stride, block.lse[row], v_dim);
    });
  }

  // A unit's spans one after the other, units side by side.
  absl::Status RunUnits(CpuStream& stream) const {
    const int64_t floats = StateFloats();
    const int64_t wide_floats = WideFloats();
    const int64_t thread_floats = floats + wide_floats + ApartFloats();
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch,
                             stream.Scratch(stream.threads() * thread_floats * sizeof(float)));
    stream.ParallelFor(units_.size(), [&](int64_t index, int thread) {
      const Unit& unit = units_[index];
      float* const own = reinterpret_cast<float*>(scratch) + thread * thread_floats;
      float* const apart = Apart(unit) ? own + floats + wide_floats : nullptr;
      AttentionBlock block = Block(unit, own);
      BeginResult(unit, apart);
      for (int64_t span = unit.first_span; span < unit.end_span; ++span) {
        AttendSpan(unit, span, block, own + floats);
        MergeSpan(unit, block, apart);
        block.queries_ready = true;
      }
      EndResult(unit, apart);
    });
    return absl::OkStatus();
  }

  // Spans side by side (decode: few rows, long past), in waves that bound the workspace. The
  // states are merged in the same order as above, with the same bits.
  absl::Status RunSpans(CpuStream& stream, int64_t spans) const {
    const int64_t floats = StateFloats();
    const int64_t wave = std::min(spans, std::clamp<int64_t>(kWaveBytes / (floats * sizeof(float)),
                                                             stream.threads(), kWaveSpans));
    const int64_t wide_floats = WideFloats();
    const int64_t apart_floats = ApartFloats();
    const int64_t units = units_.size();
    const int64_t all_floats =
        wave * floats + stream.threads() * wide_floats + units * apart_floats;
    ANNULUS_ASSIGN_OR_RETURN(std::byte * scratch, stream.Scratch(all_floats * sizeof(float)));
    float* const states = reinterpret_cast<float*>(scratch);
    float* const wide = states + wave * floats;
    float* const aparts = wide + stream.threads() * wide_floats;
    const auto apart = [&](int64_t unit) {
      return Apart(units_[unit]) ? aparts + unit * apart_floats : nullptr;
    };
    struct Task {
      int64_t unit;
      int64_t span;
    };
    std::vector<Task> tasks;
    const auto run = [&] {
      stream.ParallelFor(tasks.size(), [&](int64_t i, int thread) {
        const Unit& unit = units_[tasks[i].unit];
        AttendSpan(unit, tasks[i].span, Block(unit, states + i * floats),
                   wide + thread * wide_floats);
      });
      for (size_t i = 0; i < tasks.size(); ++i) {
        const Unit& unit = units_[tasks[i].unit];
        MergeSpan(unit, Block(unit, states + i * floats), apart(tasks[i].unit));
      }
      tasks.clear();
    };
    for (int64_t u = 0; u < units; ++u) {
      BeginResult(units_[u], apart(u));
      for (int64_t span = units_[u].first_span; span < units_[u].end_span; ++span) {
        tasks.push_back({u, span});
        if (static_cast<int64_t>(tasks.size()) == wave) run();
      }
    }
    run();
    for (int64_t u = 0; u < units; ++u) EndResult(units_[u], apart(u));
    return absl::OkStatus();
  }

  const SimdKernels& isa_;
  const AttentionParams& params_;
  const PageLayout layout_;
  const bool narrow_;  // 8-bit pages
  const int64_t element_bytes_;
  void (*const begin_)(const AttentionBlock&);
  void (*const keys_)(const AttentionBlock&, const AttentionKeys&);
  void (*const finish_)(const AttentionBlock&);
  const int group_;
  const int block_positions_;
  std::vector<Unit> units_;
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
