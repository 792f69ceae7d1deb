#include "server/work/work_pool.h"

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/base/guarded.h"

namespace annulus::server {
namespace {

using std::chrono::steady_clock;

// How many of `places` one client may take: all but one, which stays free for others.
int PlacesOfClient(int places) { return places > 1 ? places - 1 : 1; }

}  // namespace

void WorkTurn::MayPause() const {
  if (steady_clock::now() - started_ >= WorkPool::kTurn) pool_.Pause(id_, nullptr);
}

void WorkTurn::WaitAside(const std::function<void()>& wait) const { pool_.Pause(id_, &wait); }

WorkPool::WorkPool(const Options& options)
    : most_begun_(options.begun),
      short_{.queue = FairQueue({.waiting = options.max_waiting,
                                 .running_of_client = PlacesOfClient(options.short_jobs)}),
             .most_running = options.short_jobs},
      long_{.queue =
                FairQueue({.waiting = options.max_waiting, .running_of_client = options.long_jobs}),
            .most_running = options.long_jobs} {
  starts_.reserve(static_cast<size_t>(options.short_jobs + options.begun));
  // So a job of the short lane always finds a thread: begun long jobs never occupy more than their
  // own.
  for (int i = 0; i < options.short_jobs + options.begun; ++i) {
    threads_.emplace_back([this] { Loop(); });
  }
}

bool WorkPool::TryRun(JobId id, Job job) {
  std::unique_ptr<Entry> entry;  // declared before the lock: a refused job is destroyed without it
  std::lock_guard lock(mutex_);
  if (stopping_) return false;
  const bool is_long = job.bytes > kShortBytes;
  const auto client = clients_.try_emplace(job.client).first;
  absl::Cleanup forget = [&] {
    if (client->second.jobs == 0) clients_.erase(client);
  };
  entry.reset(new Entry{.job = std::move(job),
                        .turn = WorkTurn(*this, id, all_),
                        .client = &client->second,
                        .is_long = is_long});
  const auto place = jobs_.try_emplace(id).first;
  absl::Cleanup take_back = [&] { jobs_.erase(place); };
  if (!LaneOf(*entry).queue.Add(id, entry->job.client)) return false;
  // From here on nothing can fail: a queued job will run, and the caller must be told so.
  std::move(take_back).Cancel();
  place->second = std::move(entry);
  ++client->second.jobs;
  Dispatch();
  return true;
}

// Removes a job that has ended or will never begin. mutex_ must be held.
std::unique_ptr<WorkPool::Entry> WorkPool::Take(Jobs::iterator job) {
  std::unique_ptr<Entry> entry = std::move(job->second);
  jobs_.erase(job);
  if (--entry->client->jobs == 0) clients_.erase(entry->job.client);
  return entry;
}

// Gives free places to the next jobs. Allocates nothing, so it cannot fail halfway. mutex_ must be
// held.
void WorkPool::Dispatch() {
  for (Lane* lane : {&short_, &long_}) {
    while (lane->running < lane->most_running) {
      const auto id = lane->queue.Next([&](JobId id) {
        const Entry& entry = *jobs_.at(id);
        return lane == &short_ || entry.begun || MayBegin(*entry.client);
      });
      if (!id.has_value()) break;
      ++lane->running;
      Entry& entry = *jobs_.at(*id);
      entry.running = true;
      if (entry.begun) {
        entry.go_on.notify_one();
      } else {
        entry.begun = true;
        if (entry.is_long) CountBegun(*entry.client, 1);
        starts_.push_back(*id);
        wake_.notify_one();
      }
    }
  }
}

// Whether the client may begin one more long job; one client gets at most half of the threads for
// long jobs.
bool WorkPool::MayBegin(const Client& client) const {
  return begun_ < most_begun_ && client.begun < PlacesOfClient(most_begun_ / 2 + 1);
}

void WorkPool::CountBegun(Client& client, int change) {
  begun_ += change;
  client.begun += change;
}

void WorkPool::Loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return ended_ || !starts_.empty(); });
    if (starts_.empty()) return;
    const JobId id = starts_.front();
    starts_.erase(starts_.begin());
    Run(lock, id);
  }
}

void WorkPool::Run(std::unique_lock<std::mutex>& lock, JobId id) {
  Entry& entry = *jobs_.at(id);
  entry.turn.started_ = steady_clock::now();
  lock.unlock();
  entry.job.run(entry.turn);
  entry.job.run = nullptr;  // frees what the job holds before it counts as ended
  lock.lock();
  if (entry.running) EndTurn(entry, id);
  if (entry.is_long) CountBegun(*entry.client, -1);
  Take(jobs_.find(id));
  Dispatch();
}

// Gives back the job's place. mutex_ must be held.
void WorkPool::EndTurn(Entry& entry, JobId id) {
  using std::chrono::microseconds;
  const auto used =
      std::chrono::duration_cast<microseconds>(steady_clock::now() - entry.turn.started_);
  Lane& lane = LaneOf(entry);
  lane.queue.Ended(id, 1 + static_cast<uint64_t>(used.count()));  // no turn is free
  --lane.running;
  entry.running = false;
}

void WorkPool::Pause(JobId id, const std::function<void()>* aside) {
  std::unique_lock lock(mutex_);
  Entry& entry = *jobs_.at(id);
  const bool no_thread = !entry.is_long && !MayBegin(*entry.client);  // cannot become a long job
  if (entry.turn.cancelled() || no_thread) {
    lock.unlock();
    if (aside != nullptr) (*aside)();
    return;
  }
  if (entry.running) EndTurn(entry, id);
  if (!entry.is_long) {
    entry.is_long = true;
    CountBegun(*entry.client, 1);
  }
  if (aside != nullptr) {
    Dispatch();
    lock.unlock();
    (*aside)();
    lock.lock();
    if (entry.turn.cancelled()) return;  // runs to its end without a place, which is short
  }
  const auto queue = [&] {
    long_.queue.AddAdmitted(id, entry.job.client);
    return absl::OkStatus();
  };
  // If there is no memory to queue it, the job continues without a place until its next pause.
  const absl::Status queued =
      annulus::Guarded(queue, [] { return absl::ResourceExhaustedError(""); });
  Dispatch();
  if (!queued.ok()) return;
  entry.go_on.wait(lock, [&] { return entry.running || entry.turn.cancelled(); });
  entry.turn.started_ = steady_clock::now();
}

bool WorkPool::Cancel(JobId id) {
  std::unique_ptr<Entry> dropped;  // destroyed without the lock
  std::lock_guard lock(mutex_);
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return false;
  Entry& entry = *found->second;
  entry.turn.Cancel();
  const bool waits = LaneOf(entry).queue.Remove(id);
  if (entry.begun) {
    if (waits) entry.go_on.notify_one();  // runs to its end without a place, which is short
    return false;
  }
  dropped = Take(found);
  return true;
}

void WorkPool::CancelAll() {
  std::lock_guard lock(mutex_);
  TellAll();
}

// Sets the cancel flag of all jobs and wakes those that are paused. mutex_ must be held.
void WorkPool::TellAll() {
  stopping_ = true;
  all_.Cancel();
  for (const auto& [id, entry] : jobs_) {
    if (entry->begun && LaneOf(*entry).queue.Remove(id)) entry->go_on.notify_one();
  }
}

void WorkPool::Stop() {
  std::vector<std::unique_ptr<Entry>> dropped;  // destroyed without the lock
  {
    std::lock_guard lock(mutex_);
    TellAll();
    ended_ = true;
    // Remove waiting jobs now, before a job that ends could make room for one of them.
    for (auto next = jobs_.begin(); next != jobs_.end();) {
      const auto job = next++;
      if (job->second->begun) {
        job->second->turn.Cancel();
        continue;
      }
      LaneOf(*job->second).queue.Remove(job->first);
      dropped.push_back(Take(job));
    }
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

std::vector<std::string> WorkPool::Begun() const {
  std::vector<std::string> names;
  std::lock_guard lock(mutex_);
  for (const auto& [id, entry] : jobs_) {
    if (entry->begun) names.emplace_back(entry->job.name);
  }
  return names;
}

}  // namespace annulus::server
