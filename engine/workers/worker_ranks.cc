#include "engine/workers/worker_ranks.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <numeric>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/codec/status_message.h"
#include "engine/ring/wire/link_probe.h"
#include "engine/ring/wire/wire_ring.h"
#include "engine/workers/control_messages.h"
#include "engine/workers/worker_shelves.h"
#include "engine/workers/worker_steps.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// A coordinator sends no more than Form, two of Run and Abort before it waits for an answer.
constexpr size_t kMostUnread = 8;

// Never OK.
absl::Status WhyOf(const wire::Abort& abort) {
  const absl::Status why = codec::FromMessage(abort.why());
  return why.ok() ? absl::AbortedError("the coordinator aborted the epoch") : why;
}

class WorkerRanks final : private WorkerLinkSink {
 public:
  WorkerRanks(const RankModel& model, Backend& backend, const WorkerRanksOptions& options,
              WorkerLink& link)
      : model_(model), backend_(backend), options_(options), clock_(*options.clock), link_(link) {}

  absl::Status Serve();

 private:
  void OnMessage(std::string bytes) override;
  void OnClosed(const absl::Status& why) override;

  absl::Status Run();
  absl::StatusOr<RankSetOptions> TakeAssign();
  absl::Status TakeRanks(const RankSetOptions& set);
  absl::StatusOr<std::unique_ptr<RingGroup>> OpenWires(const RankSpan& span, uint64_t first_epoch);
  absl::StatusOr<std::vector<std::string>> Form(uint64_t epoch, std::vector<std::string> own,
                                                int ring_size);
  absl::Status RunSteps();
  bool AwaitWork();
  absl::Status Handle(const wire::ToWorker& message);
  absl::Status TimeLinks(const wire::Probe& probe);
  absl::Status SayResults();
  absl::Status BeginAnew();
  void EndRanks();
  void SendBeats();

  void ShowMemory() const;

  absl::StatusOr<wire::ToWorker> Next(SteadyTime deadline);
  absl::StatusOr<wire::ToWorker> NextWord();
  void End(const absl::Status& why);
  void Say(const wire::FromWorker& message) { link_.Send(Encode(message)); }
  template <typename Change>
  void Show(const Change& change) const {
    if (options_.board != nullptr) options_.board->Update(change);
  }
  wire::FromWorker HelloMessage() const;

  const RankModel& model_;
  Backend& backend_;
  const WorkerRanksOptions& options_;
  const Clock& clock_;
  WorkerLink& link_;

  // Used by the serving thread alone.
  std::chrono::milliseconds exchange_timeout_{0};
  int first_rank_ = 0;                // of those hosted; set before there are beats
  int32_t shelf_slots_ = 0;           // beside each of them
  std::optional<WorkerSteps> steps_;  // once the ranks have their memory
  std::vector<int> hosted_;           // the ranks of the epoch
  std::unique_ptr<LinkProbe> probe_;  // outlives set_, which has the ring

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<wire::ToWorker> unread_;
  uint64_t epoch_ = 0;                  // the last that formed
  int ended_ = 0;                       // steps of the epoch
  std::optional<absl::Status> over_;    // how the coordinator, or what it sent, ended the service
  bool closed_ = false;                 // the link calls no more
  RankSet* aborted_by_link_ = nullptr;  // the ranks, while the link's thread may abort their steps
  RankSet* beating_ = nullptr;          // the ranks, once they have their memory
  bool stop_beats_ = false;
  SteadyTime heard_;  // when the coordinator last said anything
  // How long a worker may say nothing, by what the coordinator has said.
  std::optional<std::chrono::milliseconds> silence_;

  std::unique_ptr<RankSet> set_;            // the last but one: its threads call
  std::unique_ptr<WorkerShelves> shelves_;  // null: there are none, or not yet; under mutex_ too
};

absl::Status WorkerRanks::Serve() {
  Show([](WorkerStatus& status) { status.connected = true; });
  link_.Start(*this);
  Say(HelloMessage());
  const absl::Status ended = Guarded([this] { return Run(); }, NoMemoryError);
  link_.Close(ended);
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_; });
  }
  Show([](WorkerStatus& status) {
    status.connected = false;
    status.epoch = 0;
    status.ranks.clear();
  });
  EndRanks();
  return ended;
}

// The destructor waits for all ranks: nobody would learn why it takes so long.
void WorkerRanks::EndRanks() {
  shelves_.reset();  // it copies pages of the ranks
  if (set_ == nullptr) return;
  TryTo([this] {
    absl::Status stuck = set_->EndSteps();
    if (stuck.ok()) stuck = probe_->stuck();
    if (!stuck.ok() && options_.on_stuck != nullptr) options_.on_stuck(stuck);
  });
  probe_->Join();
}

wire::FromWorker WorkerRanks::HelloMessage() const {
  wire::FromWorker message;
  wire::Hello& hello = *message.mutable_hello();
  hello.set_protocol(kWorkerProtocol);
  hello.set_build(options_.agreement.build);
  hello.set_name(options_.name);
  hello.set_kernels(options_.agreement.kernels);
  hello.set_page_layout(options_.agreement.page_layout);
  hello.set_fingerprint(options_.agreement.fingerprint);
  hello.set_ranks(options_.ranks);
  return message;
}

// ---- on the link's threads

void WorkerRanks::OnMessage(std::string bytes) {
  absl::StatusOr<wire::ToWorker> message = DecodeToWorker(bytes);
  std::lock_guard lock(mutex_);
  if (over_.has_value()) return;
  heard_ = clock_.Now();
  if (!message.ok()) return End(message.status());
  if (message->has_welcome() == silence_.has_value()) {
    return End(NotDue("two messages of Welcome, or another one first"));
  }
  if (message->has_welcome()) {
    const absl::StatusOr<std::chrono::milliseconds> silence = SilenceOf(message->welcome());
    if (!silence.ok()) return End(silence.status());
    silence_ = *silence;
    return;
  }
  if (message->has_spare()) return;  // TakeAssign waits
  if (message->has_progress()) {
    const auto quiet = std::chrono::microseconds(
        std::min<uint64_t>(message->progress().quiet_us(), uint64_t{1} << 40));
    if (beating_ != nullptr) beating_->NoteProgressElsewhere(clock_.Now() - quiet);
    return;
  }
  if (message->has_copy()) {
    const absl::Status taken = shelves_ == nullptr
                                   ? NotDue("a copy of a page, though there are no shelves")
                                   : shelves_->Take(message->copy());
    if (!taken.ok()) End(taken);
    return;
  }
  if (unread_.size() >= kMostUnread) return End(NotDue("more messages than it may"));
  // The steps end at once; whoever reads the message finds them so.
  if (message->has_abort() && message->abort().epoch() == epoch_ && aborted_by_link_ != nullptr) {
    aborted_by_link_->Abort(WhyOf(message->abort()));
  }
  unread_.push_back(*std::move(message));
  changed_.notify_all();
}

void WorkerRanks::OnClosed(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  closed_ = true;
  End(why);
}

// Call with mutex_ locked.
void WorkerRanks::End(const absl::Status& why) {
  if (!over_.has_value()) over_ = why;
  if (aborted_by_link_ != nullptr) {
    aborted_by_link_->Abort(why.ok() ? absl::CancelledError("the coordinator has left") : why);
  }
  changed_.notify_all();
}

// ---- on the serving thread

// The next message. DEADLINE_EXCEEDED if none comes; CANCELLED if none will: see over_.
absl::StatusOr<wire::ToWorker> WorkerRanks::Next(SteadyTime deadline) {
  std::unique_lock lock(mutex_);
  clock_.WaitUntil(deadline, lock, changed_,
                   [this] { return over_.has_value() || !unread_.empty(); });
  if (over_.has_value()) return absl::CancelledError("the service is over");
  if (unread_.empty()) return absl::DeadlineExceededError("the coordinator said nothing");
  wire::ToWorker message = std::move(unread_.front());
  unread_.pop_front();
  return message;
}

// The next message, for as long as the coordinator is there: it may wait for other workers.
absl::StatusOr<wire::ToWorker> WorkerRanks::NextWord() {
  absl::StatusOr<wire::ToWorker> message = Next(clock_.Now() + kLookAround);
  while (absl::IsDeadlineExceeded(message.status())) message = Next(clock_.Now() + kLookAround);
  return message;
}

absl::Status WorkerRanks::Run() {
  const auto serve = [this]() -> absl::Status {
    std::thread beats([this] { SendBeats(); });
    const auto end_beats = absl::MakeCleanup([&] {
      {
        std::lock_guard lock(mutex_);
        stop_beats_ = true;
      }
      changed_.notify_all();
      beats.join();
    });
    ANNULUS_ASSIGN_OR_RETURN(const RankSetOptions set, TakeAssign());
    absl::Status ready = TakeRanks(set);
    if (!ready.ok()) {
      wire::FromWorker message;
      *message.mutable_ready()->mutable_status() = codec::ToMessage(ready);
      Say(message);
      return ready;
    }
    absl::Status ended = RunSteps();
    set_->Abort(absl::CancelledError("the service is over"));
    return ended;
  };
  const absl::Status ended = serve();
  std::lock_guard lock(mutex_);
  aborted_by_link_ = nullptr;
  return over_.has_value() ? *over_ : ended;
}

absl::StatusOr<RankSetOptions> WorkerRanks::TakeAssign() {
  ANNULUS_ASSIGN_OR_RETURN(const wire::ToWorker message, NextWord());
  if (!message.has_assign()) return NotDue("another message than Assign first");
  const wire::Assign& assign = message.assign();
  ANNULUS_RETURN_IF_ERROR(CheckAssign(assign, options_.ranks));
  exchange_timeout_ = std::chrono::milliseconds(assign.exchange_timeout_ms());
  RankSetOptions set;
  set.engine = options_.engine;
  set.engine.ranks = assign.ring_size();
  set.engine.max_running = assign.max_running();
  set.engine.exchange_timeout = exchange_timeout_;
  set.engine.kv_memory_bytes = assign.kv_bytes_per_rank() * static_cast<size_t>(options_.ranks);
  shelf_slots_ = assign.shelf_slots();
  const auto slot =
      static_cast<int64_t>(LocalShelves::SlotBytes(GeometryOf(model_).stored_bytes()));
  constexpr int64_t kMostShelfBytes = int64_t{1} << 56;
  if (shelf_slots_ > kMostShelfBytes / slot / options_.ranks) {
    return NotDue("more slots of shelves than there can be memory for");
  }
  set.engine.kv_host_bytes = slot * shelf_slots_ * options_.ranks;
  first_rank_ = assign.first_rank();
  set.span = {.first = first_rank_, .local = options_.ranks, .all = assign.ring_size()};
  set.rows_per_rank = assign.rows_per_rank();
  set.suspended_rows = assign.suspended_rows();
  set.ring =
      WiderRing{[this, span = set.span, epoch = assign.epoch()] { return OpenWires(span, epoch); },
                kWireRingNeeds};
  set.poison_pages = false;
  set.on_step_end = [this] {
    std::lock_guard lock(mutex_);
    ++ended_;
    changed_.notify_all();
  };
  set.clock = &clock_;
  return set;
}

// Takes the memory of the ranks, forms the first ring, and says so.
absl::Status WorkerRanks::TakeRanks(const RankSetOptions& set) {
  if (options_.check_memory != nullptr) ANNULUS_RETURN_IF_ERROR(options_.check_memory(set));
  ANNULUS_ASSIGN_OR_RETURN(set_, RankSet::Create(model_, backend_, set));
  wire::FromWorker message;
  wire::Ready& ready = *message.mutable_ready();
  for (const RankFacts& facts : set_->facts()) *ready.add_ranks() = ToMessage(facts);
  ready.set_visiting_pages(set_->visiting_pages());
  // All ranks of the ring have as many pages: the coordinator sees to that.
  CodecLimits limits =
      CodecLimitsOf(model_, std::vector<int32_t>(set.span.all, set_->facts()[0].pages));
  steps_.emplace(*set_, std::move(limits), [this](const auto& said) { Say(said); });
  steps_->BeginEpoch(epoch_);
  std::unique_ptr<WorkerShelves> shelves;
  if (shelf_slots_ > 0) {
    ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<LocalShelves> local,
                             ShelvesOf(*set_, set.span, shelf_slots_));
    shelves =
        std::make_unique<WorkerShelves>(std::move(local), [this](const auto& said) { Say(said); });
  }
  {
    std::lock_guard lock(mutex_);
    aborted_by_link_ = beating_ = set_.get();
    shelves_ = std::move(shelves);
  }
  Say(message);
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<RingGroup>> WorkerRanks::OpenWires(const RankSpan& span,
                                                                  uint64_t first_epoch) {
  WireRingSetup setup;
  setup.ranks = span.all;
  setup.local.resize(span.local);
  std::iota(setup.local.begin(), setup.local.end(), span.first);
  setup.open = options_.open_carrier;
  setup.exchange = [this, size = span.all](uint64_t epoch, std::vector<std::string> own) {
    return Form(epoch, std::move(own), size);
  };
  setup.first_epoch = first_epoch;
  const std::vector<int> local = setup.local;
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<WireRing> ring,
                           WireRing::Create(std::move(setup), clock_));
  probe_ = std::make_unique<LinkProbe>(*ring, local);
  return ring;
}

absl::StatusOr<std::vector<std::string>> WorkerRanks::Form(uint64_t epoch,
                                                           std::vector<std::string> own,
                                                           int ring_size) {
  wire::FromWorker message;
  message.mutable_wire_ready()->set_epoch(epoch);
  for (const std::string& address : own) message.mutable_wire_ready()->add_addresses(address);
  {
    std::lock_guard lock(mutex_);
    ended_ = 0;
  }
  Say(message);
  ANNULUS_ASSIGN_OR_RETURN(const wire::ToWorker formed, NextWord());
  const wire::Form& form = formed.form();
  if (!formed.has_form() || form.epoch() != epoch || form.addresses_size() != ring_size) {
    return NotDue("another message than the Form of this ring");
  }
  Show([epoch](WorkerStatus& status) { status.epoch = epoch; });
  std::vector<std::string> addresses(form.addresses().begin(), form.addresses().end());
  hosted_ = RanksWithAddresses(addresses);
  std::lock_guard lock(mutex_);
  epoch_ = epoch;
  return addresses;
}

absl::Status WorkerRanks::RunSteps() {
  while (true) {
    if (AwaitWork()) {
      ANNULUS_RETURN_IF_ERROR(SayResults());
      continue;
    }
    const absl::StatusOr<wire::ToWorker> message = Next(clock_.Now());
    if (absl::IsDeadlineExceeded(message.status())) continue;
    ANNULUS_RETURN_IF_ERROR(message.status());
    ANNULUS_RETURN_IF_ERROR(Handle(*message));
  }
}

// Waits for something to do; returns whether that is to take the results of a step: it has ended,
// or no rank makes progress any more.
bool WorkerRanks::AwaitWork() {
  std::unique_lock lock(mutex_);
  const bool runs = steps_->runs();
  const SteadyTime deadline =
      runs ? set_->last_progress() + exchange_timeout_ : clock_.Now() + kLookAround;
  WorkerBoard* const board = runs ? nullptr : options_.board;
  if (board != nullptr) board->Wait();
  const bool woken = clock_.WaitUntil(deadline, lock, changed_, [&] {
    return over_.has_value() || !unread_.empty() || (runs && ended_ > steps_->taken());
  });
  if (board != nullptr) board->GoOn();
  if (over_.has_value()) return false;
  return runs && (ended_ > steps_->taken() || !woken);
}

absl::Status WorkerRanks::Handle(const wire::ToWorker& message) {
  if (message.has_run() && message.run().epoch() == epoch_) return steps_->Start(message.run());
  if (message.has_abort() && message.abort().epoch() == epoch_) return BeginAnew();
  if (message.has_probe() && message.probe().epoch() == epoch_ && !steps_->runs()) {
    return TimeLinks(message.probe());
  }
  return NotDue("a message that is not due in this epoch");
}

// A probe that fails ends the epoch, as a step does.
absl::Status WorkerRanks::TimeLinks(const wire::Probe& probe) {
  if (steps_->has_failed()) return absl::OkStatus();  // its epoch ends
  if (hosted_.size() < 2) return NotDue("a probe of a ring of one");
  const absl::StatusOr<double> seconds =
      probe_->Time(hosted_, probe.bytes(), clock_.Now() + exchange_timeout_);
  wire::FromWorker message;
  wire::Probed& said = *message.mutable_probed();
  said.set_epoch(epoch_);
  if (seconds.ok()) {
    said.set_seconds(*seconds);
  } else {
    *said.mutable_status() = codec::ToMessage(seconds.status());
    steps_->Fail();
  }
  Say(message);
  return probe_->stuck();
}

absl::Status WorkerRanks::SayResults() {
  Show([](WorkerStatus& status) { ++status.steps; });
  return steps_->SayResults();
}

// The coordinator has aborted the epoch.
absl::Status WorkerRanks::BeginAnew() {
  {
    std::lock_guard lock(mutex_);
    aborted_by_link_ = nullptr;
  }
  if (const absl::Status anew = set_->Reset(); !anew.ok()) {
    wire::FromWorker message;
    message.mutable_wire_ready()->set_epoch(epoch_ + 1);
    *message.mutable_wire_ready()->mutable_status() = codec::ToMessage(anew);
    Say(message);
    return anew;
  }
  steps_->BeginEpoch(epoch_);
  std::lock_guard lock(mutex_);
  aborted_by_link_ = set_.get();
  return absl::OkStatus();
}

// ---- on a thread of its own

// Call with mutex_ locked.
void WorkerRanks::ShowMemory() const {
  std::vector<HostedRank> ranks;
  for (int index = 0; beating_ != nullptr && index < options_.ranks; ++index) {
    const BufferPoolStats memory = beating_->Statistics(index).memory;
    HostedRank& rank = ranks.emplace_back();
    rank.rank = first_rank_ + index;
    for (size_t kind = 0; kind < kLifetimeCount; ++kind) {
      const size_t held = memory.held_by_lifetime[kind];
      if (held == 0) continue;
      const absl::string_view purpose = LifetimeName(static_cast<Lifetime>(kind));
      rank.memory_bytes[std::string(purpose)] = static_cast<int64_t>(held);
    }
    if (shelves_ != nullptr) rank.memory_bytes["kv_host"] = shelves_->resident_bytes(rank.rank);
  }
  Show([&ranks](WorkerStatus& status) { status.ranks = std::move(ranks); });
}

void WorkerRanks::SendBeats() {
  std::unique_lock lock(mutex_);
  SteadyTime due = clock_.Now();
  bool spared = false;
  while (!stop_beats_) {
    const SteadyTime now = clock_.Now();
    const std::chrono::milliseconds period = BeatPeriodOf(silence_.value_or(kMostSilence));
    // If this process stood still, what the coordinator said meanwhile is yet to be read.
    spared = !spared && now - due > period;
    if (!spared && silence_.has_value() && heard_ + CoordinatorSilenceOf(*silence_) <= now) {
      End(absl::UnavailableError(absl::StrCat("the coordinator has said nothing for ",
                                              TimeText(CoordinatorSilenceOf(*silence_)))));
    }
    wire::FromWorker message;
    wire::Beat& beat = *message.mutable_beat();
    const RankSet::Work work = beating_ == nullptr ? RankSet::Work() : beating_->work();
    beat.set_advances(work.advances);
    beat.set_running(work.running);
    beat.set_waiting(work.waiting);
    TryTo([&] {
      for (int rank = 0; beating_ != nullptr && rank < options_.ranks; ++rank) {
        *beat.add_ranks() = ToMessage(beating_->Statistics(rank));
      }
      Say(message);
      ShowMemory();
    });
    due = now + period;
    clock_.WaitUntil(due, lock, changed_, [this] { return stop_beats_; });
  }
}

}  // namespace

absl::Status ServeRanks(const RankModel& model, Backend& backend, const WorkerRanksOptions& options,
                        WorkerLink& link) {
  return WorkerRanks(model, backend, options, link).Serve();
}

}  // namespace annulus
