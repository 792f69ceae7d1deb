#ifndef ANNULUS_ENGINE_WORKERS_RING_CREW_H_
#define ANNULUS_ENGINE_WORKERS_RING_CREW_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/workers.h"
#include "engine/base/clock.h"
#include "engine/membership/membership.h"
#include "engine/runner/rank_set.h"
#include "engine/workers/control_messages.h"
#include "engine/workers/ring_agreement.h"
#include "engine/workers/ring_loss.h"
#include "engine/workers/worker_link.h"

namespace annulus {

struct RingCrewOptions {
  int first_rank = 0;  // of those at workers
  int ranks = 1;       // of the whole ring
  RingAgreement agreement;
  // What every worker is told with its ranks.
  wire::Assign assign;
  // See RemoteRanksOptions.
  std::chrono::milliseconds silence{0};
  // See MembershipOptions.
  std::chrono::milliseconds step_silence{0};
  std::chrono::milliseconds step_limit{0};
  std::chrono::milliseconds hello_timeout{0};
  std::chrono::milliseconds forming_timeout{0};
  std::chrono::milliseconds replacement_timeout{0};
  // Longest wait for a step's results while no rank of the ring makes progress, for those of a
  // probe, and for the copy of a page. Workers give up earlier, and say so.
  std::chrono::milliseconds patience{0};
  // Told of each worker that is lost. Must not block, nor call the crew. Null: nobody is.
  std::function<void(RingLoss)> on_loss = nullptr;
  const Clock* clock = &Clock::Real();
};

// The workers of a ring as their coordinator sees them: who they are, what they have said, and what
// became of the steps that they were sent. Membership decides who hosts what; this has the links,
// the lock and the time.
//
// Gather, Form, AwaitReady and Found come first, in this order. A worker that is lost is replaced
// by a spare, or by the next one that dials and fits: the epoch is broken, and Abort, Form and
// AwaitReady begin the next. If nobody comes in time, the next epoch of a ring that was founded is
// without these ranks, and so without their addresses, facts and results, until a worker takes
// them: the ring is not up then, and is formed anew. Until a ring is founded, waits end if it may
// never be: see hopeless. One thread at a time calls the methods; those marked may be called by
// any.
class RingCrew final : private WorkerSourceSink {
 public:
  // `source` must outlive the crew.
  RingCrew(const RingCrewOptions& options, WorkerSource& source);
  // Closes all links with OK.
  ~RingCrew() override;

  // Waits until workers host all ranks. The errors of RemoteRanks::Create.
  absl::Status Gather();
  // Waits until every rank has a host that has wires for `epoch`, which is the next, and forms the
  // ring: returns the addresses of all ranks. `own`: of the ranks here. Any step of an earlier
  // epoch has been dropped. On an error, or without memory (std::bad_alloc), no epoch has begun. A
  // worker that cannot be told that it has is lost.
  absl::StatusOr<std::vector<std::string>> Form(uint64_t epoch, std::vector<std::string> own);
  // Waits until the ranks have their memory; their facts, from first_rank on: of all ranks, if the
  // ring was not founded. Fails if a worker is lost meanwhile.
  absl::StatusOr<std::vector<std::optional<RankFacts>>> AwaitReady();
  // The ring serves from now on. Fails if the epoch is broken.
  absl::Status Found();
  // The least of all workers, once they are ready. No worker that comes later has less.
  int64_t visiting_pages() const;

  // Begins the next step of the epoch on all workers that are in it.
  void Run(const std::string& plan);
  // Waits for the results of the oldest step that has none yet, encoded, from first_rank on. Fails
  // if the epoch is broken.
  absl::StatusOr<std::vector<std::optional<std::string>>> AwaitResults();
  // Between steps: has all ranks at workers that are in the epoch time messages of `bytes` bytes.
  // Those here must do so at once: see LinkProbe.
  void BeginProbe(size_t bytes);
  // Waits for all of them, and returns the most seconds that any worker's took. Whoever does not
  // answer is lost. Fails if the epoch is broken; the failure of a probe breaks it.
  absl::StatusOr<double> AwaitProbe();
  // Waits until no step of an epoch that is broken or over runs on the rank: it may still write
  // pages that others have been given since. At once otherwise. UNAVAILABLE if one does not end
  // within `patience`. Any thread.
  absl::Status AwaitAborted(int rank);
  // Has the worker that hosts the page's rank copy it after AwaitAborted, and waits until that has
  // ended: returns what PageCopied::same says, or the copy's error. UNAVAILABLE if the worker is
  // lost meanwhile, or there is none; one that does not answer is lost. Any thread, several at
  // once.
  absl::StatusOr<bool> Copy(const PageCopy& copy);
  // Waits until a worker is lost, at most for as long as one may be silent. Returns lost().
  absl::Status AwaitLoss();
  // The worker that hosts `rank` has sent what cannot be used: it is lost. Returns why.
  absl::Status Lose(int rank, const absl::Status& why);
  // Closes all links with `why`.
  void Close(const absl::Status& why);
  // Ends the epoch on all workers; whoever cannot be told is lost. Without memory (std::bad_alloc)
  // it may last, though broken: call it again.
  void Abort(const absl::Status& why);
  // Waits for `time`, or until Stop.
  void Pause(std::chrono::milliseconds time);
  // Ends all waits but those of AwaitResults, now and later. Aborts the ranks here if BeginAborts
  // was called. Any thread.
  void Stop();
  // Ends all waits of Copy and AwaitAborted with CANCELLED, now and later; the ring lasts. What a
  // worker still says of such a copy is no fault of its. Any thread.
  void StopCopies();
  // The ranks of the ring that are here: their progress counts, and they learn of that of the
  // others. Must outlive the crew.
  void Join(RankSet& ranks);
  // From now on, the ranks here are aborted when the epoch breaks: a step has failed at a worker,
  // or a worker is lost. At once if that is so already.
  void BeginAborts();
  // From now on they are not, and no abort of them is under way.
  void EndAborts();

  // Those below may be called by any thread.

  uint64_t epoch() const;  // the last that formed
  // Why the epoch is broken; OK if it is not.
  absl::Status broken() const;
  // Whether a step can run: see Membership::is_up.
  bool is_up() const;
  // The first loss of a worker since the ring formed, naming it; OK: none was lost.
  absl::Status lost() const;
  // Why a ring that was not founded may never be: a worker cannot host its ranks, by what it said
  // of its machine or settings, or no more workers come. OK: it waits for workers, or was founded.
  absl::Status hopeless() const;
  // See Membership.
  std::vector<int32_t> TakeLost();
  std::optional<SteadyTime> vacant_since() const;
  bool can_shrink() const;
  // Whether the epoch that began last has the rank.
  bool is_hosted(int rank) const;
  // What the ring waits for, for people; empty: for nobody.
  std::string awaited() const;
  // The names of workers that wait to replace others.
  std::vector<std::string> spares() const;
  // When a rank at a worker last made progress.
  SteadyTime last_progress() const;
  // Of the last beat.
  RankStatistics Statistics(int rank) const;
  int workers() const;  // of the epoch
  // Without exposed_seconds. Once all ranks have a worker.
  RingLoad Load() const;

 private:
  // One who dialled.
  struct Member final : WorkerLinkSink {
    Member(RingCrew* crew, std::unique_ptr<WorkerLink> link) : crew(crew), link(std::move(link)) {}
    void OnMessage(std::string message) override { crew->OnMessage(*this, message); }
    void OnClosed(const absl::Status& why) override { crew->OnClosed(*this, why); }

    RingCrew* const crew;
    MemberId id = 0;      // set before the link is started
    bool closed = false;  // its link calls no more
    wire::Hello hello;
    SteadyTime progress;  // when its ranks were last seen to make some
    std::vector<RankFacts> facts;
    std::vector<std::string> addresses;
    std::deque<std::vector<std::string>> results;  // of the epoch
    std::optional<double> probed;                  // seconds of the probe that began last
    // By ticket: what its worker has said of a copy, if it has answered.
    std::map<uint64_t, std::optional<absl::StatusOr<bool>>> copies;
    std::vector<RankStatistics> statistics;
    const std::unique_ptr<WorkerLink> link;  // the last: it calls until it is destroyed
  };

  void OnWorker(std::unique_ptr<WorkerLink> link) override;
  void OnStopped(const absl::Status& why) override;
  void OnMessage(Member& member, const std::string& bytes);
  void OnClosed(Member& member, const absl::Status& why);

  // These require the lock.
  absl::Status Take(Member& member, wire::FromWorker& message);
  absl::Status TakeHello(Member& member, const wire::Hello& hello);
  absl::Status TakeReady(Member& member, const wire::Ready& ready);
  absl::Status TakeWires(Member& member, const wire::WireReady& wires);
  absl::Status TakeResult(Member& member, wire::StepResult& result);
  absl::Status TakeProbed(Member& member, const wire::Probed& probed);
  absl::Status TakeCopied(Member& member, const wire::PageCopied& copied);
  absl::Status TakeBeat(Member& member, const wire::Beat& beat);
  absl::Status NameTaken(const Member& member, const absl::Status& why) const;
  void Lose(Member& member, RingLoss cause, const absl::Status& why);
  absl::Status Hopeless() const;
  void Fill();
  void Break(const absl::Status& why);
  void Send(const std::vector<MemberId>& members, const wire::ToWorker& message);
  void SendOrLose(Member& member, const std::string& bytes);
  std::vector<MemberId> InEpoch() const;
  std::vector<MemberId> Unprobed() const;
  void AbortHere();
  absl::Status AwaitAborted(int rank, std::unique_lock<std::mutex>& lock);
  Member* Find(MemberId id) const;
  std::string AwaitedText() const;
  SteadyTime LastProgress() const;
  void LoseTheLate(SteadyTime now);
  void TellProgress(SteadyTime now);

  absl::Status Await(const std::function<bool()>& done, std::unique_lock<std::mutex>& lock);
  absl::Status AwaitResult(size_t seat, std::unique_lock<std::mutex>& lock);
  void Watch();
  bool TendLinks(std::unique_lock<std::mutex>& lock);

  const RingCrewOptions options_;
  WorkerSource& source_;
  // Made while there is memory.
  const absl::Status unsent_ =
      absl::UnavailableError("there was no memory to send it what it must know");
  const absl::Status nameless_ =
      absl::UnavailableError("a worker is lost, and there was no memory to say which");
  mutable std::mutex mutex_;  // guards what follows, up to watcher_
  std::condition_variable changed_;
  Membership membership_;
  std::vector<std::unique_ptr<Member>> members_;  // whose links may still call
  int64_t visiting_pages_ = std::numeric_limits<int64_t>::max();
  absl::Status stopped_;  // why no more workers come; else OK
  absl::Status unfit_;    // why a worker could not host ranks of a ring that was not founded
  std::string refusal_;   // of the last one refused
  std::string told_;      // what the source was told last
  std::vector<std::string> news_;  // awaited since the losses that it was not told of yet
  SteadyTime begun_;               // when the last step was
  uint64_t copies_ = 0;            // the last ticket of a copy
  uint64_t forms_here_ = 0;        // the epoch that the ranks here have left all steps for
  absl::Status broken_;
  absl::Status lost_;
  RankSet* here_ = nullptr;  // null: no rank is here
  bool aborts_here_ = false;
  bool stop_ = false;         // all waits end
  bool stop_copies_ = false;  // those for copies
  bool over_ = false;         // the watcher ends
  std::thread watcher_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_RING_CREW_H_
