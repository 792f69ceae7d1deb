#ifndef ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_
#define ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_

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
  // Whether all ranks read the weights from one memory and compute on the same processors.
  bool ranks_share_machine = false;
  ModePolicy modes;
  AdmissionMode admission = AdmissionMode::kWorst;
  int max_running = 64;   // most requests that run at once; parked ones do not count
  int max_waiting = 256;  // most requests that wait for admission
  // The longest time that a stream should wait between two tokens: see StepPacer. 0: no limit.
  std::chrono::milliseconds stall_budget{0};
  Speculation speculation = Speculation::kOff;  // default of RequestSpec::speculation
  // Names everything that the bytes of pages depend on and that is the same for all requests:
  // model, dtypes, kernels, shards. Pages are reused only under an equal identity.
  std::string identity;
  AttentionAssignment attention;  // default of RequestSpec::attention
  AutoSetting automatic;
  std::vector<RopeConfig> ropes;                          // the model's rotary settings
  std::chrono::milliseconds slow_reader_timeout{30'000};  // see ReaderPace
  // Shares of all ranks' pages, 0 to 1, that all pins and those of one tenant may hold.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  // Stores that pages are saved in and restored from, the fastest first. Empty: there is no tier.
  std::vector<PageLevels::Level> tiers;
  std::vector<ContentHash> other_identities;  // see PageTier::Options
  KvVerify verify = KvVerify::kOff;           // how pages from the tiers are checked
  PageComparer* comparer = nullptr;           // not null for KvVerify::kSample
  const Tokenizer* tokenizer = nullptr;       // the model's; not null for KvVerify::kSample
};

// The engine's loop: one thread that takes commands, admits requests, plans steps, has the ranks
// run them, and passes results to the requests' sinks. Only this thread touches the engine state
// and the page book.
//
// A request waits (waiting_), then runs (state_.running), then ends (Finish). A running request can
// be parked, which pauses it and keeps its pages, while its reader is behind. Or it can be
// preempted: it gives up its pages and waits again.
//
// If memory runs out while the loop works for a request, that request ends with an error, or the
// work is done later: see Guarded.
class Coordinator {
 public:
  // Starts the loop. All references, and what the pointers in `options` point to, must outlive the
  // coordinator. All times in requests must be times of `clock`. `end_of_text_ids`: tokens that end
  // an answer. `vocabulary`: the number of tokens that logits are computed for.
  Coordinator(const CoordinatorOptions& options, RankPort& ranks, EngineMetrics& metrics,
              const Clock& clock, std::vector<int32_t> end_of_text_ids, int32_t vocabulary);
  // Cancels all requests and joins the thread. A running step is waited for.
  ~Coordinator();
  Coordinator(const Coordinator&) = delete;
  Coordinator& operator=(const Coordinator&) = delete;

  // The public methods below are thread-safe.

  // Queues a request. After OK, its sink receives exactly one OnDone. RESOURCE_EXHAUSTED with a
  // retry hint if max_waiting requests wait already.
  absl::Status Submit(std::unique_ptr<Request> request);

  // The error with which Submit would refuse a request now, counted as Submit does; OK if there is
  // room.
  absl::Status CheckQueue();

  // Ends the request with CANCELLED after the running step. No-op if it has ended or is unknown.
  void Cancel(RequestId id);

  // Ordered here and carried out by the loop before its next step. No-ops for a document of which
  // nothing is kept. Forgetting a document also unpins it.
  void ForgetDocument(DocumentTag document);
  void UnpinDocument(DocumentTag document);
  // What memory keeps of the document. Does not count what the tiers have.
  KeptDocument FindDocument(DocumentTag document) const;

  // Returns what the request would take if it were submitted now: see Engine::Plan. Requires that
  // Engine::Validate accepts it. The cached prefix that it finds counts as used. Errors: see
  // PlanQueue::Ask.
  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel);

  // The state after the last turn of the loop, or at the start of the step that runs.
  struct Snapshot {
    int running = 0;  // includes parked requests, but not checks of restored pages
    int waiting = 0;
    bool healthy = true;              // whether the ranks can run steps
    SteadyTime last_turn{};           // when this snapshot was taken
    bool busy = false;                // a step runs, or ran in the last turn
    std::vector<PageCounts> pages;    // [rank]
    std::vector<int64_t> pages_most;  // [rank] most pages that were not free at one time
    double stall_budget_seconds = 0;
    double smallest_chunk_seconds = 0;  // see StepPacer
    // Most heap bytes ever taken by requests, cached prefixes and the tier's bookkeeping.
    int64_t request_bytes_most = 0;
  };
  Snapshot Look() const;

 private:
  // Functions without a comment here have one at their definition. The headings name the files.

  // ---- coordinator.cc: the loop; how a request ends
  absl::Status RefuseForQueue();
  void Loop();
  void TakeCommands();
  void Enqueue(std::unique_ptr<Request> request);
  SteadyTime NextWake() const;
  void ExpireDeadlines();
  void LookAtReaders();
  void Finish(RequestId id, FinishReason reason, absl::Status status);
  void Leave(const Request& request);
  void ReleasePages(SequenceId id, PageOwner owner);
  void ReleaseLeft();
  void RecordFinished(const Request& request, FinishReason reason);
  void RecordServed(const Request& request);
  void LearnCosts(Request& request);
  void FinishAll(FinishReason reason, const absl::Status& status, bool waiting_too);
  void Publish(bool busy);
  int64_t RequestBytes() const;

  // ---- coordinator_documents.cc: pins, times to live, deletions
  enum class DocumentOrder : uint8_t { kUnpin, kForget };  // kForget unpins too
  void Order(DocumentTag document, DocumentOrder order);
  void TendDocuments();
  void Obey(DocumentTag document, DocumentOrder order);
  absl::Status KeepPrefilled(Request& request);
  absl::Status CheckPinRoom(const RequestSpec& spec) const;
  absl::Status CheckRoomBesidePins(const Request& request);

  // ---- coordinator_growth.cc: who takes more pages, and who gives them up
  absl::Status CheckRoomToGrow(const PrefixIndex::Hit& pin) const;
  // Whether the request reserves only the pages that it is expected to need. Such a request grows
  // and may be preempted; any other one reserves all pages at admission.
  bool ReservesExpected(const RequestSpec& spec, const AttentionAssignment* attention) const;
  void ReserveExpected(const RequestSpec& spec, PageDemand& demand) const;
  class GrowthSide;
  void GrowRunning();
  std::vector<int32_t> PagesToGrowTo(const Request& request, int64_t tokens) const;  // [ring index]
  bool GrowTo(Request& request, int64_t tokens, bool let_go_of_writes);
  void Preempt(RequestId id);

  // ---- coordinator_admission.cc: who begins
  // `large` here and below: the request for which room is gathered, or null: see AdmissionHost.
  absl::StatusOr<AdmissionHost::Answer> TryAdmit(Request& request, const Request* large);
  void ReportBeginning(Request& request, const Sequence& sequence, int32_t cached);
  std::unique_ptr<Sequence> MakeSequence(const Request& request, PageOwner owner,
                                         const RingChoice& choice,
                                         std::shared_ptr<const AttentionAssignment> attention,
                                         int64_t rope_length) const;
  void AdmitWaiting();
  class AdmissionSide;
  PageDemand DemandOf(const Request& request) const;
  PageDemand DemandOf(const RequestSpec& spec, const AttentionAssignment* attention) const;
  bool IsKept(Request& request);
  bool WaitsForPrefix(const Request& request);
  void ForgetCommon(const Request& request);
  bool WaitsForPages(const Request& request, const Request* large);
  bool BeginRestore(const Request& request, SavedBeginning& kept,
                    const PrefixReuse::Found* before, PageOwner owner, const Request* large);
  std::shared_ptr<const AttentionAssignment> TakePolicy(Request& request);
  // Which beginnings of a prompt are cached.
  struct Lookup {
    std::vector<PrefixReuse::Found> found;  // empty if RequestSpec::ignore_cache
    PrefixIndex::Nearest nearest;
    int64_t longest = 0;   // tokens of the longest one found, even if ignored
    bool ignored = false;  // ignore_cache, and memory or the tier has a beginning
  };
  Lookup LookUp(const RequestSpec& spec, const AttentionAssignment* policy);
  // Why no more than `cached` tokens are reused. Nothing if there was no more, or if more was
  // cached but on ranks that are too busy or too full.
  std::optional<CacheMiss> WhyNoMore(const Request& request, const AttentionAssignment* policy,
                                     const Lookup& lookup, int32_t cached) const;
  std::shared_ptr<const AttentionAssignment> PolicyOf(const RequestSpec& spec, std::string& choice);
  // Null unless the policies, which are resolved, follow patterns. `tokens`: of the prompt.
  std::shared_ptr<const PatternPairs> PatternPairsOf(const AttentionAssignment* attention,
                                                     int64_t tokens) const;

  // ---- coordinator_checks.cc: pages from the tier are checked by computing one of them again, as
  // the prompt of a request without a client
  void BeginChecks();
  bool BeginCheck(PageRestorer::Check check);
  void EndCheck(std::unique_ptr<Request> request, bool computed);

  // ---- coordinator_plan.cc: where a request begins; what an unsubmitted one would take
  // The ring of a request, and the cached pages that it begins with.
  struct Placement {
    RingChoice choice;
    std::optional<PrefixIndex::Hit> hit;  // absent: nothing is reused
    int32_t cached = 0;                   // tokens of `hit`
  };
  absl::StatusOr<std::optional<Placement>> Place(const Request& request, const PageDemand& demand,
                                                 std::vector<PrefixReuse::Found> found,
                                                 const Request* large);
  // Where a request may begin: with the cached beginning `from`, if not null; on `ring`, or, if
  // that is empty, on any.
  struct Start {
    PrefixReuse::Found* from = nullptr;
    std::vector<int32_t> ring;
  };
  // In the order to try them.
  std::vector<Start> StartsToTry(const PageDemand& demand,
                                 std::vector<PrefixReuse::Found>& found) const;
  // Where the first `tokens` tokens of a request, which a tier has, may come back to, in the order
  // in which that is tried: behind `before`, memory's part of them, or, null, all to a fresh ring.
  std::vector<const PrefixReuse::Found*> PlacesToRestore(
      const PageDemand& demand, int32_t tokens,
      const std::optional<PrefixReuse::Found>& before) const;
  std::vector<int> SequencesOnRanks() const;  // [rank] how many that run have pages there
  // [rank] for ChooseRing: SequencesOnRanks, or empty if ranks share the machine, where an idle
  // rank's processors compute for the others.
  std::vector<int> LoadOfRanks() const;
  std::vector<int> HomesOnRanks() const;         // [rank] how many have their home; none parked
  std::vector<int32_t> FreePages() const;        // [rank]
  std::vector<int32_t> PagesWithoutUse() const;  // [rank] free pages and cached ones nobody holds
  RequestPlan PlanNow(const RequestSpec& spec);
  RingChoice PlanPlace(const RequestSpec& spec, const AttentionAssignment* attention,
                       RequestPlan& plan);
  void DescribeRanks(const RingChoice& choice, const PrefixIndex::Hit* hit,
                     RequestPlan& plan) const;
  std::optional<RingChoice> MakeRoom(const RequestSpec& spec, const PageDemand& demand,
                                     const std::vector<int32_t>& fixed,
                                     const std::function<bool(const RingChoice&)>& will_do);

  // ---- coordinator_tenants.cc: how much a tenant may have
  int64_t NewBytes(const RingChoice& choice) const;
  int64_t BytesOf(int64_t pages) const;
  bool TenantMayHave(const RequestSpec& spec, const RingChoice& choice) const;
  bool FindTenantRoom(const RequestSpec& spec, const RingChoice& choice);
  bool MakeTenantRoom(const RequestSpec& spec, const RingChoice& choice);
  absl::Status TenantIsFull(const RequestSpec& spec, int64_t needed) const;

  // ---- coordinator_step.cc: one step of the ranks
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
  bool FailStep(const absl::Status& cause);
  void ReportProgress(const StepPlan& plan);
  void UseResults(const StepPlan& plan, const std::vector<RankResult>& results);
  void CountTimes(const StepPlan& plan, const std::vector<RankResult>& results, double host);
  void DraftAhead();
  void UseTokens(std::span<const SampledToken> tokens, int drafted);
  void CountTokens(Request& request, const Request::TokenOutcome& outcome);

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
  std::atomic<bool> busy_{false};              // Snapshot::busy, or requests wait
  std::atomic<double> turnover_seconds_{0.5};  // Serving's, for threads that refuse requests

  PlanQueue plans_;

  // Cancels are not in the queue, because it can be full. There is at most one for each request
  // alive.
  std::mutex alive_mutex_;
  std::unordered_set<RequestId> alive_;  // submitted and not ended
  std::set<RequestId> cancels_;          // that the loop has not handled yet

  // Orders that the loop has not carried out yet: at most one for each document.
  std::mutex orders_mutex_;
  std::map<DocumentTag, DocumentOrder> orders_;

  // Everything below, except the snapshot, is used by the loop's thread alone. (prefixes_ and pins_
  // have a few thread-safe lookups.)
  EngineState state_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::deque<RequestId> waiting_;  // in the order in which they began to wait
  bool lacks_pages_ = false;       // a running sequence waits for pages to grow
  Serving serving_;
  RoomKept room_kept_;
  // See WaitsForPrefix. For a waiting request and one whose prompt is being computed: how many
  // reusable tokens their prompts have in common (PrefixReuse::Common).
  std::map<std::pair<RequestId, RequestId>, int32_t> common_;
  // For the one being computed: up to which token its prompt has been made known for others.
  std::map<RequestId, int32_t> kept_common_;
  int64_t looked_through_ = 0;  // prompt tokens that the current admission pass has hashed
  Standstill standstill_;
  PageBook pages_;
  PrefixReuse prefixes_;
  PinnedDocuments pins_;
  std::unique_ptr<PageTier> tier_;  // null: there is none
  SequenceId next_check_ = kFirstCheck;
  std::map<RequestId, PageOwner> checks_;  // running checks, with the restore that each is for
  int64_t request_bytes_most_ = 0;
  // When the last step ended. Absent: the ranks had nothing to do since.
  std::optional<SteadyTime> ranks_idle_since_;

  // The step that the ranks have. Between two turns of the loop there is one only if it was started
  // while its predecessor ran ("behind" it).
  struct RunningStep {
    std::shared_ptr<const StepPlan> plan;
    SteadyTime begun;    // when planning began; of a step behind: when its predecessor ended
    SteadyTime started;  // when the ranks got it; of a step behind: as `begun`
    // Seconds for which the ranks were idle before it. 0 for a step behind: see RankPort::pause.
    double host = 0;
    bool is_behind = false;
  };
  std::optional<RunningStep> step_;
  // Requests that ended while the ranks have a step. The step may still use their pages, so these
  // are released when it ends.
  struct Left {
    SequenceId id = 0;
    PageOwner owner;
  };
  std::vector<Left> left_;
  // Ended requests whose pages a lost rank may still use. Released when the coordinator goes.
  std::vector<PageOwner> lost_;

  mutable std::mutex snapshot_mutex_;
  Snapshot snapshot_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_COORDINATOR_H_
