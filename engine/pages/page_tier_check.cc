// The part of PageTier that compares pages that were read back with what computing gives.

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "engine/pages/page_tier.h"
#include "engine/sparse/draw.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A device needs about a millisecond; the coordinator waits meanwhile.
constexpr std::chrono::milliseconds kMostCompareTime{1000};

}  // namespace

int32_t PageTier::SampledPage(uint64_t seed, RequestId id, int32_t pages) {
  const uint64_t drawn = Mix(Mix(seed) ^ id);
  if (drawn % 2 == 0) return pages - 1;
  return static_cast<int32_t>(drawn / 2 % static_cast<uint64_t>(pages));
}

std::optional<int64_t> PageTier::Checked(RequestId id) const {
  const auto found = standings_.find(id);
  return found == standings_.end() ? std::nullopt : found->second.checked;
}

std::optional<PageTier::Check> PageTier::NextCheck() const {
  const auto next = std::find_if(restores_.begin(), restores_.end(), [](const auto& entry) {
    return entry.second.phase == Phase::kUnchecked;
  });
  if (next == restores_.end()) return std::nullopt;
  const Restore& restore = next->second;
  Check check;
  check.restore = next->first;
  check.request = restore.request;
  check.tenant = restore.tenant;
  check.policy = restore.beginning.policy;
  check.rope_length = restore.beginning.rope_length;
  check.tokens.assign(restore.tokens.begin(),
                      restore.tokens.begin() + restore.sampled + limits_.page_tokens);
  check.ring = restore.ring;
  check.before.tokens = restore.sampled;
  check.before.groups = restore.pages;
  for (std::vector<PrefixPage>& pages : check.before.groups) {
    std::erase_if(
        pages, [&](const PrefixPage& page) { return page.first_position >= check.before.tokens; });
  }
  return check;
}

void PageTier::BeginCheck(PageOwner restore) { restores_.at(restore).phase = Phase::kChecking; }

void PageTier::EndCheck(PageOwner owner, const Sequence* computed) {
  Restore& restore = restores_.at(owner);
  ANNULUS_CHECK(restore.phase == Phase::kChecking) << "a check that nobody began";
  if (computed != nullptr) {
    bool same = false;
    const auto compare = [&]() -> absl::Status {
      ANNULUS_ASSIGN_OR_RETURN(same, SameBits(restore, *computed));
      return absl::OkStatus();
    };
    const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
    const absl::Status compared = Guarded(compare, no_memory);
    if (compared.ok()) {
      const int32_t page = (restore.sampled - restore.from) / limits_.page_tokens;
      levels_.metrics(restore.came_from[page]).checks.Increment();
      restore.checked = restore.sampled;
    } else {
      restore.missing = CacheMiss::Reason::kDiskSlower;
      // Too little memory or a slow device says nothing about the levels. If the device hangs,
      // their own copies show it: see PageLevels::TurnOffHung.
      const bool slow = absl::IsDeadlineExceeded(compared);
      if (!slow && !absl::IsResourceExhausted(compared)) levels_.CopyFailed(compared);
    }
    if (same) restore.phase = Phase::kKnown;
    if (compared.ok() && !same) Distrust(restore);
  }
  EndRestore(owner);
}

absl::StatusOr<bool> PageTier::SameBits(const Restore& restore, const Sequence& computed) const {
  const int32_t first = restore.sampled;
  for (size_t g = 0; g < computed.groups.size(); ++g) {
    const PageEntry& own = computed.groups[g].entries.back();
    ANNULUS_CHECK(own.first_position == first) << "a page at " << own.first_position;
    const PageId read = PageAt(restore, static_cast<int>(g), first);
    ANNULUS_ASSIGN_OR_RETURN(const bool same,
                             comparer_->Same({own.rank, PiecesOf({own.rank, own.page})},
                                             {read.rank, PiecesOf(read)}, kMostCompareTime));
    if (!same) return false;
  }
  return true;
}

void PageTier::Distrust(Restore& restore) {
  restore.missing = CacheMiss::Reason::kDiskRefused;
  const auto forget = [&] {
    std::vector<PageKey> keys;
    for (size_t page = restore.from / limits_.page_tokens; page < restore.beginning.marks.size();
         ++page) {
      for (size_t g = 0; g < limits_.group_windows.size(); ++g) {
        keys.push_back({restore.beginning.marks[page].chain, static_cast<int32_t>(g)});
      }
    }
    levels_.Distrust(keys, CameBack(restore, restore.good_to));
    return absl::OkStatus();
  };
  // It would be found again.
  const auto no_memory = [&] {
    absl::Status status(absl::StatusCode::kResourceExhausted, "");
    levels_.TurnOffAll(absl::ResourceExhaustedError("out of memory"));
    return status;
  };
  Guarded(forget, no_memory).IgnoreError();
}

}  // namespace annulus
