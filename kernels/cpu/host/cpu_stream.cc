#include "kernels/cpu/host/cpu_stream.h"

#include <algorithm>
#include <cstdlib>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

// About 10 to 20 microseconds: longer than the gap between two ops of a layer, far shorter than
// anything a user could notice as load.
constexpr int kSpins = 256;
// The same of a stream's own threads, longer than what lies between two products of a step: to wake
// a thread takes longer than most of that. Borrowed ones would keep a processor from others.
constexpr int kOwnSpins = 2048;
// Elements below which a second thread costs more than it saves.
constexpr int64_t kRangeCost = 32 << 10;
constexpr size_t kAlignment = 64;
constexpr size_t kLineBytes = 64;
// What a waiting thread asks for between two looks for a job, and in all: a quarter of the second
// cache of the processors that this was tried on.
constexpr size_t kAskedBytes = 4 * kLineBytes;
constexpr size_t kAheadBytes = 256 << 10;

// An op that has run for so long gains from a thread that first has to wake up.
constexpr std::chrono::microseconds kLongJob(300);

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void CpuStream::Workspace::Free::operator()(std::byte* block) const { std::free(block); }

absl::StatusOr<std::unique_ptr<CpuStream>> CpuStream::Create(int threads, Processors processors,
                                                             std::shared_ptr<ThreadGroup> group) {
  if (threads < 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a stream needs at least 1 thread, not ", threads));
  }
  const int most = group == nullptr ? threads : std::max(threads, group->limit);
  std::unique_ptr<CpuStream> stream(
      new CpuStream(threads, std::move(processors), std::move(group)));
  stream->is_lent_.resize(static_cast<size_t>(most));
  stream->runs_ = std::vector<Run>(static_cast<size_t>(most));
  try {
    stream->workers_.reserve(most - 1);
    for (int thread = 1; thread < most; ++thread) {
      stream->workers_.emplace_back([raw = stream.get(), thread] { raw->Work(thread); });
    }
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "cannot start ", most - 1, " worker threads: ", error.what(), "; ask for fewer threads"));
  }
  return stream;
}

CpuStream::~CpuStream() {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stop_ = true;
    job_.fetch_add(1, std::memory_order_release);
  }
  work_.notify_all();
  for (std::thread& worker : workers_) worker.join();
}

void CpuStream::RunTasks(const Body& body, int64_t tasks, int thread) {
  while (!Settle(thread)) {
    const int64_t task = next_task_.fetch_add(1, std::memory_order_relaxed);
    if (task >= tasks) return;
    body(task, thread);
  }
}

bool CpuStream::Settle(int thread) {
  if (group_ == nullptr) return false;
  const int busy = group_->busy.load(std::memory_order_relaxed);
  if (thread > 0) return is_lent_[thread] && busy > group_->limit;
  if (busy < group_->limit && std::chrono::steady_clock::now() - job_start_ > kLongJob) TakeLent();
  return false;
}

void CpuStream::TakeLent() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (members_ == static_cast<int>(workers_.size())) return;
  ++members_;
  ++places_;
  ++lent_;
  group_->busy.fetch_add(1, std::memory_order_relaxed);
  job_.fetch_add(1, std::memory_order_release);
  work_.notify_one();
}

void CpuStream::WillRead(std::span<const std::span<const std::byte>> ranges) {
  if (own_threads_ == 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  ahead_ = {};
  std::copy_n(ranges.begin(), std::min(ranges.size(), kMostRanges), ahead_.ranges.begin());
  hint_.fetch_add(1, std::memory_order_release);
}

size_t CpuStream::Ahead::bytes() const {
  size_t bytes = 0;
  for (const auto& range : ranges) bytes += range.size();
  return bytes;
}

void CpuStream::Ahead::Ask(size_t at) const {
  for (const auto& range : ranges) {
    if (at < range.size()) {
      for (size_t line = 0; line < kAskedBytes; line += kLineBytes) {
        __builtin_prefetch(range.data() + at + line, 0, 1);
      }
      return;
    }
    at -= range.size();
  }
}

// Waits a while for a job that is not `seen`. Memory would be idle meanwhile, so the stream's own
// threads prefetch the beginning of their next share; borrowed threads have no share, and wait for
// others' work.
void CpuStream::Spin(uint64_t seen, int thread) {
  uint64_t hint = 0;
  Ahead ahead;
  size_t next = 0;
  size_t end = 0;
  const int spins = thread < own_threads_ ? kOwnSpins : kSpins;
  for (int i = 0; i < spins && job_.load(std::memory_order_acquire) == seen;) {
    if (next < end) {
      ahead.Ask(next);
      next += kAskedBytes;
    } else if (thread < own_threads_ && hint_.load(std::memory_order_acquire) != hint) {
      const std::lock_guard<std::mutex> lock(mutex_);
      hint = hint_.load(std::memory_order_relaxed);
      ahead = ahead_;
      const size_t bytes = ahead.bytes();
      next = bytes * thread / threads() / kAskedBytes * kAskedBytes;
      end = std::min(bytes, next + kAheadBytes);
    } else {
      Pause();
      ++i;
    }
  }
}

void CpuStream::Work(int thread) {
  BindThread(processors_);
  uint64_t seen = 0;
  for (;;) {
    Spin(seen, thread);
    std::unique_lock<std::mutex> lock(mutex_);
    work_.wait(lock, [&] { return job_.load(std::memory_order_relaxed) != seen; });
    if (stop_) return;
    seen = job_.load(std::memory_order_relaxed);
    if (body_ == nullptr || places_ == 0) continue;
    --places_;
    is_lent_[thread] = lent_ > 0;
    lent_ -= is_lent_[thread];
    const Body& body = *body_;
    const int64_t tasks = tasks_;
    active_.fetch_add(1, std::memory_order_relaxed);
    lock.unlock();
    RunTasks(body, tasks, thread);
    lock.lock();
    --members_;
    if (is_lent_[thread]) group_->busy.fetch_sub(1, std::memory_order_relaxed);
    if (active_.fetch_sub(1, std::memory_order_release) == 1) done_.notify_one();
  }
}

// The workers that an op may have, which then count as busy. Two ops that begin at once may both
// take the last: then threads share processors for the length of an op.
int CpuStream::TakeHelpers(int64_t tasks) {
  const auto workers =
      static_cast<int>(std::clamp<int64_t>(tasks - 1, 0, static_cast<int64_t>(workers_.size())));
  if (group_ == nullptr) return workers;
  const int idle = group_->limit - group_->busy.load(std::memory_order_relaxed) - 1;
  const int helpers = std::min(workers, std::max(idle, own_threads_ - 1));
  group_->busy.fetch_add(1 + helpers, std::memory_order_relaxed);
  return helpers;
}

void CpuStream::ParallelFor(int64_t tasks, Body body) {
  const int helpers = TakeHelpers(tasks);
  const bool may_get_more = group_ != nullptr && tasks > 1 && !workers_.empty();
  if (helpers == 0 && !may_get_more) {
    for (int64_t task = 0; task < tasks; ++task) body(task, 0);
  } else {
    RunJob(tasks, body, helpers);
  }
  if (group_ != nullptr) group_->busy.fetch_sub(1 + helpers, std::memory_order_relaxed);
}

void CpuStream::RunJob(int64_t tasks, const Body& body, int helpers) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    body_ = &body;
    tasks_ = tasks;
    places_ = helpers;
    members_ = helpers;
    next_task_.store(0, std::memory_order_relaxed);
    if (helpers > 0) job_.fetch_add(1, std::memory_order_release);
  }
  if (group_ != nullptr) job_start_ = std::chrono::steady_clock::now();
  if (helpers == static_cast<int>(workers_.size())) {
    work_.notify_all();
  } else {
    for (int i = 0; i < helpers; ++i) work_.notify_one();
  }
  RunTasks(body, tasks, 0);
  {
    std::lock_guard<std::mutex> lock(mutex_);
    body_ = nullptr;
    if (lent_ > 0) group_->busy.fetch_sub(lent_, std::memory_order_relaxed);  // came too late
    lent_ = 0;
  }
  const int spins = own_threads_ > 1 ? kOwnSpins : kSpins;
  for (int i = 0; i < spins && active_.load(std::memory_order_acquire) != 0; ++i) Pause();
  std::unique_lock<std::mutex> lock(mutex_);
  done_.wait(lock, [&] { return active_.load(std::memory_order_relaxed) == 0; });
}

void CpuStream::ParallelRuns(int64_t tasks, Body body) {
  const int64_t count = std::min<int64_t>(threads(), tasks);
  for (int64_t i = 0; i < count; ++i) {
    runs_[i].next.store(tasks * i / count, std::memory_order_relaxed);
    runs_[i].end = tasks * (i + 1) / count;
  }
  // A lent thread that went back leaves its run to the others; it may come again, some times.
  constexpr int64_t kReturns = 8;
  const int64_t turns = group_ != nullptr && tasks > count ? count + kReturns : count;
  ParallelFor(turns, [&](int64_t own, int thread) {
    for (int64_t i = 0; i < count; ++i) {
      Run& run = runs_[(own + i) % count];
      for (;;) {
        if (Settle(thread)) return;
        const int64_t task = run.next.fetch_add(1, std::memory_order_relaxed);
        if (task >= run.end) break;
        body(task, thread);
      }
    }
  });
}

void CpuStream::ParallelRows(int64_t rows, int64_t row_cost,
                             absl::FunctionRef<void(int64_t begin, int64_t end)> body) {
  const int64_t range = std::max<int64_t>(1, kRangeCost / std::max<int64_t>(1, row_cost));
  ParallelFor((rows + range - 1) / range,
              [&](int64_t task, int) { body(task * range, std::min(rows, (task + 1) * range)); });
}

absl::StatusOr<std::byte*> CpuStream::Workspace::AtLeast(size_t bytes) {
  if (bytes > bytes_) {
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    block_.reset();
    bytes_ = 0;
    if (rounded >= bytes) {
      block_.reset(static_cast<std::byte*>(std::aligned_alloc(kAlignment, rounded)));
    }
    if (block_ == nullptr) {
      return absl::ResourceExhaustedError(
          absl::StrCat("cannot allocate ", bytes, " bytes of workspace for a kernel"));
    }
    bytes_ = rounded;
  }
  return block_.get();
}

}  // namespace annulus
