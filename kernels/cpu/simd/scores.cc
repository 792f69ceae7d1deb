// Scores of blocks of the SIMD path. Keys are read in the order in which
// pages hold them: a panel of 16 keys meets 16 queries lane by lane, which are one query for each
// lane (stride 1) or the reversed queries of a tile (stride 8 and 16).
#include "kernels/cpu/simd/scores.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/ops/checks.h"

namespace annulus::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
// Vectors of queries (row groups by heads of a group) that share a pass over the keys.
constexpr int kVectors = 32;
constexpr int kPanels = kKeyChunk / kPanel;  // of one call

// Row groups [begin, end) of one item and kv head.
struct Task {
  const BlockScoresItem* item;
  const std::vector<RowGroup>* groups;
  int kv_head;
  int64_t begin;
  int64_t end;
  int64_t blocks;
};

// A growing sum of exponentials, in lanes that share their largest value.
class LogSum {
 public:
  // Whole vectors of kPanel values.
  void Add(const SimdKernels& isa, const float* values, int64_t vectors) {
    std::array<float, kPanel> most;
    most.fill(largest_);
    for (int64_t v = 0; v < vectors; ++v, values += kPanel) {
      for (int i = 0; i < kPanel; ++i) most[i] = std::max(most[i], values[i]);
    }
    const float before = std::exchange(largest_, *std::max_element(most.begin(), most.end()));
    const float factor = ExpOfNegative(before - largest_);
    for (float& total : totals_) total *= factor;
    most.fill(largest_);
    isa.add_exp_sums(values - vectors * kPanel, vectors, kPanel, kPanel, most.data(),
                     totals_.data());
  }
  float log() const {
    const float sum = std::accumulate(totals_.begin(), totals_.end(), 0.0f);
    return sum > 0 ? largest_ + std::log(sum) : -kInfinity;
  }

 private:
  float largest_ = -std::numeric_limits<float>::max();
  std::array<float, kPanel> totals_ = {};
};

class ScoresRun {
 public:
  ScoresRun(const SimdKernels& isa, const BlockScoresParams& params)
      : isa_(isa),
        params_(params),
        layout_(isa, params.shape),
        group_(params.heads / params.shape.kv_heads),
        groups_(params.items.size()) {
    for (size_t i = 0; i < params.items.size(); ++i) AddItem(i);
    std::reverse(tasks_.begin(), tasks_.end());  // the longest first
  }

  absl::Status Run(CpuStream& stream) {
    const int64_t vectors = std::max(kVectors, group_);
    const int64_t query = RoundUp(vectors * VectorFloats(), kPanel);
    const int64_t sums = vectors * kPanels * kPanel;
    ANNULUS_ASSIGN_OR_RETURN(
        std::byte * scratch,
        stream.Scratch(stream.threads() * (query + sums) * static_cast<int64_t>(sizeof(float))));
    float* const floats = reinterpret_cast<float*>(scratch);
    stream.ParallelFor(tasks_.size(), [&](int64_t index, int thread) {
      float* const own = floats + thread * (query + sums);
      Score(tasks_[index], own, own + query);
    });
    return absl::OkStatus();
  }

 private:
  // Elements of a vector of 16 queries: as many as the panel's keys have.
  int64_t Depth() const { return layout_.paired() ? layout_.k_dim() / 2 : layout_.k_dim(); }
  int64_t VectorFloats() const { return Depth() * kPanel; }

  void AddItem(size_t index) {
    const BlockScoresItem& item = params_.items[index];
    std::vector<RowGroup>& groups = groups_[index];
    groups = RowGroups(item.positions, params_.stride);
    const int64_t count = static_cast<int64_t>(groups.size());
    const int64_t blocks = CountBlocks(item.pages, params_.block_tokens);
    const int64_t step = std::max(1, kVectors / group_);
    for (int64_t begin = 0; begin < count; begin += step) {
      for (int h = 0; h < params_.shape.kv_heads; ++h) {
        tasks_.push_back({&item, &groups, h, begin, std::min(count, begin + step), blocks});
      }
    }
  }

  // Element d of the query that meets slot `lane`, for all heads of the group.
  void PackQueries(const Task& task, float* packed) const {
    const int64_t k_dim = params_.shape.k_dim;
    const int copies = params_.stride == 1 ? kPanel : kPanel / params_.stride;
    const int stride = params_.stride;
    std::memset(packed, 0, (task.end - task.begin) * group_ * VectorFloats() * sizeof(float));
    std::vector<uint16_t> narrow(RoundUp(k_dim, 2));
    for (int64_t g = task.begin; g < task.end; ++g) {
      const RowGroup& rows = (*task.groups)[g];
      for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
        const int first_lane = MeetingSlot(task.item->positions[r], stride);
        for (int head = 0; head < group_; ++head) {
          const float* const query =
              task.item->query.row(r) + (int64_t{task.kv_head} * group_ + head) * k_dim;
          float* const vector = packed + ((g - task.begin) * group_ + head) * VectorFloats();
          if (layout_.paired()) ConvertFromFloat(DType::kBF16, query, narrow.data(), k_dim);
          for (int copy = 0; copy < copies; ++copy) {
            const int lane = first_lane + copy * stride;
            if (!layout_.paired()) {
              for (int64_t d = 0; d < k_dim; ++d) vector[d * kPanel + lane] = query[d];
              continue;
            }
            for (int64_t d = 0; d < k_dim; d += 2) {
              const uint32_t high = d + 1 < k_dim ? narrow[d + 1] : 0;
              const uint32_t pair = high << 16 | narrow[d];
              std::memcpy(vector + d / 2 * kPanel + lane, &pair, sizeof(pair));
            }
          }
        }
      }
    }
  }

  void Score(const Task& task, float* packed, float* sums) const {
    PackQueries(task, packed);
    const int rows = static_cast<int>(task.end - task.begin) * group_;
    const BlockScoresItem& item = *task.item;
    for (int row = 0; row < rows; ++row) std::fill_n(Scores(task, row), task.blocks, -kInfinity);
    std::vector<LogSum> running(rows);
    const int64_t last_tile = (*task.groups)[task.end - 1].tile;
    int64_t block = 0;
    for (size_t p = 0; p < item.pages.size(); ++p) {
      const KvPageView& page = item.pages[p];
      if (page.first_position / params_.stride > last_tile) break;
      for (int slot = 0; slot < page.tokens; slot += kKeyChunk) {
        const int end = std::min(page.tokens, slot + kKeyChunk);
        Multiply(task, page, slot, end, rows, packed, sums);
        for (int row = 0; row < rows; ++row) {
          Take(task, page, slot, end, row, sums, running[row]);
        }
      }
      const bool ends =
          p + 1 == item.pages.size() || item.pages[p + 1].first_position / params_.block_tokens !=
                                            page.first_position / params_.block_tokens;
      if (!ends) continue;
      for (int row = 0; row < rows; ++row) {
        Scores(task, row)[block] = running[row].log();
        running[row] = LogSum();
      }
      ++block;
    }
    // The pages may end inside a block that others continue; the loop may too.
    if (block < task.blocks) {
      for (int row = 0; row < rows; ++row) {
        Scores(task, row)[block] = running[row].log();
      }
    }
  }

  float* Scores(const Task& task, int row) const {
    const int64_t group = task.begin + row / group_;
    const int64_t head = int64_t{task.kv_head} * group_ + row % group_;
    return task.item->scores + (group * params_.heads + head) * task.blocks;
  }

  void Multiply(const Task& task, const KvPageView& page, int slot, int end, int rows,
                const float* packed, float* sums) const {
    const DType dtype = params_.shape.dtype;
    LaneDots dots;
    dots.query = packed;
    dots.keys = page.data + layout_.k_head(task.kv_head) +
                slot * layout_.k_dim() * static_cast<int64_t>(DTypeSize(dtype));
    dots.rows = rows;
    dots.panels = static_cast<int>(CeilDiv(end - slot, kPanel));
    dots.depth = Depth();
    dots.sums = sums;
    const int index = static_cast<int>(dtype);
    if (layout_.paired()) {
      isa_.paired->lane_dots[dtype == DType::kBF16 ? 0 : 1 + NarrowIndex(dtype)](dots);
    } else {
      isa_.lane_dots[index](dots);
    }
  }

  // Adds the scores of slots [slot, end) of a page to a row's sum over the block.
  void Take(const Task& task, const KvPageView& page, int slot, int end, int row, float* sums,
            LogSum& running) const {
    const RowGroup& group = (*task.groups)[task.begin + row / group_];
    const int stride = params_.stride;
    const int panels = static_cast<int>(CeilDiv(end - slot, kPanel));
    float* const lanes = sums + int64_t{row} * panels * kPanel;
    if (params_.shape.dtype == DType::kI8) {
      float scales[kKeyChunk];
      ReadScales(layout_, page, task.kv_head, slot, end - slot, scales);
      for (int s = 0; s < end - slot; ++s) lanes[s] *= scales[s];
    }
    int count = 0;
    if (stride == 1) {  // every key has its own
      const int64_t seen = group.tile + 1 - page.first_position - slot;
      count = static_cast<int>(std::clamp<int64_t>(seen, 0, end - slot));
    }
    for (int s = slot; stride > 1 && s < end; s += stride) {
      if ((page.first_position + s) / stride > group.tile) break;
      const int present = std::min(stride, end - s);
      const uint32_t pairs = group.slots & ((1u << present) - 1);
      if (pairs == 0) continue;
      float sum = 0;
      for (int t = 0; t < present; ++t) sum += lanes[s - slot + t];
      lanes[count++] = sum / static_cast<float>(std::popcount(pairs));
    }
    isa_.scale_row(lanes, params_.scale, count);
    if (params_.soft_cap > 0) isa_.soft_cap_row(lanes, params_.soft_cap, count);
    if (!task.item->branches.empty()) {
      LeaveOut(task.item->branches, task.kv_head * group_ + row % group_, group.tile,
               page.first_position + slot, count, lanes);
    }
    const int64_t vectors = CeilDiv(count, kPanel);
    std::fill(lanes + count, lanes + vectors * kPanel, -kInfinity);
    running.Add(isa_, lanes, vectors);
  }

  // Of keys [first, first + count), those that no branch keeps for the row at `position`.
  static void LeaveOut(std::span<const DilatedBranch> branches, int head, int64_t position,
                       int64_t first, int count, float* scores) {
    bool kept[kKeyChunk] = {};
    for (const DilatedBranch& branch : branches) {
      const int64_t residue = head % branch.rate;
      if (position % branch.rate != residue) continue;
      const int64_t begin = std::max(first, position / branch.segment * branch.segment);
      int64_t key = begin + (residue - begin % branch.rate + branch.rate) % branch.rate;
      for (; key < first + count; key += branch.rate) kept[key - first] = true;
    }
    for (int i = 0; i < count; ++i) {
      if (!kept[i]) scores[i] = -kInfinity;
    }
  }

  const SimdKernels& isa_;
  const BlockScoresParams& params_;
  const PageLayout layout_;
  const int group_;
  std::vector<std::vector<RowGroup>> groups_;  // [item]
  std::vector<Task> tasks_;
};

}  // namespace

absl::Status BlockScores(const SimdKernels& isa, const DotKernels* dot, CpuStream& stream,
                         const BlockScoresParams& params) {
  CheckBlockScores(params);
  const bool products = dot != nullptr && isa.paired != nullptr && params.stride > 1;
  if (products && params.shape.dtype == DType::kBF16) {
    return BlockScoresByProducts(*dot, isa, stream, params);
  }
  return ScoresRun(isa, params).Run(stream);
}

}  // namespace annulus::cpu
