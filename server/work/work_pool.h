#ifndef ANNULUS_SERVER_WORK_WORK_POOL_H_
#define ANNULUS_SERVER_WORK_WORK_POOL_H_

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
#include "server/work/fair_queue.h"

namespace annulus::server {

class WorkPool;

// The view that a running job has of the pool. Its cancel flag is set when nobody wants the job's
// result any more.
class WorkTurn final : public CancelFlag {
 public:
  // If the job has run for WorkPool::kTurn, lets other jobs run, and returns when it is the job's
  // turn again or the job is cancelled. Call it on the job's thread only.
  void MayPause() const override;
  // Calls `wait` and lets other jobs use this job's place meanwhile. The job moves to the long lane
  // and keeps only its thread; if no long job may begin, it keeps its place.
  void WaitAside(const std::function<void()>& wait) const override;

 private:
  friend class WorkPool;
  WorkTurn(WorkPool& pool, JobId id, const CancelFlag& all)
      : CancelFlag(&all), pool_(pool), id_(id) {}

  WorkPool& pool_;
  const JobId id_;
  std::chrono::steady_clock::time_point started_;  // start of the current turn
};

// The cancel flag of work that extends over several jobs.
class LastingFlag final : public CancelFlag {
 public:
  using CancelFlag::CancelFlag;
  // Sets the job that works now; null: none. Call it on the job's thread only.
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
  std::string client;      // the client whose share of the threads it uses
  size_t bytes = 0;        // size of its input, by which its work is estimated
  std::function<void(const WorkTurn&)> run;
};

// Threads for work that takes longer than a gRPC callback may, such as parsing and tokenizing
// texts. gRPC's own threads are shared by all calls and must stay free.
//
// Two lanes keep short work from waiting for long work. Jobs of up to kShortBytes start in the
// short lane; larger jobs, and all jobs that have run for a turn, run in the long lane. Each lane
// runs a fixed number of jobs at a time and gives clients equal shares of it (FairQueue). One
// client never takes all places of the short lane, nor more than half of the long jobs that may be
// begun. A job in the long lane runs for a turn and then waits behind others. While it waits it
// keeps its thread, which holds its stack; so at most `begun` long jobs may be begun at a time, and
// there are `short_jobs` + `begun` threads. Thread-safe.
class WorkPool {
 public:
  static constexpr size_t kShortBytes = size_t{64} << 10;  // some milliseconds of work
  static constexpr std::chrono::milliseconds kTurn{5};

  struct Options {
    int short_jobs = 1;      // jobs of the short lane that run at a time
    int long_jobs = 1;       // jobs of the long lane that run at a time
    int begun = 1;           // long jobs that run or are paused; at least long_jobs
    size_t max_waiting = 1;  // the most jobs of each lane that have not begun
  };
  explicit WorkPool(const Options& options);
  ~WorkPool() { Stop(); }
  WorkPool(const WorkPool&) = delete;
  WorkPool& operator=(const WorkPool&) = delete;

  // Returns a new job id.
  JobId NewId() { return next_id_.fetch_add(1, std::memory_order_relaxed); }

  // Queues a job; `id` must be new. Returns false, and does not run it, if too many jobs wait, of
  // all clients or of this one, or if the pool is stopping. Throws bad_alloc if there is no memory;
  // then the job does not run either.
  [[nodiscard]] bool TryRun(JobId id, Job job);

  // Cancels a job. Returns true if it had not begun: then it never will, and everything it held is
  // freed. Returns false if it is running, and sets its cancel flag, or if it has ended.
  bool Cancel(JobId id);

  // The flag that CancelAll and Stop set.
  const CancelFlag& all() const { return all_; }

  // Sets the cancel flag of all jobs. Jobs that have not begun still run when it is their turn,
  // with the flag set from the start. Later jobs are refused.
  void CancelAll();

  // Destroys the jobs that have not begun, cancels the others and waits for them. Later jobs are
  // refused.
  void Stop();

  // Names of the jobs that have begun but not ended, for the log.
  std::vector<std::string> Begun() const;

 private:
  friend class WorkTurn;

  struct Client {
    int jobs = 0;   // jobs that have not ended
    int begun = 0;  // of these, long ones that have begun
  };
  using Clients = std::unordered_map<std::string, Client>;

  struct Entry {
    Job job;
    WorkTurn turn;
    Client* client;
    bool is_long = false;
    bool begun = false;
    bool running = false;  // begun and not paused
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
  // Ends the job's turn and waits for the next one. Calls `aside`, unless null, before it queues
  // again.
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
  int begun_ = 0;              // number of long jobs that have begun
  Clients clients_;            // the clients with jobs
  std::vector<JobId> starts_;  // jobs that a thread must begin now; never more than threads
  bool stopping_ = false;      // accepts no more jobs
  bool ended_ = false;         // threads must end
  std::vector<std::thread> threads_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_WORK_POOL_H_
