#include "engine/ring/ring_attention.h"

#include <barrier>
#include <cmath>
#include <random>
#include <thread>

#include "engine/ring/in_process_channel.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus {
namespace {

struct Shape {
  int heads = 4;
  int kv_heads = 2;
  int k_dim = 16;
  int v_dim = 16;
  int page_tokens = 16;
  int window = 0;
};

// One sequence of the test: rows [begin, end) attend all positions below end.
struct Case {
  std::vector<int32_t> ring;
  int32_t begin = 0;
  int32_t end = 0;
  RingMode mode = RingMode::kPassKv;
  bool sampled = false;
  int home = 0;  // ring index, for a sampled row
};

std::vector<float> Random(std::mt19937& random, size_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// Keys, values and queries of one case, and what attention must give: in double, one row at a time.
struct Problem {
  Case c;
  std::vector<float> query, key, value;  // [end, heads * dim] each
  std::vector<PageEntry> table;

  double MaxError(const Shape& s, int32_t row, const float* o, const float* lse) const {
    double worst = 0;
    for (int head = 0; head < s.heads; ++head) {
      std::vector<double> expected(s.v_dim, 0);
      double sum = 0;
      double top = -INFINITY;
      std::vector<std::pair<int, double>> scores;
      const int kv = head / (s.heads / s.kv_heads);
      for (int32_t j = 0; j <= row; ++j) {
        if (s.window > 0 && j <= row - s.window) continue;
        double score = 0;
        for (int d = 0; d < s.k_dim; ++d) {
          score += double{query[(row * s.heads + head) * s.k_dim + d]} *
                   key[(j * s.kv_heads + kv) * s.k_dim + d];
        }
        scores.emplace_back(j, score / std::sqrt(double(s.k_dim)));
        top = std::max(top, scores.back().second);
      }
      for (const auto& [j, score] : scores) {
        const double p = std::exp(score - top);
        sum += p;
        for (int d = 0; d < s.v_dim; ++d) {
          expected[d] += p * value[(j * s.kv_heads + kv) * s.v_dim + d];
        }
      }
      for (int d = 0; d < s.v_dim; ++d) {
        worst = std::max(worst, std::abs(expected[d] / sum - o[head * s.v_dim + d]));
      }
      worst = std::max(worst, std::abs(top + std::log(sum) - lse[head]));
    }
    return worst;
  }
};

// Runs all cases in one layer on `ranks` threads, as the runner would.
class RingWorld {
 public:
  RingWorld(int ranks, const Shape& shape, const std::string& kernels)
      : ranks_(ranks), shape_(shape), ring_(ranks) {
    RegisterCpuKernels(registry_);
    for (const OpTable* table : registry_.Available("cpu")) {
      if (table->name == kernels) ops_ = table;
    }
    backend_ = CreateCpuBackend().value();
    page_shape_ = {shape.page_tokens, shape.kv_heads, shape.k_dim, shape.v_dim, DType::kF32};
    page_bytes_ = ops_->kv_page_bytes(page_shape_);
    memory_.resize(ranks);
  }

  Problem MakeProblem(const Case& c, std::mt19937& random) {
    Problem p;
    p.c = c;
    p.query = Random(random, static_cast<size_t>(c.end) * shape_.heads * shape_.k_dim);
    p.key = Random(random, static_cast<size_t>(c.end) * shape_.kv_heads * shape_.k_dim);
    p.value = Random(random, static_cast<size_t>(c.end) * shape_.kv_heads * shape_.v_dim);
    const int degree = static_cast<int>(c.ring.size());
    for (int32_t first = 0; first < c.end; first += shape_.page_tokens) {
      const int32_t rank = c.ring[(first / shape_.page_tokens) % degree];
      memory_[rank].push_back(backend_->Allocate(page_bytes_).value());
      p.table.push_back({rank, static_cast<int32_t>(memory_[rank].size()) - 1, first});
    }
    return p;
  }

  // Attends and returns, for each problem, [end - begin] rows of o and lse.
  struct Output {
    std::vector<float> o, lse;
  };
  std::vector<Output> Run(const std::vector<Problem>& problems) {
    std::vector<Output> outputs(problems.size());
    for (size_t i = 0; i < problems.size(); ++i) {
      const size_t rows = problems[i].c.end - problems[i].c.begin;
      outputs[i].o.resize(rows * shape_.heads * shape_.v_dim);
      outputs[i].lse.resize(rows * shape_.heads);
    }
    std::barrier<> finished(ranks_);
    std::vector<std::thread> threads;
    for (int rank = 0; rank < ranks_; ++rank) {
      threads.emplace_back([&, rank] { RunRank(rank, problems, outputs, finished); });
    }
    for (std::thread& thread : threads) thread.join();
    return outputs;
  }

 private:
  RingItem MakeItem(const Problem& p, int index) const {
    RingItem item;
    item.ring = p.c.ring;
    item.index = index;
    item.mode = p.c.mode;
    item.sampled = p.c.sampled;
    item.begin = p.c.begin;
    item.end = p.c.end;
    item.positions.resize(p.c.ring.size());
    for (int32_t row = p.c.begin; row < p.c.end; ++row) {
      const PageEntry& entry = p.table[row / shape_.page_tokens];
      const int owner = static_cast<int>(std::find(p.c.ring.begin(), p.c.ring.end(), entry.rank) -
                                         p.c.ring.begin());
      if (p.c.sampled) item.sampled_anchor = owner;
      item.positions[p.c.sampled ? p.c.home : owner].push_back(row);
    }
    return item;
  }

  void Append(Stream& stream, const Problem& p, int rank, int32_t begin, int32_t end) {
    for (int32_t row = begin; row < end; ++row) {
      const PageEntry& entry = p.table[row / shape_.page_tokens];
      if (entry.rank != rank) continue;
      std::byte* page = memory_[rank][entry.page].data();
      const int32_t slot = row - entry.first_position;
      const int64_t k_cols = shape_.kv_heads * shape_.k_dim;
      const int64_t v_cols = shape_.kv_heads * shape_.v_dim;
      ASSERT_TRUE(ops_->kv_append(stream, {page_shape_,
                                           {p.key.data() + row * k_cols, 1, k_cols, k_cols},
                                           {p.value.data() + row * v_cols, 1, v_cols, v_cols},
                                           {&page, 1},
                                           {&slot, 1}})
                      .ok());
    }
  }

  static void CopyRows(const std::vector<float>& from, int64_t columns,
                       const std::vector<int32_t>& rows, std::vector<float>& to) {
    for (const int32_t row : rows) {
      to.insert(to.end(), from.begin() + row * columns, from.begin() + (row + 1) * columns);
    }
  }

  void RunRank(int rank, const std::vector<Problem>& problems, std::vector<Output>& outputs,
               std::barrier<>& finished) {
    auto stream = backend_->CreateStream(1).value();
    std::vector<RingItem> items;
    std::vector<ItemShards> shards;
    std::vector<size_t> which;
    std::vector<float> query, key, value;
    int64_t rows = 0;
    for (size_t i = 0; i < problems.size(); ++i) {
      const Problem& p = problems[i];
      const auto me = std::find(p.c.ring.begin(), p.c.ring.end(), rank);
      if (me == p.c.ring.end()) continue;
      RingItem item = MakeItem(p, static_cast<int>(me - p.c.ring.begin()));
      item.first_row = rows;
      rows += item.own_rows();
      CopyRows(p.query, shape_.heads * shape_.k_dim, item.positions[item.index], query);
      CopyRows(p.key, shape_.kv_heads * shape_.k_dim, item.positions[item.index], key);
      CopyRows(p.value, shape_.kv_heads * shape_.v_dim, item.positions[item.index], value);
      shards.push_back(BuildItemShards(item, p.table, shape_.window, shape_.page_tokens));
      // A sampled row whose page is elsewhere must arrive by message: it is not written here.
      const bool travels = p.c.sampled && p.c.home != item.sampled_anchor;
      Append(*stream, p, rank, 0, travels ? p.c.begin : p.c.end);
      items.push_back(std::move(item));
      which.push_back(i);
    }
    const int64_t served = RingAttention::ServedRows(items);
    std::vector<float> o(rows * shape_.heads * shape_.v_dim), lse(rows * shape_.heads);
    std::vector<float> o2(o.size()), lse2(lse.size());
    std::vector<float> o3(served * shape_.heads * shape_.v_dim), lse3(served * shape_.heads);
    RingAttentionConfig config;
    config.shape = page_shape_;
    config.layer_page_bytes = page_bytes_;
    config.heads = shape_.heads;
    config.scale = 1.0f / std::sqrt(static_cast<float>(shape_.k_dim));
    config.heartbeat = &heartbeat_;
    RingAttention attention(ring_.channel(rank), *backend_, *ops_, *stream, config);
    RingLayer layer;
    layer.tag = 1 << 16;
    layer.window = shape_.window;
    layer.items = items;
    layer.shards = shards;
    const int64_t q_cols = shape_.heads * shape_.k_dim;
    const int64_t k_cols = shape_.kv_heads * shape_.k_dim;
    const int64_t v_cols = shape_.kv_heads * shape_.v_dim;
    layer.query = {query.data(), rows, q_cols, q_cols};
    layer.key = {key.data(), rows, k_cols, k_cols};
    layer.value = {value.data(), rows, v_cols, v_cols};
    layer.page_data = [&](int32_t page) { return memory_[rank][page].data(); };
    layer.state = {o.data(), lse.data(), rows, shape_.heads, shape_.v_dim};
    layer.scratch = {o2.data(), lse2.data(), rows, shape_.heads, shape_.v_dim};
    layer.served = {o3.data(), lse3.data(), served, shape_.heads, shape_.v_dim};
    const absl::Status status = attention.Run(layer);
    EXPECT_TRUE(status.ok()) << status;
    if (!status.ok()) ring_.channel(rank).Abort(status);
    for (size_t n = 0; n < items.size(); ++n) {
      int64_t row = items[n].first_row;
      for (const int32_t position : items[n].positions[items[n].index]) {
        const int64_t out = position - problems[which[n]].c.begin;
        Output& output = outputs[which[n]];
        std::copy_n(&o[row * shape_.heads * shape_.v_dim], shape_.heads * shape_.v_dim,
                    &output.o[out * shape_.heads * shape_.v_dim]);
        std::copy_n(&lse[row * shape_.heads], shape_.heads, &output.lse[out * shape_.heads]);
        ++row;
      }
    }
    // Peers may still read this rank's states: buffers live until all are done, like a step's.
    finished.arrive_and_wait();
  }

  const int ranks_;
  const Shape shape_;
  InProcessRing ring_;
  Heartbeat heartbeat_;
  KernelRegistry registry_;
  const OpTable* ops_ = nullptr;
  std::unique_ptr<Backend> backend_;
  KvPageShape page_shape_;
  size_t page_bytes_ = 0;
  std::vector<std::vector<DeviceBuffer>> memory_;  // [rank][page]
};

void CheckAll(const Shape& shape, const std::vector<Problem>& problems,
              const std::vector<RingWorld::Output>& outputs) {
  for (size_t i = 0; i < problems.size(); ++i) {
    const Case& c = problems[i].c;
    for (int32_t row = c.begin; row < c.end; ++row) {
      const int64_t at = row - c.begin;
      // float32 sums of up to 16 products of unit normals per score and one pass of exp: errors
      // stay near 1e-6; each merge adds a few ulps.
      ASSERT_LT(problems[i].MaxError(shape, row, &outputs[i].o[at * shape.heads * shape.v_dim],
                                     &outputs[i].lse[at * shape.heads]),
                2e-5)
          << "case " << i << " row " << row;
    }
  }
}

void CheckCases(int ranks, const Shape& shape, const std::vector<Case>& cases, uint32_t seed,
                const std::string& kernels = "cpu/reference") {
  SCOPED_TRACE(testing::Message() << ranks << " ranks, page " << shape.page_tokens << ", window "
                                  << shape.window << ", seed " << seed << ", " << kernels);
  std::mt19937 random(seed);
  RingWorld world(ranks, shape, kernels);
  std::vector<Problem> problems;
  for (const Case& c : cases) problems.push_back(world.MakeProblem(c, random));
  CheckAll(shape, problems, world.Run(problems));
}

std::vector<int32_t> AllRanks(int ranks) {
  std::vector<int32_t> ring(ranks);
  for (int rank = 0; rank < ranks; ++rank) ring[rank] = rank;
  return ring;
}

TEST(RingAttention, EqualsReferenceAroundEveryBoundary) {
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int page : {16, 64, 128}) {
        Shape shape;
        shape.page_tokens = page;
        const int stripe = page * ranks;
        std::vector<Case> cases;
        for (const int end : {1, 2, page - 1, page, page + 1, stripe - 1, stripe, stripe + 1}) {
          if (end > 300) continue;
          cases.push_back({AllRanks(ranks), 0, end, mode});
        }
        CheckCases(ranks, shape, cases, 11 * ranks + page);
      }
    }
  }
}

TEST(RingAttention, LaterChunksSeeOlderPages) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      Shape shape;
      const int stripe = shape.page_tokens * ranks;
      CheckCases(ranks, shape, {{AllRanks(ranks), 2 * stripe, 3 * stripe + 5, mode}}, 5);
    }
  }
}

TEST(RingAttention, WindowsNeedOnlyNearPages) {
  for (const int ranks : {1, 2, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int window : {1, 5, 16, 40}) {
        Shape shape;
        shape.window = window;
        CheckCases(ranks, shape, {{AllRanks(ranks), 0, 150, mode}}, 77 + window);
      }
    }
  }
}

TEST(RingAttention, SampledRowsFindEveryShardFromAnyHome) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (int home = 0; home < ranks; ++home) {
      for (const int end : {1, 16, 17, 33, 100, 129}) {
        for (const int window : {0, 7}) {
          Shape shape;
          shape.window = window;
          CheckCases(ranks, shape, {{AllRanks(ranks), end - 1, end, RingMode::kPassQ, true, home}},
                     end);
        }
      }
    }
  }
}

TEST(RingAttention, RingsOfDifferentDegreeShareOneStep) {
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    std::mt19937 random(seed);
    const auto pick = [&](int low, int high) {
      return std::uniform_int_distribution<int>(low, high)(random);
    };
    const int ranks = pick(2, 5);
    Shape shape;
    shape.kv_heads = pick(1, 3);
    shape.heads = shape.kv_heads * pick(1, 3);
    shape.window = pick(0, 1) * pick(1, 50);
    std::vector<Case> cases;
    for (int n = pick(1, 5); n > 0; --n) {
      Case c;
      for (int rank = 0; rank < ranks; ++rank) {
        if (pick(0, 2) > 0) c.ring.push_back(rank);
      }
      if (c.ring.empty()) c.ring.push_back(pick(0, ranks - 1));
      c.end = pick(1, 130);
      c.sampled = pick(0, 1) == 1;
      c.begin = c.sampled ? c.end - 1 : pick(0, c.end - 1);
      c.mode = c.sampled || pick(0, 1) == 1 ? RingMode::kPassQ : RingMode::kPassKv;
      c.home = pick(0, static_cast<int>(c.ring.size()) - 1);
      cases.push_back(c);
    }
    CheckCases(ranks, shape, cases, seed);
  }
}

// A row's bits depend on its position, keys and values alone: not on the mode, nor on the chunk.
TEST(RingAttention, BothModesAndAllChunksGiveTheSameBits) {
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  for (const OpTable* table : registry.Available("cpu")) {
    for (const int ranks : {2, 3, 4}) {
      Shape shape;
      std::vector<RingWorld::Output> outputs;
      const int stripe = shape.page_tokens * ranks;
      const int end = 3 * stripe;
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        for (const int begin : {0, stripe, 2 * stripe}) {
          std::mt19937 random(3);
          RingWorld world(ranks, shape, table->name);
          const Problem p = world.MakeProblem({AllRanks(ranks), begin, end, mode}, random);
          outputs.push_back(world.Run({p})[0]);
        }
      }
      std::mt19937 random(3);
      RingWorld world(ranks, shape, table->name);
      for (int home = 0; home < ranks; ++home) {
        std::mt19937 again(3);
        const Problem p =
            world.MakeProblem({AllRanks(ranks), end - 1, end, RingMode::kPassQ, true, home}, again);
        outputs.push_back(world.Run({p})[0]);
      }
      const auto last_row = [&](const RingWorld::Output& output) {
        return std::vector<float>(output.o.end() - shape.heads * shape.v_dim, output.o.end());
      };
      for (size_t i = 1; i < outputs.size(); ++i) {
        EXPECT_EQ(last_row(outputs[i]), last_row(outputs[0])) << table->name << " run " << i;
      }
    }
  }
}

TEST(RingAttention, APeerThatNeverComesIsADeadline) {
  Shape shape;
  InProcessRing ring(2);
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  auto backend = CreateCpuBackend().value();
  auto stream = backend->CreateStream(1).value();
  RingAttentionConfig config;
  config.shape = {16, 1, 16, 16, DType::kF32};
  config.layer_page_bytes = 64;
  config.heads = 1;
  config.timeout = std::chrono::milliseconds(30);
  Heartbeat heartbeat;
  config.heartbeat = &heartbeat;
  RingAttention attention(ring.channel(0), *backend, *registry.Available("cpu")[0], *stream,
                          config);
  RingItem item;
  item.ring = {0, 1};
  item.index = 0;
  item.mode = RingMode::kPassKv;
  item.begin = 16;
  item.end = 33;
  item.positions = {{32}, {16}};
  const std::vector<PageEntry> table = {{0, 0, 0}, {1, 0, 16}, {0, 1, 32}};
  std::vector<RingItem> items = {item};
  std::vector<ItemShards> shards = {BuildItemShards(item, table, 0, 16)};
  std::vector<std::byte> page(65536);
  std::vector<float> buffer(64);
  RingLayer layer;
  layer.items = items;
  layer.shards = shards;
  layer.query = layer.key = layer.value = {buffer.data(), 1, 16, 16};
  layer.page_data = [&](int32_t) { return page.data(); };
  layer.state = layer.scratch = layer.served = {buffer.data(), buffer.data() + 32, 1, 1, 16};
  EXPECT_EQ(attention.Run(layer).code(), absl::StatusCode::kDeadlineExceeded);
}

}  // namespace
}  // namespace annulus
