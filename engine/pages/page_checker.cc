#include "engine/pages/page_checker.h"

#include <chrono>
#include <vector>

#include "engine/base/try_to.h"
#include "engine/pages/page_pieces.h"
#include "engine/sparse/draw.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A device needs about a millisecond; the coordinator waits meanwhile.
constexpr std::chrono::milliseconds kMostCompareTime{1000};

}  // namespace

int32_t PageChecker::SampledPage(uint64_t seed, RequestId id, int32_t pages) {
  const uint64_t drawn = Mix(Mix(seed) ^ id);
  if (drawn % 2 == 0) return pages - 1;
  return static_cast<int32_t>(drawn / 2 % static_cast<uint64_t>(pages));
}

void PageChecker::Compare(const Sequence& computed, Restore& restore) const {
  bool same = false;
  const auto compare = [&]() -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(same, SameBits(restore, computed));
    return absl::OkStatus();
  };
  const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
  const absl::Status compared = Guarded(compare, no_memory);
  if (compared.ok()) {
    const int32_t page = (restore.sampled - restore.from) / marks_.page_tokens();
    levels_.metrics(restore.came_from[page]).checks.Increment();
    restore.checked = restore.sampled;
  } else {
    restore.missing = CacheMiss::Reason::kDiskSlower;
    // Too little memory, a slow device or the loss of a worker says nothing about the levels. If
    // the device hangs, their own copies show it: see PageLevels::TurnOffHung.
    const bool slow = absl::IsDeadlineExceeded(compared) || levels_.beside_ranks();
    if (!slow && !absl::IsResourceExhausted(compared)) levels_.CopyFailed(compared);
  }
  if (same) restore.phase = Restore::Phase::kKnown;
  if (compared.ok() && !same) Distrust(restore);
}

absl::StatusOr<bool> PageChecker::SameBits(const Restore& restore, const Sequence& computed) const {
  const int32_t first = restore.sampled;
  for (size_t g = 0; g < computed.groups.size(); ++g) {
    const PageEntry& own = computed.groups[g].entries.back();
    ANNULUS_CHECK(own.first_position == first) << "a page at " << own.first_position;
    const PageId read = restore.PageAt(static_cast<int>(g), first);
    ANNULUS_ASSIGN_OR_RETURN(
        const bool same,
        comparer_->Same({own.rank, PiecesOf(ranks_, {own.rank, own.page}), own.page},
                        {read.rank, PiecesOf(ranks_, read), read.page}, kMostCompareTime));
    if (!same) return false;
  }
  return true;
}

void PageChecker::Distrust(Restore& restore) const {
  restore.missing = CacheMiss::Reason::kDiskRefused;
  const auto forget = [&] {
    std::vector<PageKey> keys;
    for (size_t page = restore.from / marks_.page_tokens(); page < restore.beginning.marks.size();
         ++page) {
      for (int group = 0; group < marks_.groups(); ++group) {
        keys.push_back({restore.beginning.marks[page].chain, group});
      }
    }
    levels_.Distrust(keys, restore.CameBack(restore.good_to, marks_.page_tokens()));
  };
  // It would be found again.
  if (!TryTo(forget)) levels_.TurnOffAll(absl::ResourceExhaustedError("out of memory"));
}

}  // namespace annulus
