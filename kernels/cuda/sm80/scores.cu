// Summaries of pages and their scores, scores of blocks for pages of float32 (of others:
// block_scores.cu), and what is pooled of scores and of rows, all in float32.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/scores_rows.h"
#include "kernels/ops/block_scores.h"

namespace annulus::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kChunk = 16;      // keys in shared memory at a time
constexpr int kOwnQueries = 4;  // of a lane, that share a reading of its summary

ANNULUS_DEVICE float KeyAt(const PageLayout& layout, const std::byte* page, int head, int64_t slot,
                           int d) {
  const float key = LoadElement(layout.dtype, page + layout.Key(head, slot), d);
  if (layout.dtype != DType::kI8) return key;
  return key *
         WidenBFloat16(*reinterpret_cast<const uint16_t*>(page + layout.KeyScale(head, slot)));
}

// The score of one tile of keys for one row group and query head, by a whole warp: the mean over
// the antidiagonal. `sub`: the tile's first key in the chunk, which begins at `slot`. Whether any
// pair is there.
ANNULUS_DEVICE bool TileScore(const BlockScoresArguments& a, const ScoresItemView& item,
                              const RowGroup& rows, int head, const float* keys, int slot, int sub,
                              int tokens, float& score) {
  const int dim = a.layout.k_dim;
  float sum = 0;
  int pairs = 0;
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    const int t = sub + MeetingSlot(item.positions[r], a.stride);
    if (slot + t >= tokens) continue;
    const float* const query = item.query + r * item.query_stride + int64_t{head} * dim;
    const float* const key = keys + t * (dim + 1);
    for (int d = Lane(); d < dim; d += kWarp) sum += query[d] * key[d];
    ++pairs;
  }
  if (pairs == 0) return false;
  score = a.scale * WarpSum(sum) / static_cast<float>(pairs);
  if (a.soft_cap > 0) score = a.soft_cap * tanhf(score / a.soft_cap);
  return true;
}

// In float32: a warp has every fourth pair of a row group and a query head; what it has summed up
// so far lies in shared memory after the keys.
ANNULUS_KERNEL(kThreads, 2) BlockScoresKernel(ANNULUS_ARGUMENT BlockScoresArguments a) {
  const int dim = a.layout.k_dim;
  float* const keys = reinterpret_cast<float*>(SharedMemory());
  LogSum* const sums = reinterpret_cast<LogSum*>(keys + kChunk * (dim + 1));
  const ScoresUnit unit = a.units[BlockX()];
  const ScoresItemView item = a.items[unit.item];
  const int kv_head = static_cast<int>(BlockY());
  const int pairs = unit.group_count * a.group;
  for (int i = ThreadIndex(); i < pairs; i += kThreads) sums[i] = {-FloatOf(0x7f800000u), 0};
  for (int p = unit.page_begin; p < unit.page_end; ++p) {
    const KvPageView page = item.pages[p];
    for (int slot = 0; slot < page.tokens; slot += kChunk) {
      SyncThreads();  // the chunk before has been read
      const int present = Smaller(page.tokens - slot, kChunk);
      for (int i = ThreadIndex(); i < present * dim; i += kThreads) {
        keys[i / dim * (dim + 1) + i % dim] =
            KeyAt(a.layout, page.data, kv_head, slot + i / dim, i % dim);
      }
      SyncThreads();
      for (int i = WarpIndex(); i < pairs; i += kWarps) {
        const RowGroup rows = item.groups[unit.first_group + i / a.group];
        LogSum own = sums[i];
        for (int sub = 0; sub < kChunk; sub += a.stride) {
          if ((page.first_position + slot + sub) / a.stride > rows.tile) break;
          const int head = kv_head * a.group + i % a.group;
          if (LeavesOut(item, rows.tile, head, page.first_position + slot + sub)) continue;
          float score;
          if (TileScore(a, item, rows, head, keys, slot, sub, page.tokens, score)) {
            own.Add(score);
          }
        }
        SyncWarp();  // all lanes have read the sum
        if (Lane() == 0) sums[i] = own;
        SyncWarp();
      }
    }
  }
  SyncThreads();
  for (int i = ThreadIndex(); i < pairs; i += kThreads) {
    const int64_t list =
        int64_t{unit.first_group + i / a.group} * a.heads + kv_head * a.group + i % a.group;
    item.scores[list * item.blocks + unit.block] = sums[i].Log();
  }
}

// Where a summary begins in its run's planes, of all kv heads.
ANNULUS_DEVICE float* SummaryAt(const SummaryRunsView& at, int64_t page, int part, int parts,
                                int64_t columns) {
  return at.runs[page / at.pages] + (page % at.pages * parts + part) * columns;
}

// Block (part of a page, kv head).
ANNULUS_KERNEL(kThreads, 8) KeySummaryKernel(ANNULUS_ARGUMENT KeySummaryArguments a) {
  const KvPageView page = a.pages[BlockX() / a.parts];
  const auto part = static_cast<int>(BlockX() % a.parts);
  const int begin = part * a.part_tokens;
  const int end = page.tokens - begin < a.part_tokens ? page.tokens : begin + a.part_tokens;
  const int head = static_cast<int>(BlockY());
  const float infinity = FloatOf(0x7f800000u);
  const int64_t columns = int64_t{a.layout.kv_heads} * a.layout.k_dim;
  float* const to = SummaryAt(a.to, a.first + BlockX() / a.parts, part, a.parts, columns) +
                    int64_t{head} * a.layout.k_dim;
  for (int d = ThreadIndex(); d < a.layout.k_dim; d += kThreads) {
    float least = infinity;
    float greatest = -infinity;
    float sum = 0;
    for (int t = begin; t < end; ++t) {
      const float key = KeyAt(a.layout, page.data, head, t, d);
      least = Smaller(least, key);
      greatest = Larger(greatest, key);
      sum += key;
    }
    if (a.least >= 0) to[a.least + d] = least;
    if (a.greatest >= 0) to[a.greatest + d] = greatest;
    if (a.mean >= 0) to[a.mean + d] = sum / static_cast<float>(end - begin);
  }
}

// Block (some summaries, kv head): they are read once, for all rows and query heads. In float32, as
// a bound must not be rounded below a key's score, and reading takes longer than multiplying. A
// lane has one summary and kOwnQueries queries at a time; the lanes of a page share their greatest.
ANNULUS_KERNEL(kThreads, 4) SummaryScoresKernel(ANNULUS_ARGUMENT SummaryScoresArguments a) {
  const int width = a.k_dim | 1;  // odd: neighbouring summaries lie in different banks
  const bool both = a.greatest != a.least;
  auto** const begins = reinterpret_cast<const float**>(SharedMemory());
  float* const least = reinterpret_cast<float*>(begins + kWarp);
  float* const greatest = both ? least + a.run * width : least;
  const int64_t first = BlockX() * a.run;
  const auto count = static_cast<int>(Smaller(a.pages * a.parts - first, int64_t{a.run}));
  if (ThreadIndex() < count) {
    const int64_t summary = first + ThreadIndex();
    begins[ThreadIndex()] =
        SummaryAt(a.from, summary / a.parts, static_cast<int>(summary % a.parts), a.parts,
                  int64_t{a.kv_heads} * a.k_dim) +
        BlockY() * a.k_dim;
  }
  SyncThreads();
  for (int i = WarpIndex(); i < count; i += kWarps) {
    const float* const from = begins[i];
#pragma unroll 4
    for (int d = Lane(); d < a.k_dim; d += kWarp) {
      least[i * width + d] = from[a.least + d];
      if (both) greatest[i * width + d] = from[a.greatest + d];
    }
  }
  SyncThreads();
  const int own = Lane() % a.run;
  const float* const low = least + Smaller(own, count - 1) * width;
  const float* const high = greatest + Smaller(own, count - 1) * width;
  const int group = a.heads / a.kv_heads;
  const int64_t queries = a.query.rows * group;
  const int64_t step = int64_t{kWarps} * (kWarp / a.run);
  for (int64_t base = WarpIndex(); base < queries; base += step * kOwnQueries) {
    const int64_t q = base + Lane() / a.run * kWarps;
    const float* query[kOwnQueries];
    float sums[kOwnQueries] = {};
#pragma unroll
    for (int j = 0; j < kOwnQueries; ++j) {
      const int64_t at = Smaller(q + j * step, queries - 1);
      query[j] = a.query.row(at / group) + (BlockY() * group + at % group) * a.k_dim;
    }
    for (int d = 0; d < a.k_dim; ++d) {
#pragma unroll
      for (int j = 0; j < kOwnQueries; ++j) {
        sums[j] += Larger(query[j][d] * low[d], query[j][d] * high[d]);
      }
    }
#pragma unroll
    for (int j = 0; j < kOwnQueries; ++j) {
      for (int mask = 1; mask < a.parts; mask *= 2) {
        sums[j] = Larger(sums[j], ShuffleXor(sums[j], mask));
      }
      const int64_t at = q + j * step;
      if (at >= queries || own >= count || own % a.parts != 0) continue;
      const int64_t list = at / group * a.heads + BlockY() * group + at % group;
      a.scores[list * a.pages + (first + own) / a.parts] = sums[j];
    }
  }
}

// What PoolRowsKernel does, the same for all of a grid.
enum class Pooling : uint8_t { kMeans, kSums, kMasses };
struct PoolRowsArguments {
  Pooling pooling;
  RowMeansArguments means = {};
  ScoreSumsParams sums = {};
  BlockMassesArguments masses = {};
};

// One column of one run.
ANNULUS_DEVICE void PoolMean(const RowMeansArguments& a, int64_t run, int64_t column) {
  if (column >= a.output.cols) return;
  const int32_t begin = run == 0 ? 0 : a.ends[run - 1];
  const int32_t end = a.ends[run];
  float sum = 0;
  for (int32_t r = begin; r < end; ++r) sum += a.input.row(r)[column];
  a.output.row(run)[column] = sum / static_cast<float>(end - begin);
}

// One block of keys of one run and kv head.
ANNULUS_DEVICE void PoolMass(const BlockMassesArguments& a, int64_t row, int64_t column) {
  if (column >= a.masses.cols) return;
  const int64_t run = row / a.kv_heads;
  const int group = a.heads / a.kv_heads;
  const int32_t begin = run == 0 ? 0 : a.ends[run - 1];
  const int32_t end = a.ends[run];
  float mass = 0;
  for (int32_t r = begin; r < end; ++r) {
    const int64_t first = int64_t{r} * a.heads + row % a.kv_heads * group;
    for (int64_t list = first; list < first + group; ++list) {
      const float sum = a.sums[list];
      if (sum == -FloatOf(0x7f800000u)) continue;
      mass += expf(a.scores.row(list)[column] - sum);
    }
  }
  a.masses.row(row)[column] = mass / static_cast<float>((end - begin) * group);
}

// One list, by the whole block: a thread has every 128th score.
ANNULUS_DEVICE void SumScores(const ScoreSumsParams& a, int64_t list) {
  LogSum* const sums = reinterpret_cast<LogSum*>(SharedMemory());
  LogSum own{-FloatOf(0x7f800000u), 0};
  if (ThreadIndex() == 0 && a.add) own = {a.sums[list], 1};
  const float* const scores = a.scores.row(list);
  for (int64_t b = ThreadIndex(); b < a.scores.cols; b += kThreads) own.Add(scores[b]);
  for (int mask = 1; mask < kWarp; mask *= 2) {
    own.Merge({ShuffleXor(own.maximum, mask), ShuffleXor(own.sum, mask)});
  }
  if (Lane() == 0) sums[WarpIndex()] = own;
  SyncThreads();
  if (ThreadIndex() > 0) return;
  for (int w = 1; w < kWarps; ++w) own.Merge(sums[w]);
  a.sums[list] = own.Log();
}

// Block (a run, some columns), (a run and a kv head, some blocks of keys) or (a list).
ANNULUS_KERNEL(kThreads, 8) PoolRowsKernel(ANNULUS_ARGUMENT PoolRowsArguments a) {
  const int64_t column = BlockY() * kThreads + ThreadIndex();
  if (a.pooling == Pooling::kMeans) {
    PoolMean(a.means, BlockX(), column);
  } else if (a.pooling == Pooling::kMasses) {
    PoolMass(a.masses, BlockX(), column);
  } else {
    SumScores(a.sums, BlockX());
  }
}

int64_t BlocksOf(int64_t columns) { return (columns + kThreads - 1) / kThreads; }

}  // namespace

int LaunchBlockScores(StreamHandle stream, int64_t units, const BlockScoresArguments& arguments) {
  const auto keys = static_cast<size_t>(kChunk * (arguments.layout.k_dim + 1)) * sizeof(float);
  const auto sums = static_cast<size_t>(kScoredGroups * arguments.group) * sizeof(LogSum);
  const Grid grid{
      .x = units, .y = arguments.layout.kv_heads, .threads = kThreads, .shared_bytes = keys + sums};
  return Launch<BlockScoresKernel>(stream, grid, arguments);
}
int LaunchKeySummary(StreamHandle stream, int64_t pages, const KeySummaryArguments& arguments) {
  const Grid grid{
      .x = pages * arguments.parts, .y = arguments.layout.kv_heads, .threads = kThreads};
  return Launch<KeySummaryKernel>(stream, grid, arguments);
}
int LaunchSummaryScores(StreamHandle stream, const SummaryScoresArguments& arguments) {
  const int sides = arguments.greatest == arguments.least ? 1 : 2;
  const int64_t summaries = arguments.pages * arguments.parts;
  const Grid grid{.x = (summaries + arguments.run - 1) / arguments.run,
                  .y = arguments.kv_heads,
                  .threads = kThreads,
                  .shared_bytes = SummaryBytes(arguments.k_dim, sides * arguments.run)};
  return Launch<SummaryScoresKernel>(stream, grid, arguments);
}

int LaunchRowMeans(StreamHandle stream, const RowMeansArguments& arguments) {
  const Grid grid{
      .x = arguments.output.rows, .y = BlocksOf(arguments.output.cols), .threads = kThreads};
  return Launch<PoolRowsKernel>(stream, grid,
                                PoolRowsArguments{.pooling = Pooling::kMeans, .means = arguments});
}

int LaunchBlockMasses(StreamHandle stream, const BlockMassesArguments& arguments) {
  const Grid grid{
      .x = arguments.masses.rows, .y = BlocksOf(arguments.masses.cols), .threads = kThreads};
  return Launch<PoolRowsKernel>(
      stream, grid, PoolRowsArguments{.pooling = Pooling::kMasses, .masses = arguments});
}

int LaunchScoreSums(StreamHandle stream, const ScoreSumsParams& arguments) {
  const Grid grid{.x = arguments.scores.rows,
                  .y = 1,
                  .threads = kThreads,
                  .shared_bytes = kWarps * sizeof(LogSum)};
  return Launch<PoolRowsKernel>(stream, grid,
                                PoolRowsArguments{.pooling = Pooling::kSums, .sums = arguments});
}

}  // namespace annulus::cuda
