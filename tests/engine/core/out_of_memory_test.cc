// A system without memory for a request ends that request, not the engine: each large allocation of
// the engine's threads fails in turn.

#include <gtest/gtest.h>

#include <memory>
#include <optional>
#include <tuple>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/counting_heap.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::FailAllocation;
using testing::TakeAllocationFailed;

// The server keeps a reserve for small ones (server/process/memory_reserve.h); at this size are the
// large ones of a short prompt.
constexpr size_t kLarge = 5000;

// Ranks, and whether requests guess their answers ahead (dense attention) or choose blocks.
// Plans do not go through bytes: protobuf does not promise to survive without memory.
class OutOfMemoryTest : public ::testing::TestWithParam<std::tuple<int, bool>> {
 protected:
  OutOfMemoryTest() {
    RegisterCpuKernels(registry_);
    EngineOptions options = testing::PlainOptions();
    options.model = "builtin:recall3";
    options.ranks = std::get<0>(GetParam());
    options.threads = 1;
    options.chunk_tokens = 256;
    options.tokens_per_rank = 256;
    options.kv_memory_bytes = size_t{64} << 20;
    engine_ = CreateEngine(options, *backend_, registry_).value();
  }

  Completion Ask(CollectingSink& sink) {
    RequestSpec spec;
    spec.prompt.assign(1500, 'x');
    spec.prompt[700] = 'y';
    spec.sampling.temperature = 0;
    spec.sampling.max_tokens = 4;
    spec.sampling.repetition_penalty = 1.01;  // keeps the prompt once more
    if (std::get<1>(GetParam())) {
      spec.speculation = Speculation::kNgram;
    } else {
      spec.attention = AttentionAssignment(AttentionPolicy{.kind = PolicyKind::kAdaptive});
      spec.attention_details = true;
    }
    spec.tenant = TenantId::FromName(absl::StrCat("t", ++asked_)).value();  // finds nothing cached
    EXPECT_TRUE(
        engine_->Submit(std::move(spec), std::shared_ptr<CollectingSink>(&sink, [](auto*) {}))
            .ok());
    std::optional<Completion> done = sink.Wait();
    EXPECT_TRUE(done.has_value());
    return *std::move(done);
  }

  std::unique_ptr<Backend> backend_ = CreateCpuBackend().value();
  KernelRegistry registry_;
  std::unique_ptr<Engine> engine_;
  int asked_ = 0;
};

TEST_P(OutOfMemoryTest, EndsARequestAndNotTheEngine) {
  CollectingSink first;
  ASSERT_TRUE(Ask(first).status.ok());
  constexpr int kMost = 10'000;
  int failed = 0;
  for (int nth = 0; nth < kMost; nth += 1 + nth / 8) {
    SCOPED_TRACE(::testing::Message() << "large allocation " << nth);
    CollectingSink sink;
    FailAllocation(kLarge, nth);
    const Completion completion = Ask(sink);
    if (!TakeAllocationFailed()) {
      EXPECT_TRUE(completion.status.ok()) << completion.status;
      break;
    }
    ++failed;
    EXPECT_TRUE(completion.status.ok() || absl::IsResourceExhausted(completion.status) ||
                absl::IsUnavailable(completion.status))
        << completion.status;
    CollectingSink next;
    EXPECT_TRUE(Ask(next).status.ok());
    EXPECT_EQ(next.ids(), first.ids());
    EXPECT_TRUE(engine_->Load().healthy);
  }
  EXPECT_GE(failed, 4);
}

INSTANTIATE_TEST_SUITE_P(Requests, OutOfMemoryTest,
                         ::testing::Combine(::testing::Values(1, 2), ::testing::Bool()));

}  // namespace
}  // namespace annulus
