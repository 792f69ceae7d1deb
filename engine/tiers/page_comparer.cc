#include "engine/tiers/page_comparer.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::StatusOr<std::unique_ptr<PageComparer>> PageComparer::Open(std::span<Backend* const> devices,
                                                                 size_t page_bytes,
                                                                 const Clock& clock) {
  std::unique_ptr<PageComparer> comparer(new PageComparer(clock));
  if (devices[0]->capabilities().host_accessible) return comparer;
  ANNULUS_ASSIGN_OR_RETURN(comparer->one_, PageLane::Open(devices, page_bytes));
  ANNULUS_ASSIGN_OR_RETURN(comparer->other_, PageLane::Open(devices, page_bytes));
  comparer->thread_ = std::thread([own = comparer.get()] { own->Loop(); });
  return comparer;
}

std::unique_ptr<PageComparer> PageComparer::Beside(RankShelves& shelves, const Clock& clock) {
  std::unique_ptr<PageComparer> comparer(new PageComparer(clock));
  comparer->shelves_ = &shelves;
  comparer->thread_ = std::thread([own = comparer.get()] { own->Loop(); });
  return comparer;
}

PageComparer::~PageComparer() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<bool> PageComparer::CopyAndCompare(const Pair& pair) {
  bool same = false;
  const auto compare = [&]() -> absl::Status {
    if (shelves_ != nullptr) {
      ANNULUS_ASSIGN_OR_RETURN(
          same, shelves_->Same({pair.one.rank, pair.one.page}, {pair.other.rank, pair.other.page}));
      return absl::OkStatus();
    }
    ANNULUS_RETURN_IF_ERROR(one_->CopyOut(pair.one.rank, pair.one.pieces));
    ANNULUS_RETURN_IF_ERROR(other_->CopyOut(pair.other.rank, pair.other.pieces));
    const std::span<const std::byte> bytes = one_->buffer();
    same = std::memcmp(bytes.data(), other_->buffer().data(), bytes.size()) == 0;
    return absl::OkStatus();
  };
  const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
  ANNULUS_RETURN_IF_ERROR(Guarded(compare, no_memory));
  return same;
}

absl::StatusOr<bool> PageComparer::Same(Place one, Place other, std::chrono::milliseconds most) {
  if (one_ == nullptr && shelves_ == nullptr) {
    return std::equal(one.pieces.begin(), one.pieces.end(), other.pieces.begin(),
                      [](std::span<const std::byte> a, std::span<const std::byte> b) {
                        return std::memcmp(a.data(), b.data(), a.size()) == 0;
                      });
  }
  std::unique_lock lock(mutex_);
  if (busy_) return absl::DeadlineExceededError("a device still copies two earlier pages");
  same_.reset();
  pair_.emplace(std::move(one), std::move(other));
  changed_.notify_all();
  const SteadyTime due = clock_.Now() + most;
  if (clock_.WaitUntil(due, lock, changed_, [this] { return same_.has_value(); })) return *same_;
  pair_.reset();
  return absl::DeadlineExceededError(
      absl::StrCat("a device has not copied two pages within ", most.count(), " ms"));
}

void PageComparer::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || pair_.has_value(); });
    if (stop_) return;
    const Pair pair = *std::exchange(pair_, std::nullopt);
    busy_ = true;
    lock.unlock();
    absl::StatusOr<bool> same = CopyAndCompare(pair);
    lock.lock();
    busy_ = false;
    same_ = std::move(same);
    changed_.notify_all();
  }
}

}  // namespace annulus
