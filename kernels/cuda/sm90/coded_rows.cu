// See coded_rows.h. The formulas are those of row_values.h. Bound by the latency of a few steps:
// - the block loads what it needs into its shared memory, many loads of a thread at a time: of a
//   gated product its part of both factors; of a norm the whole row, because sums over a row have
//   one order, and its part of the weights;
// - it computes its part there, and its largest magnitude. From the largest of all blocks follows
//   the row's scale;
// - it writes its part of the output and of the codes. No block writes before all have read, so the
//   output may be the input.
// For each row of c columns, in float32: a norm reads 9 c elements (a row for each block, mostly
// from the L2 cache, and the weights), a gated product 2 c. Both write c, and c codes. Compiled
// without contraction.
#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/overlap.h"
#include "kernels/cuda/sm80/rows/row_values.h"
#include "kernels/cuda/sm90/coded_rows.h"

namespace annulus::cuda {
namespace {

constexpr int kBlocks = kMostClusterBlocks;
constexpr int kAtOnce = 8;  // loads of a thread that are under way together, from each source

// Shared memory: what sums over the block take, the block's largest magnitude, its part of the
// values, and a norm's whole row or the part of a gated product's second factor.
constexpr size_t kLargestAt = kRowWarps * sizeof(float);
constexpr size_t kValuesAt = 64;
static_assert(kLargestAt + sizeof(uint32_t) <= kValuesAt);

// Columns of each block, the last ones less: whole steps, so that no form of codes crosses a part.
constexpr int64_t PartColumns(int64_t depth) {
  return (depth + kBlocks * kDepthStep - 1) / (kBlocks * kDepthStep) * kDepthStep;
}

// The block's part of a row: columns begin .. begin + count - 1, of which the last ones may be
// padding; `filled` are not.
struct Part {
  int begin;
  int count;
  int filled;
};

ANNULUS_DEVICE Part PartOfBlock(const CodedRowsArguments& a, int cols) {
  const int depth = static_cast<int>(a.codes.depth);
  const int size = static_cast<int>(PartColumns(depth));
  const int begin = Smaller(ClusterRank() * size, depth);
  const int count = Smaller(size, depth - begin);
  return {begin, count, Smaller(count, Larger(cols - begin, 0))};
}

// `count` elements from global to shared memory.
struct Source {
  const float* from;
  int count;
  float* into;
};

// Thread t copies elements t, t + kRowThreads ..
ANNULUS_DEVICE void Load(const Source& a, const Source& b) {
  const int most = Larger(a.count, b.count);
  for (int first = ThreadIndex(); first < most; first += kAtOnce * kRowThreads) {
    float of_a[kAtOnce];
    float of_b[kAtOnce];
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kRowThreads;
      of_a[n] = i < a.count ? a.from[i] : 0;
      of_b[n] = i < b.count ? b.from[i] : 0;
    }
#pragma unroll
    for (int n = 0; n < kAtOnce; ++n) {
      const int i = first + n * kRowThreads;
      if (i < a.count) a.into[i] = of_a[n];
      if (i < b.count) b.into[i] = of_b[n];
    }
  }
}

// Fills the block's part of `values` and returns this thread's largest magnitude.
ANNULUS_DEVICE uint32_t MakeNormed(const NormParams& a, int64_t row, const Part& part,
                                   float* values, float* whole) {
  const int cols = static_cast<int>(a.output.cols);
  Load({a.input.row(row), cols, whole}, {a.weight_of(row) + part.begin, part.filled, values});
  SyncThreads();
  const RowNorm norm = NormOfRow(a.norm, whole, cols);
  uint32_t largest = 0;
  for (int i = ThreadIndex(); i < part.count; i += kRowThreads) {
    const int column = part.begin + i;
    values[i] = i < part.filled ? Normalised(norm, whole[column], values[i], a.bias, column) : 0.0f;
    largest = Larger(largest, MagnitudeOf(values[i]));
  }
  return largest;
}

ANNULUS_DEVICE uint32_t MakeGated(const GatedMulParams& a, int64_t row, const Part& part,
                                  float* values, float* ups) {
  Load({a.gate.row(row) + part.begin, part.filled, values},
       {a.up.row(row) + part.begin, part.filled, ups});
  uint32_t largest = 0;
  for (int i = ThreadIndex(); i < part.count; i += kRowThreads) {
    values[i] = i < part.filled ? Gated(a, values[i], ups[i]) : 0.0f;
    largest = Larger(largest, MagnitudeOf(values[i]));
  }
  return largest;
}

// The largest magnitude of the cluster's row, from those of its threads.
ANNULUS_DEVICE uint32_t LargestOfCluster(uint32_t largest) {
  auto* const place = reinterpret_cast<uint32_t*>(SharedMemory() + kLargestAt);
  SyncThreads();  // sums have been read
  largest = LargestOfBlock(largest);
  if (ThreadIndex() == 0) *place = largest;
  SyncCluster();
#pragma unroll
  for (int rank = 0; rank < kBlocks; ++rank) largest = Larger(largest, *InBlock(place, rank));
  return largest;
}

ANNULUS_CLUSTER_KERNEL(kBlocks, kRowThreads, 4)
CodedRowsKernel(ANNULUS_ARGUMENT CodedRowsArguments a) {
  LetNextBegin();
  WaitForEarlier();
  const int64_t row = BlockX() / kBlocks;
  const MatrixView output = a.op.output();
  const Part part = PartOfBlock(a, static_cast<int>(output.cols));
  auto* const values = reinterpret_cast<float*>(SharedMemory() + kValuesAt);
  float* const beside = values + PartColumns(a.codes.depth);
  const uint32_t largest =
      LargestOfCluster(a.op.is_norm() ? MakeNormed(a.op.norm, row, part, values, beside)
                                      : MakeGated(a.op.gated, row, part, values, beside));
  const Float8Scale scale = Float8ScaleOf(largest);
  if (ClusterRank() == 0 && ThreadIndex() == 0) a.codes.scales[row] = scale.scale;
  float* const to = output.row(row) + part.begin;
  for (int i = ThreadIndex(); i < part.filled; i += kRowThreads) to[i] = values[i];
  for (int four = ThreadIndex(); four < part.count / 4; four += kRowThreads) {
    const float* const own = values + 4 * four;
    const float four_values[4] = {own[0], own[1], own[2], own[3]};
    StoreFourCodes(a.codes, row, part.begin / 4 + four, scale, four_values);
  }
  SyncCluster();  // no block ends while another one reads its largest magnitude
}

}  // namespace

size_t CodedRowsBytes(const RowsOp& op, int64_t depth) {
  const int64_t part = PartColumns(depth);
  return kValuesAt +
         static_cast<size_t>(part + (op.is_norm() ? op.norm.output.cols : part)) * sizeof(float);
}

int LaunchCodedRows(StreamHandle stream, const CodedRowsArguments& arguments) {
  const Grid grid{.x = arguments.op.output().rows * kBlocks,
                  .threads = kRowThreads,
                  .shared_bytes = CodedRowsBytes(arguments.op, arguments.codes.depth)};
  return LaunchInClusters<CodedRowsKernel, kBlocks>(stream, Overlapping(stream, grid), arguments);
}

}  // namespace annulus::cuda
