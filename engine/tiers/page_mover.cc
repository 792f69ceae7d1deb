#include "engine/tiers/page_mover.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "engine/base/clock.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

SteadyTime TimeNow() { return std::chrono::steady_clock::now(); }

}  // namespace

PageMover::PageMover(DiskStore& store, Options options)
    : store_(store), options_(std::move(options)), begun_(options_.readers) {
  threads_.emplace_back([this] { WriteLoop(); });
  for (int reader = 0; reader < options_.readers; ++reader) {
    threads_.emplace_back([this, reader] { ReadLoop(reader); });
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

void PageMover::Write(uint64_t ticket, PageMark mark, PagePieces pieces, int64_t use) {
  {
    std::lock_guard lock(mutex_);
    writes_.push_back({ticket, std::move(mark), std::move(pieces), use});
  }
  changed_.notify_all();
}

void PageMover::Read(uint64_t ticket, PageMark mark, PagePieces pieces, int64_t use) {
  {
    std::lock_guard lock(mutex_);
    reads_.push_back({ticket, std::move(mark), std::move(pieces), use});
  }
  changed_.notify_all();
}

std::vector<PageMover::Done> PageMover::TakeDone() {
  std::lock_guard lock(mutex_);
  return std::exchange(done_, {});
}

double PageMover::OldestRead() const {
  const SteadyTime now = TimeNow();
  double oldest = 0;
  std::lock_guard lock(mutex_);
  for (const auto& begun : begun_) {
    if (begun.has_value()) oldest = std::max(oldest, SecondsBetween(*begun, now));
  }
  return oldest;
}

std::optional<PageMover::Job> PageMover::Next(std::deque<Job>& jobs,
                                              std::optional<SteadyTime>* begun) {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return stop_ || !jobs.empty(); });
  if (stop_) return std::nullopt;
  Job job = std::move(jobs.front());
  jobs.pop_front();
  if (begun != nullptr) *begun = TimeNow();
  return job;
}

void PageMover::Finish(Done done, std::optional<SteadyTime>* begun) {
  {
    std::lock_guard lock(mutex_);
    if (begun != nullptr) begun->reset();
    done_.push_back(std::move(done));
  }
  if (options_.wake) options_.wake();
}

void PageMover::WriteLoop() {
  while (std::optional<Job> job = Next(writes_, nullptr)) {
    const SteadyTime start = TimeNow();
    const std::vector<std::span<const std::byte>> parts(job->pieces.begin(), job->pieces.end());
    absl::Status status = store_.Put(job->mark, parts, job->use);
    const double seconds = SecondsBetween(start, TimeNow());
    Finish({job->ticket, false, std::move(status), std::nullopt, seconds}, nullptr);
    if (options_.write_bytes_per_second == 0) continue;
    const double least = static_cast<double>(options_.page_bytes) / options_.write_bytes_per_second;
    if (seconds >= least) continue;
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::duration<double>(least - seconds),
                      [this] { return stop_; });
  }
}

void PageMover::ReadLoop(size_t reader) {
  std::vector<std::byte> bytes(options_.page_bytes);
  while (std::optional<Job> job = Next(reads_, &begun_[reader])) {
    const SteadyTime start = TimeNow();
    absl::StatusOr<std::optional<double>> read = store_.Get(job->mark, bytes, job->use);
    if (read.ok()) {
      size_t offset = 0;
      for (const std::span<std::byte> piece : job->pieces) {
        ANNULUS_CHECK(offset + piece.size() <= bytes.size()) << piece.size();
        std::memcpy(piece.data(), bytes.data() + offset, piece.size());
        offset += piece.size();
      }
    }
    const double seconds = SecondsBetween(start, TimeNow());
    Finish({job->ticket, true, read.status(), read.ok() ? *read : std::nullopt, seconds},
           &begun_[reader]);
  }
}

}  // namespace annulus
