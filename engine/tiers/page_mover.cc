#include "engine/tiers/page_mover.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

SteadyTime TimeNow() { return std::chrono::steady_clock::now(); }

void CopyOut(const PagePieces& pieces, std::span<std::byte> bytes) {
  size_t offset = 0;
  for (const std::span<std::byte> piece : pieces) {
    ANNULUS_CHECK(offset + piece.size() <= bytes.size()) << piece.size();
    std::memcpy(bytes.data() + offset, piece.data(), piece.size());
    offset += piece.size();
  }
}

void CopyIn(std::span<const std::byte> bytes, const PagePieces& pieces) {
  size_t offset = 0;
  for (const std::span<std::byte> piece : pieces) {
    ANNULUS_CHECK(offset + piece.size() <= bytes.size()) << piece.size();
    std::memcpy(piece.data(), bytes.data() + offset, piece.size());
    offset += piece.size();
  }
}

}  // namespace

PageMover::PageMover(PageStore& store, Options options)
    : store_(store),
      options_(std::move(options)),
      no_memory_(absl::ResourceExhaustedError("no memory to carry a page just now")),
      under_way_(static_cast<size_t>(options_.readers) + 1),
      buffers_(under_way_.size() + (options_.compares ? 1 : 0),
               std::vector<std::byte>(options_.page_bytes)) {
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
  for (auto& under_way : under_way_) {
    if (under_way.has_value() && under_way->batch == batch) under_way->cancelled = true;
  }
  std::erase_if(done_, [batch](const Done& done) { return done.read && done.batch == batch; });
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
  const SteadyTime now = TimeNow();
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
  std::vector<std::byte>& stored = buffers_.back();
  if (!store_.Get(page.mark, stored, page.use).ok()) return false;
  if (stored == buffers_[0]) return true;
  const std::array<PageKey, 1> keys = {KeyOf(page.mark)};
  for (const EntryName& name : store_.Distrust(keys)) store_.RemoveForgotten(name).IgnoreError();
  return true;
}

// Writes the page from the buffer, after reading it there from page.from if that is set.
PageMover::Done PageMover::Put(const Page& page) {
  Done done;
  done.ticket = page.ticket;
  const auto put = [&]() -> absl::Status {
    if (page.from != nullptr) {
      ANNULUS_RETURN_IF_ERROR(page.from->Get(page.mark, buffers_[0], page.use).status());
    }
    done.compared = page.compare && Compare(page);
    const std::array<std::span<const std::byte>, 1> parts = {buffers_[0]};
    const absl::StatusOr<bool> fresh = store_.Put(page.mark, parts, page.use);
    done.fresh = fresh.ok() && *fresh;
    return fresh.status();
  };
  done.status = Guarded(put, [&] { return no_memory_; });
  return done;
}

void PageMover::RemoveOne(std::unique_lock<std::mutex>& lock) {
  const EntryName page = removals_.back();
  removals_.pop_back();
  under_way_[0] = {TimeNow(), std::nullopt, false};
  lock.unlock();
  // The status is not needed: if the disk fails, the store turns itself off.
  Guarded([&] { return store_.RemoveForgotten(page); }, [&] { return no_memory_; }).IgnoreError();
  lock.lock();
  under_way_[0].reset();
}

void PageMover::WriteLoop() {
  const std::span<std::byte> bytes(buffers_[0]);
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
    const SteadyTime begun = TimeNow();
    under_way_[0] = {begun, std::nullopt, false};
    if (page.from == nullptr) CopyOut(page.pieces, bytes);
    lock.unlock();
    Done done = Put(page);
    done.seconds = SecondsBetween(begun, TimeNow());
    lock.lock();
    under_way_[0].reset();
    done_.push_back(done);
    lock.unlock();
    Wake();
    if (options_.write_bytes_per_second == 0) continue;
    const double least = static_cast<double>(options_.page_bytes) / options_.write_bytes_per_second;
    if (done.seconds >= least) continue;
    lock.lock();
    changed_.wait_for(lock, std::chrono::duration<double>(least - done.seconds),
                      [this] { return stop_; });
  }
}

void PageMover::ReadLoop(size_t thread) {
  const std::span<std::byte> bytes(buffers_[thread]);
  while (true) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return stop_ || !reads_.empty(); });
    if (stop_) return;
    auto next = reads_.extract(reads_.begin());
    const Page page = std::move(next.mapped());
    const SteadyTime begun = TimeNow();
    under_way_[thread] = {begun, next.key().batch, false};
    if (reading_++ == 0) busy_since_ = begun;
    lock.unlock();
    Done done;
    done.ticket = page.ticket;
    done.read = true;
    done.batch = next.key().batch;
    const auto get = [&]() -> absl::Status {
      const absl::StatusOr<std::optional<double>> read = store_.Get(page.mark, bytes, page.use);
      if (read.ok()) done.coverage = *read;
      return read.status();
    };
    done.status = Guarded(get, [&] { return no_memory_; });
    lock.lock();
    const SteadyTime now = TimeNow();
    done.seconds = SecondsBetween(begun, now);
    done.busy_seconds = CountBusy(now);
    --reading_;
    const bool cancelled = under_way_[thread]->cancelled;
    under_way_[thread].reset();
    if (cancelled) continue;
    if (done.status.ok()) CopyIn(bytes, page.pieces);
    done_.push_back(std::move(done));
    lock.unlock();
    Wake();
  }
}

}  // namespace annulus
