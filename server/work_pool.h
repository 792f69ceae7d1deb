#ifndef ANNULUS_SERVER_WORK_POOL_H_
#define ANNULUS_SERVER_WORK_POOL_H_

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "server/fair_queue.h"

namespace annulus {

class WorkPool;

// What a job of the pool sees of it while it runs. It is cancelled once nobody wants the job's
// result any more.
class WorkTurn final : public CancelFlag {
 public:
  // Once the job has run for WorkPool::kTurn, lets others run first, and returns when it is the
  // job's turn again, or when the job is cancelled. Only for the job's thread.
  void MayPause() const override;
  // Gives the job's place to others while it waits. A job of the long lane keeps only its thread.
  void WaitAside(const std::function<void()>& wait) const override;

 private:
  friend class WorkPool;
  WorkTurn(WorkPool& pool, JobId id, const CancelFlag& all)
      : CancelFlag(&all), pool_(pool), id_(id) {}

  WorkPool& pool_;
  const JobId id_;
  std::chrono::steady_clock::time_point started_;  // this turn
};

// The flag of work that goes on from one job to the next.
class LastingFlag final : public CancelFlag {
 public:
  using CancelFlag::CancelFlag;
  // The job that works now; null: none does. Only for the job's thread.
  void Use(const WorkTurn* turn) { turn_ = turn; }
  void MayPause() const override {
    if (turn_ != nullptr) turn_->MayPause();
  }
  void WaitAside(const std::function<void()>& wait) const override {
    turn_ != nullptr ? turn_->WaitAside(wait) : wait();
  }

 private:
  const WorkTurn* turn_ = nullptr;
};

struct Job {
  absl::string_view name;  // for the log; a literal
  std::string client;      // whose share of the threads it uses
  size_t bytes = 0;        // of input: what its work is foreseen by
  std::function<void(const WorkTurn&)> run;
};

// Threads for what takes longer than a gRPC callback may: parsing and tokenizing texts. gRPC's own
// threads are shared by all calls and must stay free.
//
// Two lanes keep short work from waiting for long work. Jobs of up to kShortBytes start in the
// short lane; larger ones, and all that have run for a turn, go on in the long lane. Each lane runs
// so many jobs at once. In each, clients get equal shares of the time (FairQueue); one client never
// takes all places of the short lane, nor more than half of the long jobs that may be begun. A job
// of the long lane runs for a turn and then waits behind others. It keeps its thread meanwhile, as
// its stack: so at most `begun` long jobs are begun, and there are `short_jobs` + `begun` threads.
// Thread-safe.
class WorkPool {
 public:
  static constexpr size_t kShortBytes = size_t{64} << 10;  // some milliseconds of work
  static constexpr std::chrono::milliseconds kTurn{5};

  struct Options {
    int short_jobs = 1;      // that run at once
    int long_jobs = 1;       // that run at once
    int begun = 1;           // long jobs that run, or have run and go on later; at least long_jobs
    size_t max_waiting = 1;  // most jobs of each lane that have not begun
  };
  explicit WorkPool(const Options& options);
  ~WorkPool() { Stop(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // A name for a job, never used before.
  JobId NewId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // Queues a job under a new name. False, without running it, when too many wait, of all clients or
  // of this one. Throws bad_alloc without memory for it; then it never runs either.
  [[nodiscard]] bool TryRun(JobId id, Job job);

  // Nobody wants the job's result any more. True: it had not begun, never will, and all that it
  // held is free. False: it runs, and WorkTurn::cancelled says so; or it has ended.
  bool Cancel(JobId id);

  // Set once nobody wants any job's result any more.
  const CancelFlag& all() const { return all_; }

  // Nobody wants any job's result any more. Those that have not begun still run when it is their
  // turn, and are told from the start. Jobs that come later are refused.
  void CancelAll();

  // Destroys what has not begun, cancels the rest and waits for it. Jobs that come later are
  // refused.
  void Stop();

  // Names of the jobs that have begun and not ended, for the log.
  std::vector<std::string> Begun() const;

 private:
  friend class WorkTurn;

  struct Client {
    int jobs = 0;   // that have not ended
    int begun = 0;  // of them, long ones that have
  };
  using Clients = std::unordered_map<std::string, Client>;

  struct Entry {
    Job job;
    WorkTurn turn;
    Client* client;
    bool is_long = false;
    bool begun = false;
    bool running = false;  // begun, and not paused
    std::condition_variable go_on{};
  };

  using Jobs = std::unordered_map<JobId, std::unique_ptr<Entry>>;

  struct Lane {
    FairQueue queue;
    int running = 0;
    const int most_running;
  };

  void Loop();
  void Dispatch();
  bool MayBegin(const Client& client) const;
  void CountBegun(Client& client, int change);
  void Run(std::unique_lock<std::mutex>& lock, JobId id);
  // `aside`: what it waits for before it wants a turn again; null: nothing.
  void Pause(JobId id, const std::function<void()>* aside);
  void TellAll();
  void EndTurn(Entry& entry, JobId id);
  std::unique_ptr<Entry> Take(Jobs::iterator job);
  Lane& LaneOf(const Entry& entry) { return entry.is_long ? long_ : short_; }

  const int most_begun_;
  CancelFlag all_;
  std::atomic<JobId> next_id_{1};
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  Jobs jobs_;
  Lane short_;
  Lane long_;
  int begun_ = 0;              // long jobs
  Clients clients_;            // that have jobs
  std::vector<JobId> starts_;  // jobs that a thread is to begin now; never more than threads
  bool stopping_ = false;      // no more jobs
  bool ended_ = false;         // no more work
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_WORK_POOL_H_
