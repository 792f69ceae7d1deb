// Each allocation fails in turn while the loss of ranks is handled: what they had is never used.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <span>
#include <thread>
#include <vector>

#include "engine/coordinator/step_recovery.h"
#include "tests/engine/coordinator/tiered_parts.h"
#include "tests/support/counting_heap.h"

namespace annulus::testing {
namespace {

constexpr std::byte kComputed{1};
constexpr std::byte kOfReplacement{2};

// A page is written each second.
class Parts : public TieredParts {
 public:
  Parts() : TieredParts(KvVerify::kOff, Options(), SimulatedRanks::kPageBytes) {}

  // Pages of a text wait to be written while another runs.
  void Begin() {
    FillFree(static_cast<int>(kComputed));
    RunAlone(Spec(128, 1));
    tier().Turn();
    Start(Spec(40, 4, 'y'));
    Step();
  }
  // All ranks are lost, and others come, which have other bytes in their memory.
  void Lose() {
    for (int rank = 0; rank < ledger_.book().ranks(); ++rank) {
      for (int32_t page = 0; page < ledger_.book().counts(rank).total(); ++page) {
        std::memset(ranks_.local_pages(rank)->LayerPage(page, 0), static_cast<int>(kOfReplacement),
                    SimulatedRanks::kPageBytes);
      }
    }
    static constexpr int32_t kLost[] = {0, 1};
    recovery_.RecoverLost(cause_, kLost);
    ledger_.state().ended.clear();
  }
  bool WaitForWrites() {
    return clock_.AdvanceUntil([this] {
      tier().Turn();
      return !store_->on() || level_metrics_.tiers.host.waiting.value() == 0;
    });
  }
  // Pages of the text that the tier gives.
  struct Given {
    int computed = 0;
    int others = 0;  // with other bytes than were computed
  };
  Given Read() {
    Given given;
    std::vector<std::byte> page(SimulatedRanks::kPageBytes);
    for (const PageMark& mark : tier().lookup().Find(Spec(129), nullptr, 0).marks) {
      if (!store_->Get(mark, std::span(page), store_->NextUse()).ok()) continue;
      const bool computed = std::count(page.begin(), page.end(), kComputed) == std::ssize(page);
      ++(computed ? given.computed : given.others);
    }
    return given;
  }

 private:
  const absl::Status cause_ = absl::UnavailableError("lost");  // made in advance: it allocates
  StepRecovery recovery_{{options_, ledger_, serving_, growth_, checks_, metrics_,
                          [this](const Request& request) { tier().Forget(request.id()); },
                          [this](RequestId id, const absl::Status&) { Leave(id); }}};
};

TEST(StepRecoveryHeapTest, WhatLostRanksHadIsNeverUsed) {
  {
    Parts parts;
    parts.Begin();
    ASSERT_TRUE(parts.WaitForWrites());
    EXPECT_EQ(parts.Read().computed, 8) << "without a loss all is written";
  }
  int nth = 0;
  for (bool failed = true; failed; ++nth) {
    SCOPED_TRACE(nth);
    Parts parts;
    parts.Begin();
    std::thread([&] {
      FailOwnAllocation(nth);
      parts.Lose();
    }).join();
    failed = TakeAllocationFailed();
    ASSERT_TRUE(parts.WaitForWrites());
    EXPECT_EQ(parts.Read().others, 0);
  }
  EXPECT_GT(nth, 5);
}

}  // namespace
}  // namespace annulus::testing
