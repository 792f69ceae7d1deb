// A system without memory while pages leave for a disk: what reaches it is what was computed, and
// the engine goes on. Each allocation of the size of a page's tokens fails in turn.

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/pages/page_tier_fixture.h"
#include "tests/support/counting_heap.h"

namespace annulus {
namespace {

using testing::CollectingSink;
using testing::FailAllocation;
using testing::TakeAllocationFailed;
using testing::WithoutWindows;

constexpr int kPageTokens = 256;  // the most; so few other allocations are as large
constexpr size_t kTokensOfPage = sizeof(int32_t) * kPageTokens;

class PageTierHeapTest : public testing::PageTierFixture {
 protected:
  SeamedOptions OptionsOf(const std::string& model) {
    SeamedOptions options{Options(model, 1)};
    options.seams.through_bytes = false;  // protobuf does not promise to survive without memory
    options.page_tokens = kPageTokens;
    options.chunk_tokens = kPageTokens;
    options.tokens_per_rank = kPageTokens;
    return options;
  }
  static RequestSpec SpecOf(const std::vector<int32_t>& prompt, int tenant) {
    RequestSpec spec = Spec(prompt);
    spec.sampling.max_tokens = 3;
    spec.tenant = TenantId::FromName(absl::StrCat("t", tenant)).value();
    return spec;
  }
};

// The first page of the text again and again: what a chain that moved on without its page names.
TEST_F(PageTierHeapTest, APageIsNeverKeptUnderOtherTokens) {
  const testing::TempDirectory folder;
  const std::string model = WithoutWindows(folder);
  const std::vector<int32_t> text = Prompt(3 * kPageTokens + 5, 300);
  std::vector<int32_t> again(text.begin(), text.begin() + kPageTokens);
  for (int i = 0; i < 2; ++i) again.insert(again.end(), text.begin(), text.begin() + kPageTokens);
  again.push_back(7);
  SeamedOptions off = OptionsOf(model);
  off.kv_disk.clear();
  const auto plain = Make(off);
  const Answer of_text = Ask(*plain, SpecOf(text, 0));
  const Answer of_again = Ask(*plain, SpecOf(again, 0));

  int tenants = 0;
  {
    const auto engine = Make(OptionsOf(model));
    for (int nth = 0; nth < 2000; nth += 1 + nth / 64) {
      SCOPED_TRACE(::testing::Message() << "large allocation " << nth);
      // The second waits for what the first computes of its beginning, and keeps it for itself.
      const auto first = std::make_shared<CollectingSink>();
      const auto second = std::make_shared<CollectingSink>();
      FailAllocation(kTokensOfPage, nth);
      ASSERT_TRUE(engine->Submit(SpecOf(text, tenants), first).ok());
      ASSERT_TRUE(engine->Submit(SpecOf(text, tenants), second).ok());
      for (const auto& sink : {first, second}) {
        const auto done = sink->Wait();
        ASSERT_TRUE(done.has_value());
        EXPECT_TRUE(done->status.ok() || absl::IsResourceExhausted(done->status) ||
                    absl::IsUnavailable(done->status))
            << done->status;
        if (done->status.ok()) {
          EXPECT_EQ(sink->ids(), of_text.ids);
        }
      }
      ++tenants;
      if (!TakeAllocationFailed()) break;
      EXPECT_TRUE(engine->Load().healthy);
    }
  }
  EXPECT_GE(tenants, 20);
  const auto engine = Make(OptionsOf(model));
  for (int tenant = 0; tenant < tenants; ++tenant) {
    EXPECT_EQ(Ask(*engine, SpecOf(again, tenant)), of_again) << tenant;
    EXPECT_EQ(Ask(*engine, SpecOf(text, tenant)), of_text) << tenant;
  }
  EXPECT_EQ(Metric(*engine, "kv_tier_rejects_total"), 0);
  // How many are read back depends on how fast this machine computes so short a prompt just now.
  EXPECT_GT(Metric(*engine, "kv_tier_restores_total"), 0);
}

}  // namespace
}  // namespace annulus
