// What evidence takes of the host's memory is what is planned for it.

#include <gtest/gtest.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"
#include "engine/model/made/recall_model.h"
#include "engine/request/evidence_account.h"
#include "engine/request/evidence_memory.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/counting_backend.h"
#include "tests/support/counting_heap.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::CountingBackend;
using testing::HeapBytes;
using testing::TakeHeapBytesMost;

constexpr int kRunning = 4;

// Counts the heap from the answer's first token on.
class AnswerHeapSink final : public CollectingSink {
 public:
  void OnDelta(Delta delta) override {
    if (!begun_.exchange(true)) {
      TakeHeapBytesMost();
      before_ = HeapBytes();
    }
    CollectingSink::OnDelta(std::move(delta));
  }
  void OnDone(Completion completion) override {
    taken_ = TakeHeapBytesMost() - before_;
    CollectingSink::OnDone(std::move(completion));
  }
  int64_t taken() const { return taken_; }

 private:
  std::atomic<bool> begun_{false};
  std::atomic<int64_t> before_{0};
  std::atomic<int64_t> taken_{0};
};

class EvidenceFootprint : public ::testing::Test {
 protected:
  EvidenceFootprint() { RegisterCpuKernels(registry_); }

  std::unique_ptr<Engine> Make(CountingBackend& backend, int ranks, Speculation speculation) {
    EngineOptions options = testing::PlainOptions();
    options.ranks = ranks;
    options.threads = ranks;
    options.chunk_tokens = 512;
    options.tokens_per_rank = 256;
    options.max_running = kRunning;
    options.kv_memory_bytes = size_t{128} << 20;
    options.kv_dtype = DType::kBF16;
    options.speculation = speculation;
    return CreateEngine(options, backend, registry_).value();
  }

  static RequestSpec Asks(int32_t tokens, bool evidence, int32_t fill = 'x') {
    RequestSpec spec;
    spec.prompt.assign(static_cast<size_t>(tokens), fill);
    spec.documents = {{10, "a", tokens - 20}};
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 24;
    spec.evidence = evidence;
    return spec;
  }

  static EvidenceShape ShapeOf(int ranks) {
    const AttentionShape attention = RecallConfig(2).layers[1].attention;
    return {.query_floats = int64_t{attention.heads} * (attention.k_dim + 1),
            .layers = 1,
            .heads = attention.heads,
            .page_tokens = 64,
            .ranks = ranks};
  }

  const std::unique_ptr<Backend> cpu_ = CreateCpuBackend().value();
  KernelRegistry registry_;
};

TEST_F(EvidenceFootprint, ARequestTakesWhatAdmissionCounts) {
  constexpr int32_t kTokens = 16'000;
  for (const int ranks : {1, 2}) {
    SCOPED_TRACE(::testing::Message() << ranks << " ranks");
    CountingBackend backend(*cpu_);
    const auto engine = Make(backend, ranks, Speculation::kOff);
    const RequestSpec asks = Asks(kTokens, true);
    const EvidenceNeed need = NeedForEvidence(ShapeOf(ranks), EvidenceRanges(asks.documents));
    int64_t heap[2] = {};
    for (const bool evidence : {false, true}) {
      auto sink = std::make_shared<AnswerHeapSink>();
      ASSERT_TRUE(engine->Submit(Asks(kTokens, evidence), sink).ok());
      ASSERT_TRUE(sink->Wait()->status.ok());
      heap[evidence ? 1 : 0] = sink->taken();
      EXPECT_TRUE(evidence || backend.host_most() == 0) << backend.host_most();
    }
    if (ranks == 1) {
      EXPECT_EQ(backend.host_most(), need.messages + need.scores);
    } else {
      EXPECT_LE(backend.host_most(), need.messages + need.scores);
      EXPECT_GE(backend.host_most(), (need.messages + need.scores) / 2);
    }
    EvidenceShape pinned = ShapeOf(ranks);
    pinned.pinned = true;
    const EvidenceNeed rounded = NeedForEvidence(pinned, EvidenceRanges(asks.documents));
    EXPECT_GT(backend.pinned_most(), backend.host_most());
    EXPECT_LE(backend.pinned_most(), rounded.messages + rounded.scores);
    EXPECT_GE(backend.pinned_most(), (rounded.messages + rounded.scores) / 4);
    EXPECT_EQ(rounded.sums + rounded.lists, need.sums + need.lists) << "the heap rounds nothing";
    const auto lists = static_cast<int64_t>(need.sums + need.lists);
    EXPECT_LE(heap[1] - heap[0], lists);
    EXPECT_GE(heap[1] - heap[0], lists / 4);
  }
}

// More than may run, which guess tokens ahead, so that steps have many rows of each.
TEST_F(EvidenceFootprint, AFloodTakesNoMoreThanIsPlanned) {
  constexpr int32_t kTokens = 3000;
  constexpr int kFlood = 3 * kRunning;
  CountingBackend backend(*cpu_);
  const auto engine = Make(backend, 2, Speculation::kNgram);
  const MemoryPlan plan = engine->Load().plan;
  EXPECT_GT(plan.evidence, 0u);
  EXPECT_LE(plan.evidence, plan.needed());
  std::vector<std::shared_ptr<CollectingSink>> sinks;
  for (int i = 0; i < kFlood; ++i) {
    sinks.push_back(std::make_shared<CollectingSink>());
    ASSERT_TRUE(engine->Submit(Asks(kTokens, true, 'a' + i), sinks.back()).ok());
  }
  int64_t drafted = 0;
  for (const auto& sink : sinks) {
    const auto done = sink->Wait();
    ASSERT_TRUE(done.has_value() && done->status.ok());
    drafted += done->usage.drafted_tokens;
  }
  EXPECT_GT(drafted, 0);
  const EvidenceNeed need =
      NeedForEvidence(ShapeOf(2), EvidenceRanges(Asks(kTokens, true).documents));
  EXPECT_GT(backend.host_most(), need.messages + need.scores) << "several rows at once";
  EXPECT_LE(backend.host_most(), plan.evidence);
  // As admission has foreseen.
  EXPECT_GE(engine->Load().memory.requests, static_cast<int64_t>(need.of_request()));
}

}  // namespace
}  // namespace annulus
