// Linear layers with VDPBF16PS. Compiled with AVX512_BF16 and AVX512_VBMI: see simd/kernels.h.
//
// An output is one chain of dot products in the order of the inputs, in every tile. So its bits
// depend on neither the number of rows nor their place. Integer weights are multiplied as integers.
#include "kernels/cpu/isa/dot.h"
#include "kernels/cpu/isa/dot_fixed.h"
#include "kernels/cpu/isa/dot_int8_groups.h"

namespace annulus::cpu {
namespace {

constexpr int kTaskRows = 96;
constexpr int kTaskColumns = 64;
constexpr int kTaskPanels = kTaskColumns / kPanel;

struct Workspace {
  union {
    float sums[kTaskRows][kTaskColumns];
    int32_t int8_sums[kTaskRows][kTaskColumns];
  };
  char widened[kTaskPanels][kDotDepth / 2 * kPairBytes];
};

// One register tile's operands: rows of packed input and panels of weights, from the same input on.
struct Tile {
  const char* input;
  int64_t input_stride;
  const char* weights;
  int64_t panel_stride;
  float* sums;  // row r, panel p at sums + r * kTaskColumns + p * kPanel
};

ANNULUS_DOT_INLINE __m512 Dot(__m512 sum, const char* input, __m512i weights) {
  int32_t pair;
  __builtin_memcpy(&pair, input, sizeof(pair));
  return _mm512_dpbf16_ps(sum, (__m512bh)_mm512_set1_epi32(pair), (__m512bh)weights);
}

// sum[r][p] += input * weights over `depth` inputs from `k` on.
template <class Codes, int kRows, int kPanels>
ANNULUS_DOT_INLINE void Accumulate(const Codes& codes, const Tile& tile, int64_t k, int64_t depth,
                                   __m512 (&sum)[kRows][kPanels]) {
  constexpr int64_t kInputs = 2 * Codes::kPairs;
  const char* weights = tile.weights + k / kInputs * 64;
  const char* input = tile.input + k * 2;
  for (int64_t i = 0; i < depth; i += kInputs, weights += 64, input += kInputs * 2) {
    const int64_t ahead = DotAhead((k + i) / kInputs * 64, tile.panel_stride, kPanels);
    __m512i pairs[kPanels][Codes::kPairs];
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      codes.Widen(weights + p * tile.panel_stride, pairs[p]);
      if constexpr (kRows < 4) {  // weights that come from memory
        FetchFar(weights + p * tile.panel_stride + ahead);
      }
    }
#pragma GCC unroll 8
    for (int j = 0; j < Codes::kPairs; ++j) {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
        for (int p = 0; p < kPanels; ++p) {
          sum[r][p] = Dot(sum[r][p], input + r * tile.input_stride + j * 4, pairs[p][j]);
        }
      }
    }
  }
}

// Sums over inputs [0, depth), on top of what `sums` holds unless `fresh`.
template <class Codes, int kRows, int kPanels>
void MultiplyTile(const Codes& codes, const Tile& tile, int64_t depth, bool fresh) {
  __m512 sum[kRows][kPanels];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      sum[r][p] =
          fresh ? _mm512_setzero_ps() : _mm512_load_ps(tile.sums + r * kTaskColumns + p * kPanel);
    }
  }
  Accumulate(codes, tile, 0, depth, sum);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int p = 0; p < kPanels; ++p) {
      _mm512_store_ps(tile.sums + r * kTaskColumns + p * kPanel, sum[r][p]);
    }
  }
}

// Rows of a task by inputs [k, k + depth). `weights` are those inputs of the first panel.
struct Pass {
  const DotTask& task;
  int64_t k;
  int64_t depth;
  const char* weights;
  int64_t panel_stride;
  Workspace& work;
};

template <class Codes, int kRows, int kPanels>
void RunTile(const Codes& codes, const Pass& pass, int row, int panel) {
  const DotTask& task = pass.task;
  Tile tile;
  tile.input = static_cast<const char*>(task.input) + row * task.input_stride + pass.k * 2;
  tile.input_stride = task.input_stride;
  tile.weights = pass.weights + panel * pass.panel_stride;
  tile.panel_stride = pass.panel_stride;
  tile.sums = pass.work.sums[row] + panel * kPanel;
  MultiplyTile<Codes, kRows, kPanels>(codes, tile, pass.depth, pass.k == 0);
}

// kRows rows by all panels, kPanels at a time.
template <class Codes, int kRows, int kPanels>
void RunPanels(const Codes& codes, const Pass& pass, int row) {
  const int panels = (pass.task.columns + kPanel - 1) / kPanel;
  int panel = 0;
  for (; panel + kPanels <= panels; panel += kPanels) {
    RunTile<Codes, kRows, kPanels>(codes, pass, row, panel);
  }
  for (; panel < panels; ++panel) RunTile<Codes, kRows, 1>(codes, pass, row, panel);
}

// All rows, six at a time: 6 x 4 sums of the 32 registers.
void RunRows(const Pass& pass) {
  const PairCodes codes;
  const int rows = pass.task.rows;
  int row = 0;
  for (; row + 6 <= rows; row += 6) RunPanels<PairCodes, 6, 4>(codes, pass, row);
  switch (rows - row) {
    case 5:
      return RunPanels<PairCodes, 5, 4>(codes, pass, row);
    case 4:
      return RunPanels<PairCodes, 4, 4>(codes, pass, row);
    case 3:
      return RunPanels<PairCodes, 3, 4>(codes, pass, row);
    case 2:
      return RunPanels<PairCodes, 2, 4>(codes, pass, row);
    case 1:
      return RunPanels<PairCodes, 1, 4>(codes, pass, row);
    default:
      return;
  }
}

// Few rows: weights are widened in registers, once per tile.
template <class Codes>
void RunFewRows(const Pass& pass) {
  const Codes codes;
  switch (pass.task.rows) {
    case 1:
      return RunPanels<Codes, 1, 4>(codes, pass, 0);
    case 2:
      return RunPanels<Codes, 2, 4>(codes, pass, 0);
    default:
      return RunPanels<Codes, 3, 2>(codes, pass, 0);
  }
}
constexpr int kFewRows = 3;

template <class Codes, bool kScaled>
void Linear(const DotTask& task) {
  Workspace& work = *static_cast<Workspace*>(task.workspace);
  constexpr bool kStored = Codes::kPairs == 1;  // as pairs already
  const char* const panels = static_cast<const char*>(task.panels);
  if (task.rows <= kFewRows) {
    RunFewRows<Codes>({task, 0, task.depth, panels, task.panel_bytes, work});
  } else {
    for (int64_t k = 0; k < task.depth; k += kDotDepth) {
      const int64_t depth = task.depth - k < kDotDepth ? task.depth - k : kDotDepth;
      if constexpr (kStored) {
        RunRows({task, k, depth, panels + k / 2 * kPairBytes, task.panel_bytes, work});
      } else {
        const Codes codes;
        for (int panel = 0; panel * kPanel < task.columns; ++panel) {
          WidenDotPanel(codes, task, panel, k, depth, work.widened[panel]);
        }
        RunRows({task, k, depth, work.widened[0], sizeof(work.widened[0]), work});
      }
    }
  }
  for (int row = 0; row < task.rows; ++row) StoreDotRow<kScaled>(task, work.sums[row], row);
}

void LinearInt8(const DotTask& task) {
  int32_t* const sums = static_cast<Workspace*>(task.workspace)->int8_sums[0];
  MultiplyInt8Rows(task, sums, kTaskColumns);
  StoreInt8Rows(task, sums, kTaskColumns);
}

constexpr DotKernels kKernels = {
    .task_rows = kTaskRows,
    .task_columns = kTaskColumns,
    .row_multiple = 1,
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
    .pack_fixed_row = {nullptr, nullptr, nullptr, nullptr, nullptr, PackFixedRow<Int8Weights>,
                       PackFixedRow<Int4Weights>, PackFixedRow<Int4Weights>,
                       PackFixedRow<Q8_0Weights>, PackFixedRow<Q4_0Weights>,
                       PackFixedRow<Q4_1Weights>},
    .linear = {nullptr, Linear<PairCodes, false>, nullptr, Linear<ByteCodes<E4M3>, true>,
               Linear<ByteCodes<E5M2>, true>, LinearFixed<Int8Weights>, LinearFixed<Int4Weights>,
               LinearFixed<Int4Weights>, LinearFixed<Q8_0Weights>, LinearFixed<Q4_0Weights>,
               LinearFixed<Q4_1Weights>},
};

}  // namespace

const DotKernels& Avx512Bf16DotKernels() { return kKernels; }

}  // namespace annulus::cpu
