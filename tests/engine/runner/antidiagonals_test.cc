// Estimates along antidiagonals in two phases, over keys that several ranks hold and in arenas of
// many sizes, against the softmax of all scores at once.
#include "engine/runner/choice/antidiagonals.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "engine/ring/in_process_channel.h"
#include "gtest/gtest.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using testing::CpuWorld;

constexpr int32_t kBlock = 32;
constexpr int kHeads = 6;
constexpr int kKvHeads = 2;
constexpr int32_t kTokens = 603;
// Ring indices: the first two hold half of the blocks each, the last all.
constexpr int kHolders = 2;
constexpr int kAll = 2;

class AntidiagonalsTest : public ::testing::Test {
 protected:
  AntidiagonalsTest() : ops_(*world_.registry.Available("cpu").front()) {
    config_.shape = {
        .page_tokens = 16, .kv_heads = kKvHeads, .k_dim = 24, .v_dim = 8, .dtype = DType::kBF16};
    config_.layer_page_bytes = ops_.kv_page_bytes(config_.shape);
    config_.heads = kHeads;
    config_.scale = 0.7f;
    config_.heartbeat = &heartbeat_;
    stream_ = world_.backend->CreateStream(2).value();
    FillPages();
    FillChoice();
  }

  void Fill(std::vector<float>& values, size_t count) {
    std::normal_distribution<float> normal;
    for (values.clear(); values.size() < count;) values.push_back(normal(random_));
  }

  void FillPages() {
    std::vector<float> keys, values;
    Fill(keys, kTokens * kKvHeads * 24);
    Fill(values, kTokens * kKvHeads * 8);
    const int64_t count = (kTokens + 15) / 16;
    memory_ = world_.backend->Allocate(count * config_.layer_page_bytes).value();
    std::vector<std::byte*> pages;
    std::vector<int32_t> slots;
    for (int32_t t = 0; t < kTokens; ++t) {
      pages.push_back(memory_.data() + t / 16 * config_.layer_page_bytes);
      slots.push_back(t % 16);
    }
    const ConstMatrixView k{keys.data(), kTokens, kKvHeads * 24, kKvHeads * 24};
    const ConstMatrixView v{values.data(), kTokens, kKvHeads * 8, kKvHeads * 8};
    ASSERT_TRUE(ops_.kv_append(*stream_, {config_.shape, k, v, pages, slots}).ok());
    layer_.page_data = [this](int32_t page) {
      return memory_.data() + page * config_.layer_page_bytes;
    };
    std::vector<std::vector<ShardPage>>& seen = choosing_.candidates.seen_by;
    seen.resize(kHolders + 1);
    for (int32_t page = 0; page < count; ++page) {
      const ShardPage each{page, page * 16, std::min(16, kTokens - page * 16)};
      seen[page * 16 / kBlock % kHolders].push_back(each);
      seen[kAll].push_back(each);
    }
  }

  // Rows of two stripes, whose last tile and last block are not full.
  void FillChoice() {
    for (int32_t i = 352; i < kTokens; ++i) {
      if (i < 480 || i >= 544) positions_.push_back(i);
    }
    auto policy = std::make_shared<AttentionPolicy>();
    policy->block = kBlock;
    choosing_.parts.push_back({policy, nullptr, {}});
    item_.choosing = &choosing_;
    item_.block = kBlock;
    query_.kind = ChoiceQuery::Ask::kAntidiagonal;
    query_.stride = 8;
    query_.positions.assign(kHolders + 1, positions_);
    Fill(rows_, positions_.size() * kHeads * 24);
  }

  int64_t lists() const { return CountRowGroups(positions_, query_.stride) * kHeads; }
  static int64_t blocks() { return (kTokens + kBlock - 1) / kBlock; }
  int64_t query_blocks() const { return static_cast<int64_t>(BlocksOf(positions_, kBlock).size()); }

  // What ranks by: [query blocks][kv_heads][blocks], from all scores at once, in float64.
  std::vector<double> Expected() {
    std::vector<float> scores(lists() * blocks());
    std::vector<KvPageView> pages;
    for (const ShardPage& page : choosing_.candidates.seen_by[kAll]) {
      pages.push_back({layer_.page_data(page.page), page.first_position, page.tokens});
    }
    BlockScoresItem item;
    item.query = {rows_.data(), std::ssize(positions_), kHeads * 24, kHeads * 24};
    item.positions = positions_;
    item.pages = pages;
    item.scores = scores.data();
    BlockScoresParams params;
    params.shape = config_.shape;
    params.heads = kHeads;
    params.scale = config_.scale;
    params.block_tokens = kBlock;
    params.stride = query_.stride;
    params.items = {&item, 1};
    EXPECT_TRUE(ops_.block_scores(*stream_, params).ok());
    const std::vector<int32_t> of = BlocksOf(positions_, kBlock);
    std::vector<double> masses(of.size() * kKvHeads * blocks());
    std::vector<double> groups(of.size());
    const std::vector<RowGroup> rows = RowGroups(positions_, query_.stride);
    for (const RowGroup& group : rows) {
      ++groups[std::find(of.begin(), of.end(), positions_[group.first] / kBlock) - of.begin()];
    }
    for (int64_t list = 0; list < lists(); ++list) {
      const int32_t block = positions_[rows[list / kHeads].first] / kBlock;
      const auto q = std::find(of.begin(), of.end(), block) - of.begin();
      const int64_t kv_head = list % kHeads / (kHeads / kKvHeads);
      double total = 0;
      for (int64_t b = 0; b < blocks(); ++b) total += std::exp(scores[list * blocks() + b]);
      for (int64_t b = 0; b < blocks(); ++b) {
        masses[(q * kKvHeads + kv_head) * blocks() + b] +=
            std::exp(scores[list * blocks() + b]) / total / (groups[q] * kHeads / kKvHeads);
      }
    }
    return masses;
  }

  // A score's log sum is good to 1e-5 for each slice, of which there are no more than blocks.
  void ExpectMasses(const BlockMasses& actual, const std::vector<double>& expected) {
    const double relative = 1e-5 * static_cast<double>(blocks() + 2);
    for (size_t q = 0; q < actual.query_blocks().size(); ++q) {
      for (int kv_head = 0; kv_head < kKvHeads; ++kv_head) {
        const auto row = actual.row(q, kv_head);
        double total = 0;
        for (size_t b = 0; b < row.size(); ++b) {
          const double mass = expected[(q * kKvHeads + kv_head) * blocks() + b];
          ASSERT_NEAR(row[b], mass, relative * mass + 1e-12) << q << " " << kv_head << " " << b;
          total += row[b];
        }
        ASSERT_NEAR(total, 1, relative);
      }
    }
  }

  struct Rank {
    Rank(AntidiagonalsTest& test, size_t arena_floats)
        : pool(*test.world_.backend, PoolOptions(arena_floats)),
          arena(pool.Allocate(arena_floats * sizeof(float), Lifetime::kStep).value(),
                pool.host_accessible()),
          ring(*test.world_.backend, 1),
          link(ring.channel(0), *test.stream_, std::chrono::seconds(1), &test.heartbeat_),
          context{
              link,   *test.world_.backend, test.ops_, *test.stream_, test.config_, messages, arena,
              nullptr} {}
    static BufferPool::Options PoolOptions(size_t floats) {
      BufferPool::Options options;
      options.limit_bytes = floats * sizeof(float) + 4096;
      options.chunk_bytes = 64;
      return options;
    }
    BufferPool pool;
    StepArena arena;
    InProcessRing ring;
    RingLink link;
    ChoiceMessages messages;
    ChoiceContext context;
  };

  std::vector<int32_t> BlocksHeld(int holder) const {
    std::vector<int32_t> held;
    for (const ShardPage& page : choosing_.candidates.seen_by[holder]) {
      const int32_t block = page.first_position / kBlock;
      if (held.empty() || held.back() != block) held.push_back(block);
    }
    return held;
  }

  CpuWorld world_;
  const OpTable& ops_;
  Heartbeat heartbeat_;
  RingAttentionConfig config_;
  std::unique_ptr<Stream> stream_;
  std::mt19937 random_{7};
  DeviceBuffer memory_;
  std::vector<int32_t> positions_;
  std::vector<float> rows_;
  ChoosingItem choosing_;
  ChoiceLayer layer_;
  Choice item_;
  ChoiceQuery query_;
};

// Sums of all holders, then masses of each; scores are kept where two holders' have room beside
// what must be left.
TEST_F(AntidiagonalsTest, HoldersOfPartsOfTheKeysFindTheSoftmaxOfAll) {
  const std::vector<double> expected = Expected();
  const auto line = [](int64_t floats) { return (floats + 15) / 16 * 16; };
  const int64_t own = line(lists() * ((blocks() + 1) / kHolders));  // scores of a holder, or more
  for (const int64_t floats : {line(lists()), line(3 * lists()), own + line(lists()),
                               2 * own + line(lists()), int64_t{1} << 20}) {
    SCOPED_TRACE(floats);
    Rank rank(*this, floats);
    const size_t spare = StepArena::BytesFor<float>(lists());
    ScoredRows scored[kHolders];
    std::vector<float> sums(lists(), -std::numeric_limits<float>::infinity());
    int kept = 0;
    for (int holder = 0; holder < kHolders; ++holder) {
      const Antidiagonals scores(rank.context, layer_, item_, query_, holder);
      ASSERT_TRUE(scores.Sum(rows_.data(), spare, scored[holder]).ok());
      for (int64_t i = 0; i < lists(); ++i) sums[i] = LogAdd(sums[i], scored[holder].sums[i]);
      kept += !scored[holder].kept.empty();
    }
    EXPECT_EQ(kept, floats < own + line(lists()) ? 0 : floats < 2 * own + line(lists()) ? 1 : 2);
    BlockMasses masses(BlocksOf(positions_, kBlock), kKvHeads);
    for (int holder = 0; holder < kHolders; ++holder) {
      const std::vector<int32_t> held = BlocksHeld(holder);
      std::vector<float> own_masses(query_blocks() * kKvHeads * held.size());
      const Antidiagonals scores(rank.context, layer_, item_, query_, holder);
      ASSERT_TRUE(scores.Pool(scored[holder], sums.data(), own_masses).ok());
      masses.Add(own_masses, held);
    }
    ASSERT_NO_FATAL_FAILURE(ExpectMasses(masses, expected));
  }
}

// Some query blocks at a time; where not even one has room, some blocks of keys of one.
TEST_F(AntidiagonalsTest, OneHolderOfAllKeysNeedsNoOthers) {
  const std::vector<double> expected = Expected();
  const int64_t of_query_block = kBlock / query_.stride * kHeads * blocks();
  for (const int64_t floats : {int64_t{kBlock} / 8 * kHeads, of_query_block - 16, of_query_block,
                               5 * of_query_block / 2, int64_t{1} << 20}) {
    SCOPED_TRACE(floats);
    Rank rank(*this, (floats + 15) / 16 * 16);
    std::vector<float> found(query_blocks() * kKvHeads * blocks());
    const Antidiagonals scores(rank.context, layer_, item_, query_, kAll);
    ASSERT_TRUE(scores.SumAndPool(rows_.data(), found).ok());
    EXPECT_EQ(rank.arena.used(), 0u);
    BlockMasses masses(BlocksOf(positions_, kBlock), kKvHeads);
    masses.Add(found, BlocksHeld(kAll));
    ASSERT_NO_FATAL_FAILURE(ExpectMasses(masses, expected));
  }
}

TEST_F(AntidiagonalsTest, AnArenaWithoutRoomForABlockIsRefused) {
  Rank rank(*this, 16);
  ScoredRows scored;
  const Antidiagonals scores(rank.context, layer_, item_, query_, 0);
  const absl::Status status = scores.Sum(rows_.data(), 0, scored);
  EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
}

}  // namespace
}  // namespace annulus
