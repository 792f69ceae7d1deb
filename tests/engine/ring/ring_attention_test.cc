#include "engine/ring/ring_attention.h"

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine/ring/in_process_channel.h"
#include "engine/ring/open_ring.h"
#include "engine/ring/ring_link.h"
#include "engine/scheduler/placement.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/ring/exact_attention.h"
#include "tests/engine/ring/ring_world.h"
#include "tests/engine/ring/separate_devices.h"
#include "tests/support/manual_clock.h"
#include "tests/support/thinned.h"

namespace annulus {
namespace {

using testing::AllRanks;
using testing::RingOutput;
using testing::RingRows;
using testing::RingSequence;
using testing::RingShape;
using testing::RingWorld;
using testing::SeparateDevices;

// One fresh sequence of the test: rows [begin, end) attend all positions below end.
struct Case {
  std::vector<int32_t> ring;
  int32_t begin = 0;
  int32_t end = 0;
  RingMode mode = RingMode::kPassKv;
  bool sampled = false;
  int home = 0;  // ring index, for a sampled row
};

struct Kernels {
  Kernels() : backend(CreateCpuBackend().value()) { RegisterCpuKernels(registry); }
  std::unique_ptr<Backend> backend;
  KernelRegistry registry;

  const OpTable& reference() const { return *registry.Available("cpu").back(); }
};

RingSequence FreshSequence(const Case& c, RingWorld& world, std::mt19937& random) {
  const auto place = [&](int32_t page) {
    return c.ring[PlaceOnRing(page, 1, static_cast<int>(c.ring.size()), ShardsFor(1))];
  };
  return world.MakeSequence(c.end, place, random);
}

// All cases in one step of the reference kernels.
void CheckCases(RingWorld& world, const RingShape& shape, const std::vector<Case>& cases,
                uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<RingSequence> sequences;
  for (const Case& c : cases) sequences.push_back(FreshSequence(c, world, random));
  std::vector<RingRows> rows;
  for (size_t i = 0; i < cases.size(); ++i) {
    const Case& c = cases[i];
    rows.push_back({&sequences[i], c.ring, c.begin, c.end, c.mode, c.sampled, c.home});
  }
  const std::vector<RingOutput> outputs = world.Run(rows);
  for (size_t i = 0; i < cases.size(); ++i) {
    const int merges = static_cast<int>(cases[i].ring.size());
    testing::ExpectExact(shape, sequences[i].query, sequences[i].key, sequences[i].value, rows[i],
                         outputs[i], 0, merges);
  }
}

// By addresses, and by each way to copy: between ranks of which some share a device, and between
// ranks with a device each.
void CheckCases(int ranks, const RingShape& shape, const std::vector<Case>& cases, uint32_t seed) {
  SCOPED_TRACE(::testing::Message() << ranks << " ranks, page " << shape.page_tokens << ", window "
                                    << shape.window << ", seed " << seed);
  const Kernels kernels;
  const auto check = [&](Backend& backend, RingTransport transport) {
    SCOPED_TRACE(::testing::Message() << "transport " << static_cast<int>(transport));
    RingWorld world(ranks, shape, kernels.reference(), backend,
                    OpenRing(transport, backend, ranks, std::chrono::seconds(10)).value());
    CheckCases(world, shape, cases, seed);
  };
  check(*kernels.backend, RingTransport::kAuto);
  if (ranks == 1) return;
  SeparateDevices two(*kernels.backend, 2);
  check(two, RingTransport::kPeer);
  SeparateDevices all(*kernels.backend, ranks);
  check(all, RingTransport::kNccl);
}

TEST(RingAttention, EqualsReferenceAroundEveryBoundary) {
  struct Way {
    int ranks;
    RingMode mode;
    int page;
  };
  std::vector<Way> ways;
  for (const int ranks : {1, 2, 3, 4, 8}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int page : {16, 64, 128}) {
        // Longer pages make more work for the same threads.
        if (!kThreadSanitizer || page < 128) ways.push_back({ranks, mode, page});
      }
    }
  }
  for (const auto& [ranks, mode, page] : testing::ThinnedIfSanitized(ways, 12)) {
    RingShape shape;
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

TEST(RingAttention, LaterChunksSeeOlderPages) {
  for (const int ranks : {1, 2, 3, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      RingShape shape;
      const int stripe = shape.page_tokens * ranks;
      CheckCases(ranks, shape, {{AllRanks(ranks), 2 * stripe, 3 * stripe + 5, mode}}, 5);
    }
  }
}

TEST(RingAttention, WindowsNeedOnlyNearPages) {
  for (const int ranks : {1, 2, 4}) {
    for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
      for (const int window : {1, 5, 16, 40}) {
        RingShape shape;
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
          RingShape shape;
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
    RingShape shape;
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
  const Kernels kernels;
  for (const OpTable* table : kernels.registry.Available("cpu")) {
    for (const int ranks : {2, 3, 4}) {
      RingShape shape;
      const int stripe = shape.page_tokens * ranks;
      const int end = 3 * stripe;
      std::vector<Case> cases;
      for (const RingMode mode : {RingMode::kPassKv, RingMode::kPassQ}) {
        for (const int begin : {0, stripe, 2 * stripe}) {
          cases.push_back({AllRanks(ranks), begin, end, mode});
        }
      }
      for (int home = 0; home < ranks; ++home) {
        cases.push_back({AllRanks(ranks), end - 1, end, RingMode::kPassQ, true, home});
      }
      std::vector<std::vector<float>> last_rows;
      for (const Case& c : cases) {
        std::mt19937 random(3);
        RingWorld world(ranks, shape, *table, *kernels.backend);
        RingSequence sequence = FreshSequence(c, world, random);
        const RingOutput output =
            world.Run({{&sequence, c.ring, c.begin, c.end, c.mode, c.sampled, c.home}})[0];
        last_rows.emplace_back(output.o.end() - shape.output_columns(), output.o.end());
        EXPECT_EQ(last_rows.back(), last_rows[0]) << table->name << " run " << last_rows.size();
      }
    }
  }
}

TEST(RingAttention, APeerThatNeverComesIsADeadline) {
  RingShape shape;
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  auto backend = CreateCpuBackend().value();
  testing::ManualClock clock;
  InProcessRing ring(*backend, 2, clock);
  auto stream = backend->CreateStream(1).value();
  RingAttentionConfig config;
  config.shape = {16, 1, 16, 16, DType::kF32};
  config.layer_page_bytes = 64;
  config.heads = 1;
  config.timeout = std::chrono::hours(1);
  Heartbeat heartbeat(clock);
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
  std::vector<ItemShards> shards = {BuildItemShards(item, table, 0, 16, 1)};
  std::vector<std::byte> page(65536);
  std::vector<float> buffer(64);
  RingLayer layer;
  layer.items = items;
  layer.shards = shards;
  layer.query = layer.key = layer.value = {buffer.data(), 1, 16, 16};
  layer.page_data = [&](int32_t) { return page.data(); };
  layer.state = layer.served = {buffer.data(), buffer.data() + 32, 1, 1, 16};
  std::thread time([&] {
    EXPECT_TRUE(clock.WaitForWaiters(1));
    clock.Advance(config.timeout);
  });
  EXPECT_EQ(attention.Run(layer).code(), absl::StatusCode::kDeadlineExceeded);
  time.join();
}

// A rank that computes for long is not mistaken for one that is gone.
TEST(RingLink, AWaitLastsAsLongAsAnyRankMakesProgress) {
  const auto backend = CreateCpuBackend().value();
  const auto stream = backend->CreateStream(1).value();
  testing::ManualClock clock;
  InProcessRing ring(*backend, 2, clock);
  Heartbeat heartbeat(clock);
  RingLink link(ring.channel(0), *stream, std::chrono::seconds(30), &heartbeat);
  std::atomic<bool> ended{false};
  std::thread waits([&] {
    const size_t bytes[] = {64};
    EXPECT_EQ(link.Receive(1, 7, bytes).status().code(), absl::StatusCode::kDeadlineExceeded);
    ended = true;
  });
  for (int beat = 0; beat < 5; ++beat) {
    ASSERT_TRUE(clock.WaitForWaiters(1));
    heartbeat.Beat();
    clock.Advance(std::chrono::seconds(29));
    EXPECT_FALSE(ended) << beat;
  }
  ASSERT_TRUE(clock.WaitForWaiters(1));
  clock.Advance(std::chrono::seconds(1));
  waits.join();
}

}  // namespace
}  // namespace annulus
