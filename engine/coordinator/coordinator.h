#ifndef ANNULUS_ENGINE_COORDINATOR_H_
#define ANNULUS_ENGINE_COORDINATOR_H_

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <thread>
#include <unordered_set>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "engine/base/bounded_queue.h"
#include "engine/coordinator/memory_account.h"
#include "engine/coordinator/plan_queue.h"
#include "engine/coordinator/room_kept.h"
#include "engine/coordinator/serving.h"
#include "engine/coordinator/step_account.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/pages/page_tier.h"
#include "engine/pages/pinned_documents.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/auto_policy.h"
#include "engine/request/request.h"
#include "engine/runner/rank_port.h"
#include "engine/scheduler/growth.h"
#include "engine/scheduler/parking.h"
#include "engine/scheduler/scheduler.h"
#include "engine/scheduler/standstill.h"

namespace annulus {

struct CoordinatorOptions {
  PlanLimits limits;
  ModePolicy modes;
  AdmissionMode admission = AdmissionMode::kWorst;
  int max_running = 64;
  int max_waiting = 256;
  std::chrono::milliseconds stall_budget{0};
  Speculation speculation = Speculation::kOff;  // of requests that do not say
  std::string identity;           // of keys and values: what must be equal for pages to be reused
  AttentionAssignment attention;  // of requests that name none
  AutoSetting automatic;
  std::vector<RopeConfig> ropes;  // of the model
  std::chrono::milliseconds slow_reader_timeout{30'000};
  // Of all pages: see PinnedDocuments.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  std::vector<PageLevels::Level> tiers;  // where pages go from the ranks' memory; empty: nowhere
  KvVerify verify = KvVerify::kOff;      // of its pages
  PageComparer* comparer = nullptr;      // PageTier::Options::comparer
  const Tokenizer* tokenizer = nullptr;  // of the model; needed with kSample
};

// The engine's loop: one thread that takes commands, admits requests, plans steps, has the ranks
// run them, and passes results on. It alone touches the engine state and the book of every rank's
// pages.
class Coordinator {
 public:
  // All references outlive the coordinator. The loop starts at once. Deadlines, times to live,
  // paces and costs go by `clock`; so must the times in requests.
  Coordinator(const CoordinatorOptions& options, RankPort& ranks, EngineMetrics& metrics,
              const Clock& clock, std::vector<int32_t> end_of_text_ids, int32_t vocabulary);
  // Cancels everything and joins.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // Thread-safe. RESOURCE_EXHAUSTED with a retry hint when as many wait as may wait.
  absl::Status Submit(std::unique_ptr<Request> request);

  // Thread-safe.
  void Cancel(RequestId id);

  // Thread-safe; the loop does it before its next step. An unknown document is no error.
  void ForgetDocument(DocumentTag document);
  void UnpinDocument(DocumentTag document);
  // Thread-safe. Without what lies on disk.
  KeptDocument FindDocument(DocumentTag document) const;

  // Thread-safe: what a request would take that is not submitted; Engine::Validate accepts it.
  // Counts as a use of the cached prefix that it finds. Errors: see PlanQueue::Ask.
  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel);

  // Thread-safe: how things stood after the last turn of the loop.
  struct Snapshot {
    int running = 0;
    int waiting = 0;
    bool healthy = true;
    SteadyTime last_turn{};
    bool busy = false;                // a step runs or is due
    std::vector<PageCounts> pages;    // [rank]
    std::vector<int64_t> pages_most;  // [rank] ever held at once
    double stall_budget_seconds = 0;
    double smallest_chunk_seconds = 0;
    int64_t request_bytes_most = 0;  // of the heap, for requests and cached prefixes
  };
  Snapshot Look() const;

 private:
  void Loop();
  void TakeCommands();
  void Enqueue(std::unique_ptr<Request> request);
  SteadyTime NextWake() const;
  void ExpireDeadlines();
  enum class DocumentOrder : uint8_t { kUnpin, kForget };  // the second does the first too
  void Order(DocumentTag document, DocumentOrder order);
  void TendDocuments();
  void Obey(DocumentTag document, DocumentOrder order);
  absl::Status KeepPrefilled(Request& request);
  absl::Status CheckPinRoom(const RequestSpec& spec) const;
  absl::Status CheckRoomBesidePins(const Request& request);
  absl::Status CheckRoomToGrow(const PrefixIndex::Hit& pin) const;
  void LookAtReaders();
  // Whether the request reserves what it is expected to need, and may be preempted.
  bool ReservesExpected(const RequestSpec& spec, const AttentionAssignment* attention) const;
  void ReserveExpected(const RequestSpec& spec, PageDemand& demand) const;
  class GrowthSide;
  void GrowRunning();
  std::vector<int32_t> PagesToGrowTo(const Request& request, int64_t tokens) const;  // [ring index]
  bool GrowTo(Request& request, int64_t tokens, bool let_go_of_writes);
  void Preempt(RequestId id);
  void AdmitWaiting();
  class AdmissionSide;
  // `large`: null, or a request that must still find room once all that ran before has ended.
  absl::StatusOr<AdmissionHost::Answer> TryAdmit(Request& request, const Request* large);
  void ReportBeginning(Request& request, const Sequence& sequence, int32_t cached);
  PageDemand DemandOf(const Request& request) const;
  PageDemand DemandOf(const RequestSpec& spec, const AttentionAssignment* attention) const;
  bool IsKept(Request& request);
  bool WaitsForPrefix(const Request& request);
  void ForgetCommon(const Request& request);
  bool WaitsForPages(const Request& request, const Request* large);
  bool BeginRestore(const Request& request, PageTier::Beginning& kept,
                    const PrefixReuse::Found* before, PageOwner owner, const Request* large);
  // Checks of what the tier read back: the last page is computed again, by a sequence that belongs
  // to no client's request.
  void BeginChecks();
  bool BeginCheck(PageTier::Check check);
  void EndCheck(std::unique_ptr<Request> request, bool computed);
  std::shared_ptr<const AttentionAssignment> TakePolicy(Request& request);
  // What of a prompt is there already, and what stands behind it.
  struct Lookup {
    std::vector<PrefixReuse::Found> found;  // empty where the request ignores it
    PrefixIndex::Nearest nearest;
    int64_t longest = 0;   // tokens, of `found`
    bool ignored = false;  // there was something, in memory or in the tier
  };
  Lookup LookUp(const RequestSpec& spec, const AttentionAssignment* policy);
  // Why no more than `cached` tokens are reused; nothing too if what was there lies on ranks that
  // are busy or full.
  std::optional<CacheMiss> WhyNoMore(const Request& request, const AttentionAssignment* policy,
                                     const Lookup& lookup, int32_t cached) const;
  std::shared_ptr<const AttentionAssignment> PolicyOf(const RequestSpec& spec, std::string& choice);
  // The ring of a request, and what of its prompt is there already.
  struct Placement {
    RingChoice choice;
    std::optional<PrefixIndex::Hit> hit;
    int32_t cached = 0;
  };
  absl::StatusOr<std::optional<Placement>> Place(const Request& request, const PageDemand& demand,
                                                 std::vector<PrefixReuse::Found> found,
                                                 const Request* large);
  std::unique_ptr<Sequence> MakeSequence(const Request& request, const RingChoice& choice,
                                         std::shared_ptr<const AttentionAssignment> attention,
                                         int64_t rope_length) const;
  // Where a request may begin, null for a fresh ring, in the order in which that is tried.
  std::vector<PrefixReuse::Found*> PlacesToTry(const PageDemand& demand,
                                               std::vector<PrefixReuse::Found>& found) const;
  // Where the first `tokens` tokens of a request, which a tier has, may come back to, in the order
  // in which that is tried: behind `before`, memory's part of them, or, null, all to a fresh ring.
  std::vector<const PrefixReuse::Found*> PlacesToRestore(
      const PageDemand& demand, int32_t tokens,
      const std::optional<PrefixReuse::Found>& before) const;
  std::vector<int> SequencesOnRanks() const;     // [rank] how many that run have pages there
  std::vector<int32_t> FreePages() const;        // [rank]
  std::vector<int32_t> PagesWithoutUse() const;  // [rank] the same, and those that are only cached
  RequestPlan PlanNow(const RequestSpec& spec);
  RingChoice PlanPlace(const RequestSpec& spec, const AttentionAssignment* attention,
                       RequestPlan& plan);
  void DescribeRanks(const RingChoice& choice, const PrefixIndex::Hit* hit,
                     RequestPlan& plan) const;
  std::optional<RingChoice> MakeRoom(const RequestSpec& spec, const PageDemand& demand,
                                     const std::vector<int32_t>& fixed,
                                     const std::function<bool(const RingChoice&)>& will_do);
  int64_t NewBytes(const RingChoice& choice) const;
  int64_t BytesOf(int64_t pages) const;
  bool TenantMayHave(const RequestSpec& spec, const RingChoice& choice) const;
  bool FindTenantRoom(const RequestSpec& spec, const RingChoice& choice);
  bool MakeTenantRoom(const RequestSpec& spec, const RingChoice& choice);
  absl::Status TenantIsFull(const RequestSpec& spec, int64_t needed) const;
  bool RunStep();
  StepPlan PlanNext();
  std::shared_ptr<const StepPlan> TakePlan(absl::FunctionRef<std::optional<StepPlan>()> make);
  std::optional<bool> BeginStep();
  std::shared_ptr<const StepPlan> BeginBehind(const StepPlan& running);
  bool NextStepDepends(const StepPlan& running) const;
  bool UseStep(const StepPlan& plan, const std::vector<RankResult>& results, double seconds);
  std::shared_ptr<const StepPlan> WithoutThoseThatLeft(std::shared_ptr<const StepPlan> plan,
                                                       std::vector<RankResult>& results) const;
  void KeepPrefixes();
  void DropStepBehind();
  void ReleasePages(RequestId id);
  void ReleaseLeft();
  bool FailStep(const absl::Status& cause);
  void ReportProgress(const StepPlan& plan);
  void UseResults(const StepPlan& plan, const std::vector<RankResult>& results);
  void CountTimes(const StepPlan& plan, const std::vector<RankResult>& results, double host);
  void DraftAhead();
  void UseTokens(std::span<const SampledToken> tokens, int drafted);
  void CountTokens(Request& request, const Request::TokenOutcome& outcome);
  void Finish(RequestId id, FinishReason reason, absl::Status status);
  void Leave(const Request& request);
  void RecordFinished(const Request& request, FinishReason reason);
  void RecordServed(const Request& request);
  void LearnCosts(Request& request);
  void FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too);
  void Publish(bool busy);
  int64_t RequestBytes() const;

  const CoordinatorOptions options_;
  AutoPolicy automatic_;
  RankPort& ranks_;
  EngineMetrics& metrics_;
  const Clock& clock_;
  const std::vector<int32_t> end_of_text_ids_;
  const int32_t vocabulary_;

  StepAccount account_;

  BoundedQueue<std::unique_ptr<Request>> commands_;  // null: only a wake-up
  std::atomic<int> waiting_count_{0};                // submitted and not yet admitted
  std::atomic<bool> stop_{false};
  std::atomic<bool> busy_{false};  // as Snapshot::busy
  std::atomic<int64_t> retry_ms_{1000};

  PlanQueue plans_;

  // Cancels have their own place, which cannot be full: at most one for each request alive.
  std::mutex alive_mutex_;
  std::unordered_set<RequestId> alive_;
  std::set<RequestId> cancels_;

  // Not done yet: at most one for each document that a call named since the last turn.
  std::mutex orders_mutex_;
  std::map<DocumentTag, DocumentOrder> orders_;

  // The loop's own.
  EngineState state_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::deque<RequestId> waiting_;
  bool lacks_pages_ = false;  // a sequence that runs waits for pages to grow
  Serving serving_;
  RoomKept room_kept_;
  // For a request that waits and one that computes its prompt: how many tokens both begin with; and
  // for the latter, how many of those were kept for others.
  std::map<std::pair<RequestId, RequestId>, int32_t> common_;
  std::map<RequestId, int32_t> kept_common_;
  int64_t looked_through_ = 0;  // tokens of prompts, by the last pass of admission
  Standstill standstill_;
  PageBook pages_;
  PrefixReuse prefixes_;
  PinnedDocuments pins_;
  PageOwner next_pin_ = PageOwner{1} << 62;    // neither a request's nor the tier's
  std::unique_ptr<PageTier> tier_;             // null: there is none
  RequestId next_check_ = RequestId{1} << 61;  // no client's request, no pin, none of the tier's
  std::map<RequestId, PageOwner> checks_;      // that run, each with the restore that it is for
  int64_t request_bytes_most_ = 0;
  std::optional<SteadyTime> ranks_idle_since_;  // the end of the last step, if more was to be done

  // A step that the ranks have. Between two turns of the loop: one that was planned behind the step
  // whose results were used last.
  struct RunningStep {
    std::shared_ptr<const StepPlan> plan;
    SteadyTime begun;        // with the time of planning; behind another step: when that was over
    SteadyTime started;      // when the ranks got it; behind another step: as `begun`
    double host = 0;         // seconds before it in which the ranks had nothing to do
    bool is_behind = false;  // the ranks had it before they knew the results before; `host` is 0
  };
  std::optional<RunningStep> step_;
  // Requests that have ended while the ranks have a step: their pages, which the step may still
  // use, are released when it has ended too.
  std::vector<RequestId> left_;
  std::vector<RequestId> lost_;  // hold pages that a lost rank may still touch

  mutable std::mutex snapshot_mutex_;
  Snapshot snapshot_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_H_
