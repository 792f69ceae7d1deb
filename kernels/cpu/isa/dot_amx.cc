// Linear layers with AMX_BF16 tiles: TDPBF16PS multiplies 16 rows by 32 inputs of 16 columns.
// Compiled with AMX_TILE, AMX_BF16 and the instructions of isa/dot.h: see simd/kernels.h.
//
// An output is one chain of tile products in the order of the inputs (with weights in groups, one
// per group and a chain of the groups' scaled sums). A tile treats its rows alike and
// independently, so an output's bits depend on neither the number of rows nor their place. Few rows
// of quantised weights are multiplied by vectors, which take the very steps of a tile
// (isa/dot_few_rows.h).
#include "kernels/cpu/host/flush_subnormals.h"
#include "kernels/cpu/isa/dot_few_rows.h"
#include "kernels/cpu/isa/dot_int8_groups.h"

namespace annulus::cpu {
namespace {

constexpr int kTileRows16 = 16;
// The inputs of a task in one pass, 256 KiB, are read once from beyond the second-level cache and
// then pass by for every two panels.
constexpr int kTaskRows = 256;
constexpr int kTaskColumns = 256;
constexpr int kTaskPanels = kTaskColumns / kPanel;
constexpr int64_t kTileDepth = 32;  // inputs of one tile
constexpr int64_t kTileBytes = 1024;
constexpr int64_t kFetchTiles = 4;  // weights that are asked for before they are used

struct Workspace {
  union {
    float sums[kTaskRows][kTaskColumns];
    int32_t int8_sums[kTaskRows][kTaskColumns];
  };
  float groups[4][kTileRows16][kPanel];
  char widened[kTaskPanels][kDotDepth / 2 * kPairBytes];
};

// Tiles 0 to 3 are sums, [row tile][panel]; 4 and 5 inputs; 6 and 7 weights.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);

constexpr int64_t kSumsStride = kTaskColumns * sizeof(float);

// Inputs [k, k + depth) of a task's rows; `weights` are those inputs of the first panel.
struct Pass {
  const DotTask& task;
  int64_t k;
  int64_t depth;
  const char* weights;
  int64_t panel_stride;
  bool stored;  // the weights are used where they are stored, else they were just widened
  Workspace& work;

  const char* input(int row) const {
    return static_cast<const char*>(task.input) + row * task.input_stride + k * 2;
  }
  const char* panel(int p) const { return weights + p * panel_stride; }

  // The stored weights of the two panels that come after panels p and p + 1, in this pass or the
  // next; null: they are another task's.
  const char* panels_after(int p) const {
    if ((p + 2) * kPanel < task.columns) return panel(p + 2);
    return k + depth < task.depth ? weights + depth / 2 * kPairBytes : nullptr;
  }
};

// Asks for the weights of two panels while others are multiplied, some lines with each product, so
// that reads of memory are never waited for. Into the second-level cache: the first has no room.
struct FetchPanels {
  const char* line = nullptr;
  int lines = 0;  // with each product
  int64_t panel_stride = 0;

  void Ask() {
    for (int i = 0; i < lines; ++i, line += kPairBytes) {
      _mm_prefetch(line, _MM_HINT_T1);
      _mm_prefetch(line + panel_stride, _MM_HINT_T1);
    }
  }
};

// 16 or 32 rows by one or two panels. kFetch: the weights come from memory.
template <int kRowTiles, int kPanels, bool kFetch>
void MultiplyTiles(const Pass& pass, int row, int panel, FetchPanels& fetch) {
  float* const sums = pass.work.sums[row] + panel * kPanel;
  constexpr int64_t kNextRows = kTileRows16 * kTaskColumns;
  if (pass.k == 0) {
    _tile_zero(0);
    if constexpr (kPanels == 2) _tile_zero(1);
    if constexpr (kRowTiles == 2) _tile_zero(2);
    if constexpr (kRowTiles == 2 && kPanels == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, sums, kSumsStride);
    if constexpr (kPanels == 2) _tile_loadd(1, sums + kPanel, kSumsStride);
    if constexpr (kRowTiles == 2) _tile_loadd(2, sums + kNextRows, kSumsStride);
    if constexpr (kRowTiles == 2 && kPanels == 2) {
      _tile_loadd(3, sums + kNextRows + kPanel, kSumsStride);
    }
  }
  const int64_t stride = pass.task.input_stride;
  const char* input = pass.input(row);
  const char* next_input = kRowTiles == 2 ? pass.input(row + kTileRows16) : input;
  const char* weights = pass.panel(panel);
  const char* next_weights = kPanels == 2 ? pass.panel(panel + 1) : weights;
  // From where this pass ends in a panel to where it begins in the next panels.
  const int64_t next_panels = kPanels * pass.panel_stride - pass.depth / 2 * kPairBytes;
  for (int64_t k = 0; k < pass.depth; k += kTileDepth) {
    if constexpr (kFetch) {
      const bool in_panel = k + kFetchTiles * kTileDepth < pass.depth;
      const char* const ahead = weights + kFetchTiles * kTileBytes + (in_panel ? 0 : next_panels);
      for (int64_t i = 0; i < kTileBytes; i += 64) {
        _mm_prefetch(ahead + i, _MM_HINT_T0);
        if constexpr (kPanels == 2) _mm_prefetch(ahead + pass.panel_stride + i, _MM_HINT_T0);
      }
    }
    fetch.Ask();
    _tile_loadd(6, weights, kPairBytes);
    _tile_loadd(4, input, stride);
    _tile_dpbf16ps(0, 4, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, next_weights, kPairBytes);
      _tile_dpbf16ps(1, 4, 7);
    }
    if constexpr (kRowTiles == 2) {
      _tile_loadd(5, next_input, stride);
      _tile_dpbf16ps(2, 5, 6);
    }
    if constexpr (kRowTiles == 2 && kPanels == 2) _tile_dpbf16ps(3, 5, 7);
    weights += kTileBytes;
    next_weights += kTileBytes;
    input += kTileDepth * 2;
    next_input += kTileDepth * 2;
  }
  _tile_stored(0, sums, kSumsStride);
  if constexpr (kPanels == 2) _tile_stored(1, sums + kPanel, kSumsStride);
  if constexpr (kRowTiles == 2) _tile_stored(2, sums + kNextRows, kSumsStride);
  if constexpr (kRowTiles == 2 && kPanels == 2) {
    _tile_stored(3, sums + kNextRows + kPanel, kSumsStride);
  }
}

template <int kRowTiles, int kPanels>
void MultiplyRows(const Pass& pass, int row, int panel, FetchPanels& fetch) {
  const bool first = pass.stored && row == 0;
  first ? MultiplyTiles<kRowTiles, kPanels, true>(pass, row, panel, fetch)
        : MultiplyTiles<kRowTiles, kPanels, false>(pass, row, panel, fetch);
}

// totals += sums of one group times its scales (+ its minimums times the inputs), for the rows of
// one tile.
template <class Scales>
void AddGroup(const Pass& pass, const float (&sums)[kTileRows16][kPanel], int row, int panel,
              int64_t group) {
  const __m512 scale = Scales::Scale(pass.task, panel, group);
  __m512 minimum;
  if constexpr (Scales::kMinimum) minimum = Scales::Minimum(pass.task, panel, group);
  const int rows = pass.task.rows - row < kTileRows16 ? pass.task.rows - row : kTileRows16;
  float* total = pass.work.sums[row] + panel * kPanel;
  for (int r = 0; r < rows; ++r, total += kTaskColumns) {
    const __m512 old = group == 0 ? _mm512_setzero_ps() : _mm512_load_ps(total);
    __m512 sum = _mm512_fmadd_ps(_mm512_load_ps(sums[r]), scale, old);
    if constexpr (Scales::kMinimum) {
      sum = _mm512_fmadd_ps(minimum, Scales::InputSum(pass.task, row + r, group), sum);
    }
    _mm512_store_ps(total, sum);
  }
}

// 16 rows by one or two panels, group by group: two groups at a time, so that one can be multiplied
// while the other is added.
template <class Scales, int kPanels>
void MultiplyGroups(const Pass& pass, int row, int panel) {
  const int64_t tiles = pass.task.group / kTileDepth;
  const int64_t stride = pass.task.input_stride;
  auto& sums = pass.work.groups;
  int64_t group = pass.k / pass.task.group;
  for (int64_t k = 0; k < pass.depth; k += pass.task.group, ++group) {
    _tile_zero(0);
    if constexpr (kPanels == 2) _tile_zero(1);
    for (int64_t t = 0; t < tiles; ++t) {
      const int64_t from = k + t * kTileDepth;
      _tile_loadd(4, pass.input(row) + from * 2, stride);
      _tile_loadd(6, pass.panel(panel) + from / 2 * kPairBytes, kPairBytes);
      _tile_dpbf16ps(0, 4, 6);
      if constexpr (kPanels == 2) {
        _tile_loadd(7, pass.panel(panel + 1) + from / 2 * kPairBytes, kPairBytes);
        _tile_dpbf16ps(1, 4, 7);
      }
    }
    const int64_t slot = group % 2 * 2;
    _tile_stored(0, sums[slot], kPairBytes);
    if constexpr (kPanels == 2) _tile_stored(1, sums[slot + 1], kPairBytes);
    AddGroup<Scales>(pass, sums[slot], row, panel, group);
    if constexpr (kPanels == 2) AddGroup<Scales>(pass, sums[slot + 1], row, panel + 1, group);
  }
}

template <class Scales>
void RunPanels(const Pass& pass, int panel, int panels) {
  const int rows = pass.task.rows;
  const char* const after = pass.stored ? pass.panels_after(panel) : nullptr;
  FetchPanels fetch;
  if (after != nullptr && rows > 2 * kTileRows16) {
    const int steps = (rows + 2 * kTileRows16 - 1) / (2 * kTileRows16);
    fetch = {after, (kTileRows16 + steps - 1) / steps, pass.panel_stride};
  }
  for (int row = 0; row < rows;) {
    if constexpr (Scales::kGroups) {
      panels == 2 ? MultiplyGroups<Scales, 2>(pass, row, panel)
                  : MultiplyGroups<Scales, 1>(pass, row, panel);
      row += kTileRows16;
    } else if (rows - row > kTileRows16) {
      panels == 2 ? MultiplyRows<2, 2>(pass, row, panel, fetch)
                  : MultiplyRows<2, 1>(pass, row, panel, fetch);
      row += 2 * kTileRows16;
    } else {
      panels == 2 ? MultiplyRows<1, 2>(pass, row, panel, fetch)
                  : MultiplyRows<1, 1>(pass, row, panel, fetch);
      row += kTileRows16;
    }
  }
}

// Two panels of weights stay in the first-level cache while the rows pass by.
template <class Scales>
void RunPass(const Pass& pass) {
  const int panels = (pass.task.columns + kPanel - 1) / kPanel;
  for (int panel = 0; panel < panels; panel += 2) {
    RunPanels<Scales>(pass, panel, panels - panel > 1 ? 2 : 1);
  }
}

template <class Codes, class Scales>
void RunTiles(const DotTask& task, Workspace& work) {
  constexpr bool kStored = Codes::kPairs == 1;  // as pairs already
  const TileConfig config;
  _tile_loadconfig(&config);
  // Up to 32 rows pass each weight once: blocks would only break the stream of reads.
  const int64_t stored_block = task.rows <= 2 * kTileRows16 ? task.depth : 2 * kDotDepth;
  const int64_t block = kStored ? stored_block : kDotDepth;
  for (int64_t k = 0; k < task.depth; k += block) {
    const int64_t depth = task.depth - k < block ? task.depth - k : block;
    if constexpr (kStored) {
      const char* const panels = static_cast<const char*>(task.panels) + k / 2 * kPairBytes;
      RunPass<Scales>({task, k, depth, panels, task.panel_bytes, true, work});
    } else {
      const Codes codes;
      for (int panel = 0; panel * kPanel < task.columns; ++panel) {
        WidenDotPanel(codes, task, panel, k, depth, work.widened[panel]);
      }
      RunPass<Scales>({task, k, depth, work.widened[0], sizeof(work.widened[0]), false, work});
    }
  }
  _tile_release();
}

// Scales: of groups, see isa/dot.h. kScaled: there is one for each column.
template <class Codes, bool kScaled, class Scales>
void Linear(const DotTask& task) {
  Workspace& work = *static_cast<Workspace*>(task.workspace);
  const FlushSubnormals flush;  // beside the tiles, which do it too
  if (Codes::kPairs > 1 && task.rows <= kFewRows) {
    MultiplyFewRows<Codes, Scales>(task, work.sums[0], kTaskColumns);
  } else {
    RunTiles<Codes, Scales>(task, work);
  }
  for (int row = 0; row < task.rows; ++row) StoreDotRow<kScaled>(task, work.sums[row], row);
}

// 16 or 32 rows by one or two panels of int8 over inputs [k, k + depth), multiples of 64.
template <int kRowTiles, int kPanels>
void MultiplyInt8Tiles(const DotTask& task, int row, int panel, int64_t k, int64_t depth,
                       int32_t (*sums)[kTaskColumns]) {
  int32_t* const from = sums[row] + panel * kPanel;
  constexpr int64_t kNextRows = kTileRows16 * kTaskColumns;
  if (k == 0) {
    _tile_zero(0);
    if constexpr (kPanels == 2) _tile_zero(1);
    if constexpr (kRowTiles == 2) _tile_zero(2);
    if constexpr (kRowTiles == 2 && kPanels == 2) _tile_zero(3);
  } else {
    _tile_loadd(0, from, kSumsStride);
    if constexpr (kPanels == 2) _tile_loadd(1, from + kPanel, kSumsStride);
    if constexpr (kRowTiles == 2) _tile_loadd(2, from + kNextRows, kSumsStride);
    if constexpr (kRowTiles == 2 && kPanels == 2) {
      _tile_loadd(3, from + kNextRows + kPanel, kSumsStride);
    }
  }
  const char* input = static_cast<const char*>(task.input) + row * task.input_stride + k;
  const char* weights = DotPanel(task, panel) + k * kPanel;
  for (int64_t i = 0; i < depth; i += 64, input += 64, weights += kTileBytes) {
    _tile_loadd(6, weights, 64);
    _tile_loadd(4, input, task.input_stride);
    _tile_dpbusd(0, 4, 6);
    if constexpr (kPanels == 2) {
      _tile_loadd(7, weights + task.panel_bytes, 64);
      _tile_dpbusd(1, 4, 7);
    }
    if constexpr (kRowTiles == 2) {
      _tile_loadd(5, input + kTileRows16 * task.input_stride, task.input_stride);
      _tile_dpbusd(2, 5, 6);
    }
    if constexpr (kRowTiles == 2 && kPanels == 2) _tile_dpbusd(3, 5, 7);
  }
  _tile_stored(0, from, kSumsStride);
  if constexpr (kPanels == 2) _tile_stored(1, from + kPanel, kSumsStride);
  if constexpr (kRowTiles == 2) _tile_stored(2, from + kNextRows, kSumsStride);
  if constexpr (kRowTiles == 2 && kPanels == 2) {
    _tile_stored(3, from + kNextRows + kPanel, kSumsStride);
  }
}

void RunInt8Tiles(const DotTask& task, int32_t (*sums)[kTaskColumns]) {
  const TileConfig config;
  _tile_loadconfig(&config);
  const int panels = (task.columns + kPanel - 1) / kPanel;
  constexpr int64_t kBlock = 4 * kDotDepth;  // bytes of inputs as in RunTiles
  for (int64_t k = 0; k < task.depth; k += kBlock) {
    const int64_t depth = task.depth - k < kBlock ? task.depth - k : kBlock;
    for (int panel = 0; panel < panels; panel += 2) {
      const bool two = panels - panel > 1;
      for (int row = 0; row < task.rows;) {
        if (task.rows - row > kTileRows16) {
          (two ? MultiplyInt8Tiles<2, 2> : MultiplyInt8Tiles<2, 1>)(task, row, panel, k, depth,
                                                                    sums);
          row += 2 * kTileRows16;
        } else {
          (two ? MultiplyInt8Tiles<1, 2> : MultiplyInt8Tiles<1, 1>)(task, row, panel, k, depth,
                                                                    sums);
          row += kTileRows16;
        }
      }
    }
  }
  _tile_release();
}

void LinearInt8(const DotTask& task) {
  Workspace& work = *static_cast<Workspace*>(task.workspace);
  if (task.rows <= kFewRows) {
    MultiplyInt8Rows(task, work.int8_sums[0], kTaskColumns);
  } else {
    RunInt8Tiles(task, work.int8_sums);
  }
  StoreInt8Rows(task, work.int8_sums[0], kTaskColumns);
}

constexpr DotKernels kKernels = {
    .task_rows = kTaskRows,
    .task_columns = kTaskColumns,
    .row_multiple = kTileRows16,
    .workspace_bytes = sizeof(Workspace),
    .pack_row = PackDotRow,
    .pack_int8_row = {nullptr, nullptr, nullptr, nullptr, nullptr, QuantizeDotRow,
                      QuantizeGroupedRow<Int4Weights>, QuantizeGroupedRow<Int4Weights>,
                      QuantizeGroupedRow<Q8_0Weights>, QuantizeGroupedRow<Q4_0Weights>,
                      QuantizeGroupedRow<Q4_1Weights>},
    .linear_int8 = {nullptr, nullptr, nullptr, nullptr, nullptr, LinearInt8,
                    LinearInt8Groups<Int4Weights>, LinearInt8Groups<Int4Weights>,
                    LinearInt8Groups<Q8_0Weights>, LinearInt8Groups<Q4_0Weights>,
                    LinearInt8Groups<Q4_1Weights>},
    .pack_fixed_row = {nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr, nullptr,
                       nullptr, nullptr, PackSummedRow},
    .linear = {nullptr, Linear<PairCodes, false, NoGroups>, nullptr,
               Linear<ByteCodes<E4M3>, true, NoGroups>, Linear<ByteCodes<E5M2>, true, NoGroups>,
               Linear<ByteCodes<int8_t>, true, NoGroups>,
               Linear<HalfByteCodes<8>, false, Bf16Scales>,
               Linear<HalfByteCodes<8>, false, Bf16Scales>,
               Linear<WholeByteCodes, false, HalfScales>,
               Linear<HalfByteCodes<8>, false, HalfScales>,
               Linear<HalfByteCodes<0>, false, HalfScalesAndMinimums>},
};

}  // namespace

const DotKernels& AmxDotKernels() { return kKernels; }

}  // namespace annulus::cpu
