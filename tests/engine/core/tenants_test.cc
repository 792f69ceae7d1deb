// Two tenants, interleaved at random, send prompts that begin alike. What each is told about the
// cache is what it would be told if it were alone.

#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_seams.h"
#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/support/collecting_sink.h"
#include "tests/support/plain_options.h"

namespace annulus {
namespace {

using testing::CollectingSink;

constexpr int kInterleavings = kSanitized ? 2 : 8;
constexpr int kRequestsOfEach = 10;

struct Ask {
  size_t tenant = 0;
  std::string prompt;
};

class TenantsTest : public ::testing::Test {
 protected:
  TenantsTest() : backend_(CreateCpuBackend().value()) { RegisterCpuKernels(registry_); }

  // What each tenant is told, request by request, by a new engine that is asked in this order.
  std::vector<std::vector<std::string>> Told(const std::vector<Ask>& asks) {
    EngineOptions options = testing::PlainOptions();
    options.ranks = 2;
    options.threads = 2;
    options.kv_memory_bytes = 64 << 20;
    options.page_tokens = 16;
    auto engine = CreateEngineWith({.through_bytes = true}, options, *backend_, registry_);
    EXPECT_TRUE(engine.ok()) << engine.status();
    const std::vector<TenantId> tenants = {*TenantId::FromName("a"), *TenantId::FromName("b")};
    std::vector<std::vector<std::string>> told(tenants.size());
    for (const Ask& ask : asks) {
      RequestSpec spec;
      spec.prompt = (*engine)->Tokenize(ask.prompt, true, CancelFlag::Never()).value();
      spec.sampling.temperature = 0;
      spec.sampling.max_tokens = 2;
      spec.tenant = tenants[ask.tenant];
      auto sink = std::make_shared<CollectingSink>();
      EXPECT_TRUE((*engine)->Submit(std::move(spec), sink).ok());
      const Completion end = *sink->Wait();
      EXPECT_TRUE(end.status.ok()) << end.status;
      std::string ids;
      for (const int32_t id : sink->ids()) ids += " " + std::to_string(id);
      told[ask.tenant].push_back("cached " + std::to_string(end.usage.cached_tokens) +
                                 " progress " + std::to_string(sink->progress().front().cached) +
                                 " ids" + ids);
    }
    return told;
  }

  std::unique_ptr<Backend> backend_;
  KernelRegistry registry_;
};

TEST_F(TenantsTest, ATenantsHitsAreItsOwnInAnyInterleaving) {
  int64_t hits = 0;
  for (unsigned seed = 1; seed <= kInterleavings; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937 random(seed);
    // Few beginnings of a few pages each, so that prompts share them within and between tenants.
    std::vector<Ask> both;
    std::vector<std::vector<Ask>> alone(2);
    std::vector<int> left(2, kRequestsOfEach);
    while (left[0] + left[1] > 0) {
      Ask ask;
      ask.tenant = random() % 2;
      if (left[ask.tenant] == 0) ask.tenant = 1 - ask.tenant;
      --left[ask.tenant];
      for (int part = 0; part < 3; ++part) {
        ask.prompt += std::string(16 + random() % 2 * 16, static_cast<char>('a' + random() % 2));
      }
      both.push_back(ask);
      alone[ask.tenant].push_back(ask);
    }
    const auto together = Told(both);
    for (size_t tenant = 0; tenant < 2; ++tenant) {
      EXPECT_EQ(together[tenant], Told(alone[tenant])[tenant]) << "tenant " << tenant;
      for (const std::string& line : together[tenant]) hits += line.find("cached 0") != 0;
    }
  }
  EXPECT_GT(hits, kInterleavings) << "nothing was ever reused, so nothing was tried";
}

}  // namespace
}  // namespace annulus
