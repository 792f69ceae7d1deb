// Scores of blocks along antidiagonals by the kernels of linear layers. Rows are panels of 16 keys,
// columns queries of row groups and heads; a product is the sum over a tile's antidiagonal.
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "kernels/base/status_macros.h"
#include "kernels/cpu/simd/ops.h"
#include "kernels/cpu/simd/page_layout.h"
#include "kernels/cpu/simd/scores.h"

namespace annulus::cpu {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr int64_t kLine = 64;
constexpr int64_t kTasksPerThread = 8;  // so that threads end together

// A panel of 16 keys, of which a page has the first `slots`.
struct KeyPanel {
  const KvPageView* page;
  int index;  // in the page
  int slots;
  int64_t position;
  int64_t block;  // index among the item's
};

struct Item {
  const BlockScoresItem* item;
  std::vector<RowGroup> groups;
  std::vector<KeyPanel> panels;  // that any row group sees
  int64_t blocks;
  int64_t packed;  // bytes from the packed queries' start, of the first kv head
};

// Key panels [begin, end) of one item and kv head, which are whole blocks (about task_rows of
// them), and row groups [first_group, end_group): as many as a product takes, or all, where there
// are tasks enough without cutting them, so that keys are copied once.
struct Task {
  const Item* item;
  int kv_head;
  int64_t begin, end;
  int64_t first_group, end_group;
};

class ProductRun {
 public:
  ProductRun(const DotKernels& dot, const SimdKernels& isa, const BlockScoresParams& params,
             int threads)
      : dot_(dot),
        isa_(isa),
        params_(params),
        layout_(isa, params.shape),
        group_(params.heads / params.shape.kv_heads),
        copies_(kPanel / params.stride),
        depth_(layout_.k_dim() * kPanel),
        // An odd number of cache lines: neighbouring rows then lie in different cache sets.
        stride_((depth_ * 2 / kLine | 1) * kLine),
        width_(std::max<int64_t>(dot.task_columns, TaskWidth())) {
    for (const BlockScoresItem& item : params.items) AddItem(item);
    for (const Item& item : items_) AddTasks(item, threads);
    std::reverse(tasks_.begin(), tasks_.end());  // the longest first
  }

  absl::Status Run(CpuStream& stream) const {
    const int64_t workspace = RoundUp(dot_.workspace_bytes, kLine);
    const int64_t rows = RoundUp(dot_.task_rows, dot_.row_multiple);
    const int64_t own =
        workspace + rows * stride_ + dot_.task_rows * width_ * static_cast<int64_t>(sizeof(float));
    ANNULUS_ASSIGN_OR_RETURN(std::byte* const scratch,
                             stream.Scratch(packed_bytes_ + stream.threads() * own));
    PackQueries(stream, scratch);
    stream.ParallelFor(tasks_.size(), [&](int64_t index, int thread) {
      std::byte* const mine = scratch + packed_bytes_ + thread * own;
      std::byte* const keys = mine + workspace;
      float* const sums = reinterpret_cast<float*>(keys + rows * stride_);
      Task part = tasks_[index];
      const int64_t end = part.end;
      for (; part.begin < end; part.begin = part.end) {
        part.end = std::min<int64_t>(end, part.begin + dot_.task_rows);
        CopyKeys(part, keys);
        const int64_t end_group = part.end_group;
        for (Task some = part; some.first_group < end_group; some.first_group = some.end_group) {
          some.end_group = std::min(end_group, some.first_group + TaskGroups());
          Multiply(some, scratch, keys, mine, sums);
          Take(some, sums);
        }
      }
    });
    return absl::OkStatus();
  }

 private:
  int64_t PanelBytes() const { return depth_ * kPanel * 2; }
  // Columns of one row group.
  int64_t Wide() const { return int64_t{group_} * copies_; }
  // Row groups of one task.
  int64_t TaskGroups() const { return std::max<int64_t>(1, dot_.task_columns / Wide()); }
  // Columns of one task, padded to whole panels.
  int64_t TaskWidth() const { return RoundUp(TaskGroups() * Wide(), kPanel); }
  // The first column of a row group.
  int64_t ColumnOf(int64_t group) const {
    return group / TaskGroups() * TaskWidth() + group % TaskGroups() * Wide();
  }
  // Packed queries of one kv head.
  int64_t HeadBytes(const Item& item) const {
    const auto groups = static_cast<int64_t>(item.groups.size());
    return CeilDiv(groups, TaskGroups()) * TaskWidth() / kPanel * PanelBytes();
  }

  void AddItem(const BlockScoresItem& scored) {
    Item& item = items_.emplace_back();
    item.item = &scored;
    item.groups = RowGroups(scored.positions, params_.stride);
    item.blocks = CountBlocks(scored.pages, params_.block_tokens);
    item.packed = packed_bytes_;
    packed_bytes_ += HeadBytes(item) * params_.shape.kv_heads;
    std::fill_n(scored.scores,
                static_cast<int64_t>(item.groups.size()) * params_.heads * item.blocks, -kInfinity);
    if (item.groups.empty()) return;
    const int64_t end = (item.groups.back().tile + 1) * params_.stride;
    int64_t block = -1;
    int64_t last = -1;
    for (const KvPageView& page : scored.pages) {
      if (page.first_position / params_.block_tokens != last) {
        last = page.first_position / params_.block_tokens;
        ++block;
      }
      for (int slot = 0; slot < page.tokens && page.first_position + slot < end; slot += kPanel) {
        item.panels.push_back({&page, slot / kPanel, std::min(kPanel, page.tokens - slot),
                               page.first_position + slot, block});
      }
    }
  }

  void AddTasks(const Item& item, int threads) {
    const auto count = static_cast<int64_t>(item.panels.size());
    const auto groups = static_cast<int64_t>(item.groups.size());
    const int64_t whole = count / dot_.task_rows * params_.shape.kv_heads;  // tasks of all groups
    const int64_t step = whole < kTasksPerThread * threads ? TaskGroups() : groups;
    for (int64_t begin = 0; begin < count;) {
      int64_t end = std::min<int64_t>(count, begin + dot_.task_rows);
      while (end > begin && end < count && item.panels[end].block == item.panels[end - 1].block) {
        --end;
      }
      if (end == begin) {  // a block that is larger
        while (end < count && item.panels[end].block == item.panels[begin].block) ++end;
      }
      for (int head = 0; head < params_.shape.kv_heads; ++head) {
        for (int64_t group = 0; group < groups; group += step) {
          tasks_.push_back({&item, head, begin, end, group, std::min(groups, group + step)});
        }
      }
      begin = end;
    }
  }

  // The queries of each column, pair by pair as keys lie in a panel: zero for other tiles' slots.
  void PackQueries(CpuStream& stream, std::byte* packed) const {
    std::memset(packed, 0, packed_bytes_);
    for (const Item& item : items_) {
      const int64_t heads = params_.heads;
      stream.ParallelFor(item.groups.size() * heads, [&](int64_t index, int) {
        PackColumn(item, index / heads, index % heads, packed);
      });
    }
  }

  void PackColumn(const Item& item, int64_t group, int64_t head, std::byte* packed) const {
    const int64_t k_dim = params_.shape.k_dim;
    const RowGroup& rows = item.groups[group];
    std::vector<uint32_t> pairs(CeilDiv(k_dim, 2));
    std::byte* const of_head = packed + item.packed + head / group_ * HeadBytes(item);
    for (int64_t r = rows.first; r < rows.first + rows.count; ++r) {
      pairs.back() = 0;
      ConvertFromFloat(DType::kBF16, item.item->query.row(r) + head * k_dim, pairs.data(), k_dim);
      const int slot = MeetingSlot(item.item->positions[r], params_.stride);
      for (int copy = 0; copy < copies_; ++copy) {
        const int64_t column = ColumnOf(group) + head % group_ * copies_ + copy;
        auto* const words = reinterpret_cast<uint32_t*>(of_head + column / kPanel * PanelBytes()) +
                            column % kPanel + (slot + copy * params_.stride) * kPanel;
        for (size_t d = 0; d < pairs.size(); ++d) words[d * kPanel * kPanel] = pairs[d];
      }
    }
  }

  void CopyKeys(const Task& task, std::byte* keys) const {
    const int64_t bytes = depth_ * 2;
    for (int64_t p = task.begin; p < task.end; ++p, keys += stride_) {
      const KeyPanel& panel = task.item->panels[p];
      std::memcpy(keys, panel.page->data + layout_.k_head(task.kv_head) + panel.index * bytes,
                  bytes);
      // What lies in slots that are not written may be anything.
      for (int64_t d = 0; panel.slots < kPanel && d < layout_.k_dim() / 2; ++d) {
        std::memset(keys + (d * kPanel + panel.slots) * 4, 0, (kPanel - panel.slots) * 4);
      }
    }
  }

  // sums[panel][column], columns from the task's first on.
  void Multiply(const Task& task, const std::byte* packed, const std::byte* keys,
                std::byte* workspace, float* sums) const {
    const int64_t first = ColumnOf(task.first_group);
    const int64_t columns = (task.end_group - task.first_group) * Wide();
    for (int64_t column = 0; column < columns; column += dot_.task_columns) {
      DotTask product = {};
      product.input = keys;
      product.input_stride = stride_;
      product.rows = static_cast<int>(task.end - task.begin);
      product.panels = packed + task.item->packed + task.kv_head * HeadBytes(*task.item) +
                       (first + column) / kPanel * PanelBytes();
      product.panel_bytes = PanelBytes();
      product.depth = depth_;
      product.columns = static_cast<int>(std::min<int64_t>(dot_.task_columns, columns - column));
      product.output = sums + column;
      product.output_stride = width_;
      product.workspace = workspace;
      dot_.linear[static_cast<int>(DType::kBF16)](product);
    }
  }

  // The scores of the task's blocks from its sums. They are put together by block and stored by
  // row: in the item's scores the rows of a block lie far apart.
  void Take(const Task& task, float* sums) const {
    const int64_t columns = (task.end_group - task.first_group) * Wide();
    const int64_t first_block = task.item->panels[task.begin].block;
    const int64_t blocks = task.item->panels[task.end - 1].block + 1 - first_block;
    std::vector<float> scores(columns * blocks), most(columns), total(columns);
    for (int64_t begin = task.begin; begin < task.end;) {
      int64_t end = begin + 1;
      const int64_t block = task.item->panels[begin].block;
      while (end < task.end && task.item->panels[end].block == block) ++end;
      float* const first = sums + (begin - task.begin) * width_;
      for (int64_t p = begin; p < end; ++p) {
        Scale(task, task.item->panels[p], first + (p - begin) * width_);
      }
      std::fill(most.begin(), most.end(), -std::numeric_limits<float>::max());
      std::fill(total.begin(), total.end(), 0.0f);
      isa_.add_exp_sums(first, end - begin, width_, columns, most.data(), total.data());
      float* const of_block = scores.data() + (block - first_block);
      for (int64_t column = 0; column < columns; ++column) {
        of_block[column * blocks] =
            total[column] == 0 ? -kInfinity : most[column] + std::log(total[column]);
      }
      begin = end;
    }
    for (int64_t column = 0; column < columns; ++column) {
      AddScores(scores.data() + column * blocks, blocks,
                ScoresOf(task, column / copies_) + first_block);
    }
  }

  // A block's sum over the copies of a column, and over the tasks that hold parts of it.
  static void AddScores(const float* scores, int64_t blocks, float* to) {
    for (int64_t b = 0; b < blocks; ++b) {
      if (scores[b] == -kInfinity) continue;
      to[b] = to[b] == -kInfinity ? scores[b] : LogAdd(to[b], scores[b]);
    }
  }

  static float LogAdd(float a, float b) {
    const float m = std::max(a, b);
    return m + std::log1p(std::exp(std::min(a, b) - m));
  }

  // The scores of a row group and a head of the task, by block.
  float* ScoresOf(const Task& task, int64_t row) const {
    const int64_t group = task.first_group + row / group_;
    const int64_t head = int64_t{task.kv_head} * group_ + row % group_;
    return task.item->item->scores + (group * params_.heads + head) * task.item->blocks;
  }

  // Sums become scores; -infinity where a column sees nothing of its tile.
  void Scale(const Task& task, const KeyPanel& panel, float* sums) const {
    const std::vector<RowGroup>& groups = task.item->groups;
    const int64_t last_tile = (panel.position + kPanel - 1) / params_.stride;
    // Whether a row group is complete and sees all keys of the panel.
    const auto whole = [&](const RowGroup& rows) {
      return panel.slots == kPanel && rows.count == params_.stride && rows.tile >= last_tile;
    };
    for (int64_t g = task.first_group; g < task.end_group;) {
      const int64_t begin = g;
      float* const first = sums + (begin - task.first_group) * Wide();
      while (g < task.end_group && whole(groups[g])) ++g;
      const int64_t count = (g - begin) * Wide();
      isa_.scale_row(first, params_.scale / static_cast<float>(params_.stride), count);
      if (params_.soft_cap > 0) isa_.soft_cap_row(first, params_.soft_cap, count);
      if (g < task.end_group) ScalePart(panel, groups[g++], first + count);
    }
  }

  void ScalePart(const KeyPanel& panel, const RowGroup& rows, float* sums) const {
    const int stride = params_.stride;
    for (int copy = 0; copy < copies_; ++copy) {
      const int slots = std::clamp(panel.slots - copy * stride, 0, stride);
      const int pairs = std::popcount(rows.slots & ((1u << slots) - 1));
      const bool seen = pairs > 0 && panel.position / stride + copy <= rows.tile;
      const float scale = params_.scale / static_cast<float>(std::max(pairs, 1));
      for (int h = 0; h < group_; ++h) {
        float& sum = sums[h * copies_ + copy];
        sum = seen ? sum * scale : -kInfinity;
        if (params_.soft_cap > 0 && seen) {
          sum = params_.soft_cap * std::tanh(sum / params_.soft_cap);
        }
      }
    }
  }

  const DotKernels& dot_;
  const SimdKernels& isa_;
  const BlockScoresParams& params_;
  const PageLayout layout_;
  const int group_;
  const int copies_;     // tiles of a panel of keys: each has its own column
  const int64_t depth_;  // numbers of a panel of keys
  const int64_t stride_;
  const int64_t width_;  // of a task's sums
  std::vector<Item> items_;
  std::vector<Task> tasks_;
  int64_t packed_bytes_ = 0;
};

}  // namespace

absl::Status BlockScoresByProducts(const DotKernels& dot, const SimdKernels& isa, CpuStream& stream,
                                   const BlockScoresParams& params) {
  return ProductRun(dot, isa, params, stream.threads()).Run(stream);
}

}  // namespace annulus::cpu
