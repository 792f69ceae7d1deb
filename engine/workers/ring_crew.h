#ifndef ANNULUS_ENGINE_WORKERS_RING_CREW_H_
#define ANNULUS_ENGINE_WORKERS_RING_CREW_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/workers.h"
#include "engine/base/clock.h"
#include "engine/runner/rank_set.h"
#include "engine/workers/control_messages.h"
#include "engine/workers/ring_agreement.h"
#include "engine/workers/worker_link.h"

namespace annulus {

struct RingCrewOptions {
  int first_rank = 0;  // of those at workers
  int ranks = 1;       // of the whole ring
  RingAgreement agreement;
  // See RemoteRanksOptions.
  std::chrono::milliseconds silence{0};
  std::chrono::milliseconds hello_timeout{0};
  std::chrono::milliseconds forming_timeout{0};
  // Longest wait for a step's results while no rank of the ring makes progress. Workers give up
  // earlier, and say so.
  std::chrono::milliseconds patience{0};
  const Clock* clock = &Clock::Real();
};

// The workers of a ring as their coordinator sees them: who they are, what they have said, and what
// became of the steps that they were sent. Gather, Assign, Form and AwaitReady come first, in this
// order. One thread calls the methods; those marked may be called by any.
class RingCrew final : private WorkerSourceSink {
 public:
  explicit RingCrew(const RingCrewOptions& options) : options_(options) {}
  // Closes all links with OK.
  ~RingCrew() override;

  // Waits until workers host all ranks. The errors of RemoteRanks::Create.
  absl::Status Gather(WorkerSource& source);
  // Tells each worker which ranks it hosts; `common`: what it is told besides. Beats are awaited
  // from now on.
  void Assign(const wire::Assign& common);
  // Waits until the workers have wires for `epoch`, and forms the ring: returns the addresses of
  // all ranks. `own`: of the ranks here. Any step of an earlier epoch has been dropped.
  absl::StatusOr<std::vector<std::string>> Form(uint64_t epoch, std::vector<std::string> own);
  // Waits until the ranks have their memory; their facts, from first_rank on.
  absl::StatusOr<std::vector<RankFacts>> AwaitReady();
  // The least of all workers, once they are ready. Any thread.
  int64_t visiting_pages() const { return visiting_pages_; }

  // Begins the next step of the epoch on all workers.
  void Run(const std::string& plan);
  // Waits for the results of the oldest step that has none yet, encoded, from first_rank on. Fails
  // if the epoch is broken.
  absl::StatusOr<std::vector<std::string>> AwaitResults();
  // The worker that hosts `rank` has sent what cannot be used: it is lost. Returns lost().
  absl::Status Lose(int rank, const absl::Status& why);
  // Closes all links with `why`.
  void Close(const absl::Status& why);
  // Ends the epoch on all workers.
  void Abort(const absl::Status& why);
  // The ranks of the ring that are here: their progress counts, and they learn of that of the
  // others. Must outlive the crew.
  void Join(RankSet& ranks);
  // From now on, the ranks here are aborted when the epoch breaks: a step has failed at a worker,
  // or a worker is lost. At once if that is so already.
  void BeginAborts();
  // From now on they are not, and no abort of them is under way.
  void EndAborts();

  // Why the epoch is broken; OK if it is not. Any thread.
  absl::Status broken() const;
  // The first loss of a worker, naming it; OK: none is lost. Any thread.
  absl::Status lost() const;
  // Of lost workers. Any thread.
  std::vector<int32_t> lost_ranks() const;
  // When a rank at a worker last made progress. Any thread.
  SteadyTime last_progress() const;
  // Of the last beat. Any thread.
  RankStatistics Statistics(int rank) const;
  int workers() const { return static_cast<int>(workers_.size()); }
  // Without exposed_seconds. Once all ranks have a worker: any thread.
  RingLoad Load() const;

 private:
  // One who dialled.
  struct Member final : WorkerLinkSink {
    Member(RingCrew* crew, std::unique_ptr<WorkerLink> link)
        : crew(crew), heard(crew->options_.clock->Now()), link(std::move(link)) {}
    void OnMessage(std::string message) override { crew->OnMessage(*this, message); }
    void OnClosed(const absl::Status& why) override { crew->OnClosed(*this, why); }

    RingCrew* const crew;
    enum { kNew, kAccepted, kRefused, kClosed } state = kNew;
    wire::Hello hello;
    int first_rank = 0;
    SteadyTime heard;     // when it dialled, was assigned its ranks, or last said anything
    SteadyTime progress;  // of its ranks
    bool lost = false;
    bool ready = false;
    std::vector<RankFacts> facts;
    uint64_t wires = 0;  // for which epoch
    std::vector<std::string> addresses;
    uint64_t ended = 0;  // steps of the epoch whose results have come
    std::deque<std::vector<std::string>> results;
    std::vector<RankStatistics> statistics;
    const std::unique_ptr<WorkerLink> link;  // the last: it calls until it is destroyed
  };

  void OnWorker(std::unique_ptr<WorkerLink> link) override;
  void OnStopped(const absl::Status& why) override;
  void OnMessage(Member& member, const std::string& bytes);
  void OnClosed(Member& member, const absl::Status& why);

  absl::Status Take(Member& member, wire::FromWorker& message)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeHello(Member& member, const wire::Hello& hello)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeReady(Member& member, const wire::Ready& ready)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeWires(Member& member, const wire::WireReady& wires)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeResult(Member& member, wire::StepResult& result)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status TakeBeat(Member& member, const wire::Beat& beat)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Refuse(Member& member, const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void LoseMember(Member& member, const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Settle() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void SendAll(const wire::ToWorker& message) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Break(const absl::Status& why) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  bool Holds(const Member& member) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int Missing() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string MissingText() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SteadyTime RefuseTheSilent() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status AwaitMissing(WorkerSource& source);
  absl::Status AwaitAll(const char* what, const std::function<bool(const Member&)>& done,
                        std::unique_lock<std::mutex>& lock);
  absl::Status AwaitResult(Member& worker, std::unique_lock<std::mutex>& lock);
  Member& WorkerOf(int rank) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  SteadyTime LastProgress() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Watch();
  void LoseTheSilent(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void TellProgress(SteadyTime now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const RingCrewOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  // Everybody who dialled and whose link may still call; of Gather's end, the ring's and some more.
  std::vector<std::unique_ptr<Member>> members_ ABSL_GUARDED_BY(mutex_);
  std::vector<Member*> workers_;  // of the ring, by rank; set by Gather
  bool gathered_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status stopped_ ABSL_GUARDED_BY(mutex_);  // why no more workers come; else OK
  std::string refusal_ ABSL_GUARDED_BY(mutex_);   // of the last one refused
  uint64_t epoch_ ABSL_GUARDED_BY(mutex_) = 0;    // 0: the ring never formed
  bool aborted_ ABSL_GUARDED_BY(mutex_) = false;  // the epoch
  uint64_t steps_ ABSL_GUARDED_BY(mutex_) = 0;    // begun in the epoch
  SteadyTime begun_ ABSL_GUARDED_BY(mutex_);      // when the last step was
  absl::Status broken_ ABSL_GUARDED_BY(mutex_);
  absl::Status lost_ ABSL_GUARDED_BY(mutex_);
  RankSet* here_ ABSL_GUARDED_BY(mutex_) = nullptr;  // null: no rank is here
  bool aborts_here_ ABSL_GUARDED_BY(mutex_) = false;
  int64_t visiting_pages_ = INT64_MAX;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread watcher_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_RING_CREW_H_
