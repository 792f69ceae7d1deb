// Scores of blocks of keys and summaries of pages, in float32. Scores of rows against blocks are
// not by tensor cores: they cost more than their share of attention's time.
#include <cmath>

#include "kernels/cuda/common/convert.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/sm80/scores.h"

namespace annulus::cuda {
namespace {

constexpr int kWarps = 4;
constexpr int kThreads = kWarps * kWarp;
constexpr int kChunk = 16;  // keys in shared memory at a time

ANNULUS_DEVICE float KeyAt(const PageLayout& layout, const std::byte* page, int head, int64_t slot,
                           int d) {
  const float key = LoadElement(layout.dtype, page + layout.Key(head, slot), d);
  if (layout.dtype != DType::kI8) return key;
  return key *
         WidenBFloat16(*reinterpret_cast<const uint16_t*>(page + layout.KeyScale(head, slot)));
}

// A sum of exponentials, kept as the largest exponent and the sum relative to it.
struct LogSum {
  float maximum;
  float sum;

  ANNULUS_DEVICE void Add(float score) {
    if (score > maximum) {
      sum = sum * expf(maximum - score) + 1;
      maximum = score;
    } else if (!(score < -FloatOf(0x7f7fffffu))) {
      sum += expf(score - maximum);
    }
  }
};

// The score of one tile of keys for one row group and query head, by a whole warp: the mean over
// the antidiagonal. `sub`: the tile's first key in the chunk, which begins at `slot`. Whether any
// pair is there.
ANNULUS_DEVICE bool TileScore(const BlockScoresArguments& a, const ScoresItemView& item,
                              const ScoredRows& rows, int head, const float* keys, int slot,
                              int sub, int tokens, float& score) {
  const int dim = a.layout.k_dim;
  float sum = 0;
  int pairs = 0;
  for (int r = rows.first; r < rows.first + rows.count; ++r) {
    // MeetingSlot of kernels/ops/block_scores.h.
    const int even = item.positions[r] / a.stride % 2;
    const int t = sub + (2 * a.stride - 1 - even - item.positions[r] % a.stride) % a.stride;
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

// Whether a row's head leaves out a key, where there are branches: no branch keeps it.
ANNULUS_DEVICE bool LeavesOut(const ScoresItemView& item, int32_t position, int head, int32_t key) {
  for (int b = 0; b < item.branch_count; ++b) {
    const DilatedBranch branch = item.branches[b];
    const int32_t residue = head % branch.rate;
    if (position / branch.segment == key / branch.segment && position % branch.rate == residue &&
        key % branch.rate == residue) {
      return false;
    }
  }
  return item.branch_count > 0;
}

// A warp has every fourth pair of a row group and a query head; what it has summed up so far lies
// in shared memory after the keys.
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
        const ScoredRows rows = item.groups[unit.first_group + i / a.group];
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
    const LogSum own = sums[i];
    item.scores[list * item.blocks + unit.block] =
        own.sum == 0 ? -FloatOf(0x7f800000u) : own.maximum + logf(own.sum);
  }
}

// Block (page, kv head).
ANNULUS_KERNEL(kThreads, 8) KeySummaryKernel(ANNULUS_ARGUMENT KeySummaryArguments a) {
  const KvPageView page = a.pages[BlockX() / a.parts];
  const int begin = static_cast<int>(BlockX() % a.parts) * a.part_tokens;
  const int end = page.tokens - begin < a.part_tokens ? page.tokens : begin + a.part_tokens;
  const int head = static_cast<int>(BlockY());
  const float infinity = FloatOf(0x7f800000u);
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
    const int64_t at = (BlockX() * a.layout.kv_heads + head) * a.layout.k_dim + d;
    if (a.least != nullptr) a.least[at] = least;
    if (a.greatest != nullptr) a.greatest[at] = greatest;
    if (a.mean != nullptr) a.mean[at] = sum / static_cast<float>(end - begin);
  }
}

// A warp per score.
ANNULUS_KERNEL(kThreads, 8) SummaryScoresKernel(ANNULUS_ARGUMENT SummaryScoresArguments a) {
  const int64_t i = BlockX() * kWarps + WarpIndex();
  if (i >= a.query.rows * a.heads * a.pages) return;
  const int64_t page = i % a.pages;
  const int head = static_cast<int>(i / a.pages % a.heads);
  const float* const query = a.query.row(i / a.pages / a.heads) + int64_t{head} * a.k_dim;
  const int64_t at = (page * a.kv_heads + head / (a.heads / a.kv_heads)) * a.k_dim;
  float sum = 0;
  for (int d = Lane(); d < a.k_dim; d += kWarp) {
    sum += Larger(query[d] * a.least[at + d], query[d] * a.greatest[at + d]);
  }
  sum = WarpSum(sum);
  if (Lane() == 0) a.scores[i] = sum;
}

// Some columns of one run.
ANNULUS_KERNEL(kThreads, 8) RowMeansKernel(ANNULUS_ARGUMENT RowMeansArguments a) {
  const int64_t column = BlockY() * kThreads + ThreadIndex();
  if (column >= a.output.cols) return;
  const int32_t begin = BlockX() == 0 ? 0 : a.ends[BlockX() - 1];
  const int32_t end = a.ends[BlockX()];
  float sum = 0;
  for (int32_t r = begin; r < end; ++r) sum += a.input.row(r)[column];
  a.output.row(BlockX())[column] = sum / static_cast<float>(end - begin);
}

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
  const int64_t scores = arguments.query.rows * arguments.heads * arguments.pages;
  return Launch<SummaryScoresKernel>(
      stream, {.x = (scores + kWarps - 1) / kWarps, .threads = kThreads}, arguments);
}

int LaunchRowMeans(StreamHandle stream, const RowMeansArguments& arguments) {
  const Grid grid{.x = arguments.output.rows,
                  .y = (arguments.output.cols + kThreads - 1) / kThreads,
                  .threads = kThreads};
  return Launch<RowMeansKernel>(stream, grid, arguments);
}

}  // namespace annulus::cuda
