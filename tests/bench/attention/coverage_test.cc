// The coverage contract on attention of a known structure: sinks, bands, vertical lines, slashes
// and heavy blocks. Blocks are chosen as a rank chooses them; what they truly cover is worked out
// apart, for rows that the choice did not sample.

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "bench/attention/structured_head.h"
#include "engine/ring/in_process_channel.h"
#include "engine/runner/choice/block_chooser.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

constexpr int kPage = 64;
constexpr int kDim = 64;
constexpr int kHeads = 6;  // each structure twice

// Keys of all heads in pages of one rank, and queries beside them.
class World {
 public:
  World(int32_t tokens, uint32_t seed) : tokens_(tokens), backend_(CreateCpuBackend().value()) {
    RegisterCpuKernels(registry_);
    ops_ = registry_.Available("cpu").front();
    stream_ = backend_->CreateStream(1).value();
    shape_ = {kPage, kHeads, kDim, kDim, DType::kF32};
    const int64_t columns = int64_t{kHeads} * kDim;
    query_.resize(static_cast<size_t>(tokens) * columns);
    std::vector<float> key(query_.size());
    for (int head = 0; head < kHeads; ++head) {
      heads_.push_back(MakeStructuredHead(tokens, kDim, head, seed));
      for (int32_t row = 0; row < tokens; ++row) {
        const size_t at = row * columns + int64_t{head} * kDim;
        std::copy_n(heads_.back().query_row(row), kDim, query_.data() + at);
        std::copy_n(heads_.back().key_row(row), kDim, key.data() + at);
      }
    }
    pages_ = backend_->Allocate(2 * tokens / kPage * ops_->kv_page_bytes(shape_)).value();
    std::vector<std::byte*> pages;
    std::vector<int32_t> slots;
    for (int32_t row = 0; row < tokens; ++row) {
      pages.push_back(Page(row / kPage));
      slots.push_back(row % kPage);
    }
    KvAppendParams params;
    params.shape = shape_;
    params.k = {key.data(), tokens, columns, columns};
    params.v = params.k;
    params.pages = pages;
    params.slots = slots;
    EXPECT_TRUE(ops_->kv_append(*stream_, params).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
  }

  // What the chunks of `rows` rows choose in turn.
  std::vector<LayerAttention> Choose(const AttentionPolicy& policy, int32_t rows) {
    Heartbeat heartbeat;
    InProcessRing ring(*backend_, 1);
    RingLink link(ring.channel(0), *stream_, std::chrono::seconds(60), &heartbeat);
    RingAttentionConfig config;
    config.shape = shape_;
    config.layer_page_bytes = ops_->kv_page_bytes(shape_);
    config.heads = kHeads;
    config.scale = 1 / std::sqrt(static_cast<float>(kDim));
    config.heartbeat = &heartbeat;
    ChoiceMessages messages;
    BufferPool::Options options;
    options.limit_bytes = size_t{16} << 20;
    options.chunk_bytes = kMemoryAlignment;
    BufferPool pool(*backend_, options);
    StepArena arena(pool.Allocate(options.limit_bytes, Lifetime::kStep).value(),
                    pool.host_accessible());
    BlockChooser chooser({link, *backend_, *ops_, *stream_, config, messages, arena});
    std::vector<LayerSummaries> summaries(1);
    // Pages behind those of the sequence hold its summaries.
    const int64_t summarised =
        std::max<int64_t>(1, PagesSummarised(SummariesOf(policy), shape_, config.layer_page_bytes));
    const int32_t pages = tokens_ / kPage;
    std::vector<int32_t> summary_pages((pages + summarised - 1) / summarised);
    std::iota(summary_pages.begin(), summary_pages.end(), pages);
    const auto shared = std::make_shared<const AttentionPolicy>(policy);
    std::vector<LayerAttention> report;
    for (int32_t begin = 0; begin < tokens_; begin += rows) {
      RingItem item;
      item.ring = {0};
      item.begin = begin;
      item.end = std::min(tokens_, begin + rows);
      item.positions.resize(1);
      for (int32_t row = item.begin; row < item.end; ++row) item.positions[0].push_back(row);
      std::vector<PageEntry> table;
      for (int32_t first = 0; first < item.end; first += kPage) {
        table.push_back({0, first / kPage, first});
      }
      ChoosingItem choosing;
      choosing.parts = {{shared, nullptr, std::vector<bool>(kHeads, true)}};
      choosing.report_lists = true;
      choosing.candidates = BuildItemShards(item, table, 0, kPage, 1);
      choosing.summaries = &summaries;
      choosing.summary_kinds = SummariesOf(policy);
      choosing.summary_pages = summary_pages;
      if (HowToChoose(policy, false, item.begin, item.end) == ChoiceKind::kNone) continue;
      std::vector<ItemShards> shards(1);
      ChoiceLayer layer;
      layer.tag = static_cast<uint64_t>(begin + 1) << 16;
      layer.items = {&item, 1};
      layer.shards = shards;
      const int64_t columns = int64_t{kHeads} * kDim;
      layer.query = {query_.data() + begin * columns, item.end - begin, columns, columns};
      layer.page_data = [this](int32_t page) { return Page(page); };
      EXPECT_TRUE(chooser.Run(layer, {&choosing, 1}, report).ok());
    }
    return report;
  }

  // Share of a row's attention in the blocks.
  double Coverage(int head, int32_t row, std::span<const int32_t> blocks) const {
    const StructuredHead& of = heads_[head];
    std::vector<double> scores;
    for (int32_t j = 0; j <= row; ++j) {
      double sum = 0;
      for (int d = 0; d < kDim; ++d) sum += double{of.query_row(row)[d]} * of.key_row(j)[d];
      scores.push_back(sum / std::sqrt(double{kDim}));
    }
    const double most = *std::max_element(scores.begin(), scores.end());
    double total = 0;
    double kept = 0;
    for (int32_t j = 0; j <= row; ++j) {
      const double weight = std::exp(scores[j] - most);
      total += weight;
      kept += std::binary_search(blocks.begin(), blocks.end(), j / kPage) ? weight : 0;
    }
    return kept / total;
  }

 private:
  std::byte* Page(int32_t page) { return pages_.data() + page * ops_->kv_page_bytes(shape_); }

  const int32_t tokens_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
  const OpTable* ops_ = nullptr;
  std::unique_ptr<Stream> stream_;
  KvPageShape shape_;
  std::vector<StructuredHead> heads_;
  std::vector<float> query_;
  DeviceBuffer pages_;
};

TEST(Coverage, OfStructuredAttentionIsWithinTwoHundredthsOfTheContract) {
  constexpr int32_t kTokens = 4096;
  World world(kTokens, 3);
  std::mt19937 random(5);
  for (const char* policy : {"adaptive:coverage=0.95", "adaptive:coverage=0.9,stride=8",
                             "adaptive:estimator=pooled,coverage=0.95"}) {
    const AttentionPolicy asked = ParsePolicy(policy).value();
    double covered = 0;
    int rows = 0;
    PairCount pairs;
    int raised = 0;
    int dense = 0;
    for (const LayerAttention& part : world.Choose(asked, 1024)) {
      pairs += part.pairs;
      raised += part.raised;
      dense += part.dense;
      for (int draw = 0; draw < 12; ++draw) {
        const int32_t row = part.rows[random() % part.rows.size()];
        for (int head = 0; head < kHeads; ++head, ++rows) {
          covered += world.Coverage(head, row, part.lists->keys(head, row / kPage));
        }
      }
    }
    ASSERT_GT(rows, 0) << policy;
    std::cout << policy << ": covered " << covered / rows << ", density " << pairs.density()
              << ", raised " << raised << ", dense " << dense << std::endl;
    EXPECT_GE(covered / rows, asked.coverage - 0.02) << policy;
    EXPECT_LT(pairs.density(), 0.9) << policy;
  }
}

}  // namespace
}  // namespace annulus::bench
