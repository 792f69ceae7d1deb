#include "engine/tiers/page_mover.h"

#include <algorithm>
#include <array>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {

PageMover::PageMover(PageStore& store, Options options)
    : store_(store),
      options_(std::move(options)),
      page_bytes_(options_.lanes.at(0)->buffer().size()),
      no_memory_(absl::ResourceExhaustedError("not enough memory to move a page now")),
      off_(absl::UnavailableError("the tier is off")),
      under_way_(options_.lanes.size()),
      compared_(options_.compares ? page_bytes_ : 0) {
  done_.reserve(jobs());
  threads_.reserve(under_way_.size());
  threads_.emplace_back([this] { WriteLoop(); });
  for (size_t thread = 1; thread < under_way_.size(); ++thread) {
    threads_.emplace_back([this, thread] { ReadLoop(thread); });
  }
}

PageMover::~PageMover() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void PageMover::Write(Page page) {
  {
    std::lock_guard lock(mutex_);
    MakePlace();
    writes_.push_back(std::move(page));
  }
  changed_.notify_all();
}

std::vector<uint64_t> PageMover::DropWrites() {
  std::lock_guard lock(mutex_);
  std::vector<uint64_t> tickets;
  for (const Page& page : writes_) tickets.push_back(page.ticket);
  writes_.clear();
  if (under_way_[0].has_value()) under_way_[0]->cancelled = true;
  return tickets;
}

void PageMover::Remove(std::vector<EntryName> pages) {
  {
    std::lock_guard lock(mutex_);
    removals_.insert(removals_.end(), pages.begin(), pages.end());
  }
  changed_.notify_all();
}

void PageMover::Read(Page page, Batch batch) {
  {
    std::lock_guard lock(mutex_);
    MakePlace();
    const ReadOrder order{batch.pages, batch.id, page.ticket};
    reads_.emplace(order, std::move(page));
  }
  changed_.notify_all();
}

void PageMover::CancelReads(uint64_t batch) {
  std::lock_guard lock(mutex_);
  std::erase_if(reads_, [batch](const auto& entry) { return entry.first.batch == batch; });
  for (auto& under_way : std::span(under_way_).subspan(1)) {
    if (under_way.has_value() && under_way->batch == batch) under_way->cancelled = true;
  }
  std::erase_if(done_, [batch](const Done& done) { return done.read && done.batch == batch; });
}

std::vector<PageMover::Copy> PageMover::CopiesOf(uint64_t batch) const {
  std::vector<Copy> copies;
  std::lock_guard lock(mutex_);
  for (const auto& job : under_way_) {
    if (job.has_value() && job->copying && job->batch == batch) copies.push_back(job->page);
  }
  return copies;
}

bool PageMover::IsCopyingFor(uint64_t batch) const {
  std::lock_guard lock(mutex_);
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& job) {
    return job.has_value() && job->copying && job->batch == batch;
  });
}

bool PageMover::IsCopying(uint64_t ticket) const {
  std::lock_guard lock(mutex_);
  return std::any_of(under_way_.begin(), under_way_.end(), [&](const auto& job) {
    return job.has_value() && job->copying && job->page.ticket == ticket;
  });
}

bool PageMover::IsCopying() const {
  std::lock_guard lock(mutex_);
  return std::any_of(under_way_.begin(), under_way_.end(),
                     [](const auto& job) { return job.has_value() && job->copying; });
}

std::vector<PageMover::Done> PageMover::TakeDone() {
  std::vector<Done> done;
  std::lock_guard lock(mutex_);
  if (done_.empty()) return done;
  done.reserve(jobs());
  done.swap(done_);
  return done;
}

void PageMover::MakePlace() {
  const size_t places = done_.size() + jobs() + 1;
  if (places > done_.capacity()) done_.reserve(std::max(places, 2 * done_.capacity()));
}

void PageMover::Wake() {
  if (!options_.wake) return;
  const auto wake = [&] {
    options_.wake();
    return absl::OkStatus();
  };
  Guarded(wake, [&] { return no_memory_; }).IgnoreError();
}

double PageMover::OldestJob() const {
  const SteadyTime now = options_.clock->Now();
  double oldest = 0;
  std::lock_guard lock(mutex_);
  for (const auto& under_way : under_way_) {
    if (under_way.has_value()) oldest = std::max(oldest, SecondsBetween(under_way->begun, now));
  }
  return oldest;
}

double PageMover::CountBusy(SteadyTime now) {
  const double seconds = SecondsBetween(busy_since_, now);
  busy_since_ = now;
  return seconds;
}

// Returns whether the store had the page. A copy that differs from the buffer is dropped.
bool PageMover::Compare(const Page& page) {
  if (!store_.Get(page.mark, compared_, page.use).ok()) return false;
  const std::span<const std::byte> page_now = options_.lanes[0]->buffer();
  if (std::equal(page_now.begin(), page_now.end(), compared_.begin())) return true;
  const std::array<PageKey, 1> keys = {KeyOf(page.mark)};
  for (const EntryName& name : store_.Distrust(keys)) store_.RemoveForgotten(name).IgnoreError();
  return true;
}

// Writes the page from the buffer, after reading it there from page.from if that is set.
PageMover::Done PageMover::Put(const Page& page) {
  const std::span<std::byte> buffer = options_.lanes[0]->buffer();
  Done done;
  const auto put = [&]() -> absl::Status {
    if (page.from != nullptr) {
      ANNULUS_RETURN_IF_ERROR(page.from->Get(page.mark, buffer, page.use).status());
    }
    done.compared = page.compare && Compare(page);
    const std::array<std::span<const std::byte>, 1> parts = {buffer};
    const absl::StatusOr<bool> fresh = store_.Put(page.mark, parts, page.use);
    done.fresh = fresh.ok() && *fresh;
    return fresh.status();
  };
  done.status = Guarded(put, [&] { return no_memory_; });
  return done;
}

// Has the store copy the page from where it is.
PageMover::Done PageMover::PutBeside(const Page& page) {
  Done done;
  const auto put = [&]() -> absl::Status {
    const absl::StatusOr<bool> fresh =
        store_.Put(page.mark, PageSource(page.id, page_bytes_), page.use);
    done.fresh = fresh.ok() && *fresh;
    return fresh.status();
  };
  done.status = Guarded(put, [&] { return no_memory_; });
  return done;
}

void PageMover::RemoveOne(std::unique_lock<std::mutex>& lock) {
  const EntryName page = removals_.back();
  removals_.pop_back();
  under_way_[0] = {options_.clock->Now()};
  lock.unlock();
  // The status is not needed: if the disk fails, the store turns itself off.
  Guarded([&] { return store_.RemoveForgotten(page); }, [&] { return no_memory_; }).IgnoreError();
  lock.lock();
  under_way_[0].reset();
}

// A copy in host memory holds the lock, so that a caller that cancels gets the pages back at once.
// A device copy can take arbitrarily long, so nothing may wait for it through the lock.
template <typename Act>
absl::Status PageMover::CopyPage(size_t thread, std::unique_lock<std::mutex>& lock,
                                 const Act& act) {
  PageLane& lane = *options_.lanes[thread];
  if (lane.immediate()) return act(lane);
  if (!store_.on()) return off_;
  absl::Status status;
  LetCopy(thread, lock, [&] {
    status = Guarded([&] { return act(lane); }, [&] { return no_memory_; });
    if (!status.ok() && !absl::IsResourceExhausted(status)) store_.CopyFailed(status);
  });
  return status;
}

template <typename Act>
void PageMover::LetCopy(size_t thread, std::unique_lock<std::mutex>& lock, const Act& act) {
  UnderWay& job = *under_way_[thread];
  job.copying = true;
  lock.unlock();
  act();
  lock.lock();
  job.copying = false;
  if (!job.cancelled) return;
  lock.unlock();
  Wake();
  lock.lock();
}

void PageMover::WriteLoop() {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || !writes_.empty() || !removals_.empty(); });
    if (stop_) return;
    if (!removals_.empty()) {
      RemoveOne(lock);
      continue;
    }
    const Page page = std::move(writes_.front());
    writes_.pop_front();
    const SteadyTime begun = options_.clock->Now();
    under_way_[0] = {begun, {page.ticket, page.id}};
    Done done;
    const bool beside = store_.beside_ranks();
    if (beside) {
      LetCopy(0, lock, [&] { done = PutBeside(page); });
    } else if (page.from == nullptr) {
      done.status = CopyPage(
          0, lock, [&](PageLane& lane) { return lane.CopyOut(page.id.rank, page.pieces); });
    }
    lock.unlock();
    if (!beside && done.status.ok()) done = Put(page);
    done.ticket = page.ticket;
    done.seconds = SecondsBetween(begun, options_.clock->Now());
    lock.lock();
    under_way_[0].reset();
    const double seconds = done.seconds;
    done_.push_back(std::move(done));
    lock.unlock();
    Wake();
    if (options_.write_bytes_per_second == 0) continue;
    const double least = static_cast<double>(page_bytes_) / options_.write_bytes_per_second;
    if (seconds >= least) continue;
    const std::chrono::duration<double> rest(least - seconds);
    lock.lock();
    options_.clock->WaitUntil(
        options_.clock->Now() + std::chrono::duration_cast<SteadyTime::duration>(rest), lock,
        changed_, [this] { return stop_; });
  }
}

// Reads without the lock.
PageMover::Done PageMover::ReadOne(size_t thread, const Page& page,
                                   std::unique_lock<std::mutex>& lock) {
  Done done;
  done.ticket = page.ticket;
  done.read = true;
  const auto get_into = [&](const PageTarget& place) {
    const auto get = [&]() -> absl::Status {
      const absl::StatusOr<std::optional<double>> read = store_.Get(page.mark, place, page.use);
      if (read.ok()) done.coverage = *read;
      return read.status();
    };
    done.status = Guarded(get, [&] { return no_memory_; });
  };
  if (store_.beside_ranks()) {
    LetCopy(thread, lock, [&] { get_into(PageTarget(page.id, page_bytes_)); });
    return done;
  }
  lock.unlock();
  get_into(options_.lanes[thread]->buffer());
  lock.lock();
  if (!done.status.ok() || under_way_[thread]->cancelled) return done;
  done.status = CopyPage(thread, lock,
                         [&](PageLane& lane) { return lane.CopyIn(page.id.rank, page.pieces); });
  return done;
}

void PageMover::ReadLoop(size_t thread) {
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || !reads_.empty(); });
    if (stop_) return;
    auto next = reads_.extract(reads_.begin());
    const Page page = std::move(next.mapped());
    const SteadyTime begun = options_.clock->Now();
    under_way_[thread] = {begun, {page.ticket, page.id}, next.key().batch};
    if (reading_++ == 0) busy_since_ = begun;
    Done done = ReadOne(thread, page, lock);
    done.batch = next.key().batch;
    const SteadyTime now = options_.clock->Now();
    done.seconds = SecondsBetween(begun, now);
    done.busy_seconds = CountBusy(now);
    --reading_;
    const bool cancelled = under_way_[thread]->cancelled;
    under_way_[thread].reset();
    if (cancelled) continue;
    done_.push_back(std::move(done));
    lock.unlock();
    Wake();
  }
}

}  // namespace annulus
