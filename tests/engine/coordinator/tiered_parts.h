#ifndef ANNULUS_TESTS_ENGINE_COORDINATOR_TIERED_PARTS_H_
#define ANNULUS_TESTS_ENGINE_COORDINATOR_TIERED_PARTS_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/tiers/host_store.h"
#include "engine/tiers/page_comparer.h"
#include "tests/engine/coordinator/engine_parts.h"
#include "tests/engine/tiers/mover_lanes.h"
#include "tests/support/eventually.h"

namespace annulus::testing {

// A level in the host's memory.
struct HostLevel {
  static constexpr int kPages = 64;

  HostLevel() {
    Backend* const devices[] = {&device_};
    comparer_ = PageComparer::Open(devices, SimulatedRanks::kPageBytes).value();
  }
  CoordinatorOptions With(CoordinatorOptions options, KvVerify verify, double write_rate) {
    PageLevels::Level level;
    level.kind = TierKind::kHost;
    level.store = store_.get();
    level.metrics = &level_metrics_.tiers.host;
    level.lanes = lanes_.all();
    level.write_bytes_per_second = write_rate;
    options.tiers = {level};
    options.engine.kv_verify = verify;
    options.comparer = verify == KvVerify::kSample ? comparer_.get() : nullptr;
    return options;
  }

  FakeBackend device_;
  EngineMetrics level_metrics_{1, ModelInfo()};
  MoverLanes lanes_{device_, SimulatedRanks::kPageBytes, PageMover::kThreads};
  std::unique_ptr<HostStore> store_ =
      HostStore::Create(int64_t{kPages} * (kEntryHeaderBytes + SimulatedRanks::kPageBytes),
                        SimulatedRanks::kPageBytes)
          .value();
  std::unique_ptr<PageComparer> comparer_;
};

// EngineParts with a tier. Simulated ranks write no pages: a computed page has the bytes that its
// memory had before.
class TieredParts : protected HostLevel, public EngineParts {
 public:
  // `write_rate`: bytes a second that are written at most; 0: any.
  explicit TieredParts(KvVerify verify = KvVerify::kOff,
                       const CoordinatorOptions& options = Options(), double write_rate = 0)
      : EngineParts(With(options, verify, write_rate), /*pages=*/20, /*has_memory=*/true) {}

  PageTier& tier() { return *ledger_.tier(); }

  // Fills the memory of all free pages.
  void FillFree(int byte) {
    for (int rank = 0; rank < ledger_.book().ranks(); ++rank) {
      for (int32_t page = 0; page < ledger_.book().counts(rank).total(); ++page) {
        if (ledger_.book().page({rank, page}).state != PageState::kFree) continue;
        std::memset(ranks_.local_pages(rank)->LayerPage(page, 0), byte, SimulatedRanks::kPageBytes);
      }
    }
  }
  // Waits until the store has so many pages, and the tier knows.
  bool WaitForPages(int64_t pages) {
    return Eventually([&] {
      tier().Turn();
      return store_->stats().pages == pages && level_metrics_.tiers.host.waiting.value() == 0;
    });
  }
  // Computes a prompt of `tokens`, whose whole pages are saved, and then only there.
  void Save(int tokens, int32_t fill = 'x') {
    const int64_t before = store_->stats().pages;
    RunAlone(Spec(tokens, 1, fill));
    ASSERT_TRUE(WaitForPages(before + tokens / kPage));
    ASSERT_TRUE(Eventually([&] {
      tier().Turn();
      ledger_.prefixes().index().Evict([] { return false; });
      return FreePages() == 40;
    }));
  }
  bool Waits(const Request& request) {
    int64_t hashed = 0;
    return restore_waits_.Waits(request, nullptr, hashed);
  }
};

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_COORDINATOR_TIERED_PARTS_H_
