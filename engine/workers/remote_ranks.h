#ifndef ANNULUS_ENGINE_WORKERS_REMOTE_RANKS_H_
#define ANNULUS_ENGINE_WORKERS_REMOTE_RANKS_H_

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/ring/wire/carrier.h"
#include "engine/ring/wire/link_probe.h"
#include "engine/runner/rank_port.h"
#include "engine/runner/rank_set.h"
#include "engine/workers/ring_agreement.h"
#include "engine/workers/ring_crew.h"
#include "engine/workers/ring_shelves.h"
#include "engine/workers/worker_link.h"
#include "kernels/backend.h"

namespace annulus {

struct RemoteRanksOptions {
  // Of the ranks here, which are the ring's first: span.local, in [0, span.all). Its
  // kv_memory_bytes are theirs; `ring` does not count.
  RankSetOptions set;
  size_t kv_bytes_per_rank = 0;  // of all ranks, here and at workers
  RingAgreement agreement;
  // Opens the carrier of a rank's wire.
  std::function<absl::StatusOr<std::unique_ptr<Carrier>>()> open_carrier;
  // A worker that has said nothing for this long is lost. From kLeastSilence to kMostSilence.
  std::chrono::milliseconds silence{};
  // Longest wait for the first message of whoever dials.
  std::chrono::milliseconds hello_timeout{10'000};
  // Longest wait for workers to take their memory and open their wires.
  std::chrono::milliseconds forming_timeout{120'000};
  // How long the ring waits for a worker in place of one that is lost, before it goes on without.
  std::chrono::milliseconds replacement_timeout{};
  // Told of all that breaks the ring, on any thread. Must not block. Null: nobody is.
  std::function<void(RingLoss)> on_loss = nullptr;
  // How many pages the shelf beside each rank has slots for; 0: there are no shelves.
  int32_t shelf_slots = 0;
  // Whether links are timed whenever the ring has formed, before its first step: see links(). If
  // that fails twice in a row, even by the loss of a worker, the ring serves without, until it has
  // served and a worker is lost.
  bool time_links = false;
};

// The ranks of a ring of which some are in other processes, which host them for this one: workers.
// The ranks here have a RankSet of their own; wires (WireRing) connect all.
//
// - Whoever dials is refused, with a status that says why, unless it says Hello, agrees in all of
//   RingAgreement, has a name that no other has, and hosts no more ranks than are missing. Once all
//   ranks have a worker, one with as many ranks as any of them waits as a spare. A spare takes no
//   memory: what ranks it will host is not known, and the machine may have other uses for it.
//   WorkerSource::Report says whom the ring waits for and who was refused last.
// - A step ends when all ranks have ended it. Its successor is with the workers before, and may
//   begin on some ranks while others still run the first: wires copy what they carry, so no rank
//   reads what another wrote beyond its step.
// - A step that fails ends the epoch: all workers abort, answer, and form the ring anew with the
//   next epoch, while state() is kMending. Pages stay as they were.
// - A worker is lost if its link closes, if it is silent, if it sends what cannot be understood or
//   what the codec refuses, or if it does not answer. So is one that says that it is alive while
//   its step makes no progress for the engine's exchange_timeout and `silence`, and does not wait
//   for other ranks; or whose step takes 10 times that for each layer. Its ranks go
//   to the spare that has waited longest among those with as many ranks, or to the next such worker
//   that dials, and TakeLost names them; state() is kMending until the ring has formed with it. If
//   nobody is there within replacement_timeout, it forms without these ranks (is_hosted), or, if no
//   other rank is left, state() is kFailed. Once a worker comes even then, the ring forms anew with
//   it, after the step that runs. The status of each call names the worker and its ranks. Results
//   of earlier epochs are dropped.
// - The forming is done by a thread of its own, so that none of the calls waits for it. An attempt
//   that fails, for want of memory too, is made again a second later; at once if a worker was lost
//   after the ring had formed in it.
// - If a rank here does not end a step, or its wire hangs in a probe of links, state() is kLost,
//   and the destructor waits for it without a bound.
// - Statistics and last_progress are those of the last beat for ranks elsewhere.
// - Pages of ranks elsewhere are not poisoned when freed, whatever the build.
class RemoteRanks final : public RankPort {
 public:
  // Waits until workers host all ranks, for as long as `source` lasts, which is told whom the ring
  // waits for as long as the ranks live. Another worker takes the place of one that is lost
  // meanwhile. Errors: the status with which `source` stops; those of RankSet::Create; the status
  // of a worker that could not take its memory or open its wires, or sent what it may not, with its
  // name. `model`, `backend` and `source` must outlive the ranks.
  static absl::StatusOr<std::unique_ptr<RemoteRanks>> Create(const RankModel& model,
                                                             Backend& backend, WorkerSource& source,
                                                             const RemoteRanksOptions& options);
  // Closes the links of all workers with OK.
  ~RemoteRanks() override;

  absl::Status Start(std::shared_ptr<const StepPlan> plan) override;
  absl::StatusOr<std::vector<RankResult>> Results() override;
  double pause() const override { return pause_; }
  std::vector<int32_t> TakeLost() override;
  bool is_hosted(int rank) const override { return is_here(rank) || crew_->is_hosted(rank); }
  bool takes_successors() const override { return crew_->is_up(); }
  RanksState state() const override;
  std::string awaited() const override { return crew_->awaited(); }
  SteadyTime last_progress() const override;
  const std::vector<RankFacts>& facts() const override { return facts_; }
  RankStatistics Statistics(int rank) const override;
  std::string transport() const override;
  RingLoad workers() const override { return crew_->Load(); }
  std::optional<LinkRates> links() const override;
  int64_t visiting_pages() const override { return visiting_pages_; }
  int64_t PagesSummarised(const SummaryKinds& kinds) const override;
  PatternCache& patterns() override;
  PageBook::Hooks page_hooks() override;
  const KvPool* local_pages(int rank) const override;

  // Beside the ranks, wherever they are; null: there are none.
  RankShelves* shelves() const { return shelves_.get(); }

 private:
  // A step that was started and whose results were not taken.
  struct Step {
    std::shared_ptr<const StepPlan> plan;
    double pause = 0;  // see RankPort::pause
  };

  RemoteRanks(const RankModel& model, WorkerSource& source, const RemoteRanksOptions& options);
  absl::Status Open(Backend& backend);
  absl::Status OpenShelves();
  absl::StatusOr<std::unique_ptr<RingGroup>> OpenWires();
  absl::Status TimeLinks();
  absl::StatusOr<LinkRates> MeasureLinks();
  absl::StatusOr<double> TimePass(size_t bytes);
  absl::Status AwaitFacts();
  bool MayBeOfWire(const absl::Status& failure) const;
  absl::Status CauseOf(absl::Status failure);
  absl::StatusOr<std::vector<RankResult>> TakeResults(const StepPlan& plan);
  void BeginMending(const absl::Status& why);
  bool is_mending() const;
  bool IsStuck() const;
  absl::Status Trouble() const;
  void Mend();
  absl::Status TryForming(const absl::Status& broke);
  absl::Status FormAnew();
  // Calls with a rank that is here are answered by local_.
  bool is_here(int rank) const { return rank < options_.set.span.local; }

  const RankModel& model_;
  const RemoteRanksOptions options_;
  const absl::Status no_memory_;  // made while there is some
  std::vector<RankFacts> facts_;
  int64_t visiting_pages_ = 0;
  PatternCache patterns_{kPatternBytes};  // if no rank is here
  std::vector<int> hosted_;               // the ranks of the epoch
  int failed_timings_ = 0;                // of links, in a row
  std::unique_ptr<LinkProbe> probe_;      // outlives local_, which has the ring; null as that
  std::unique_ptr<RankSet> local_;        // null: no rank is here
  std::array<Step, 2> steps_;             // the older one first
  int started_ = 0;                       // how many of steps_ there are
  SteadyTime ended_;                      // when the last step ended
  double pause_ = 0;
  std::unique_ptr<RingCrew> crew_;
  std::unique_ptr<RingShelves> shelves_;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool mending_ = false;    // the ring and local_ belong to the thread that mends
  absl::Status broke_;      // why it mends
  absl::Status abandoned_;  // why no later step can run; else OK
  std::optional<LinkRates> links_;
  bool served_ = false;  // the ring could, since it was last mended
  bool stop_ = false;
  std::thread mender_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_REMOTE_RANKS_H_
