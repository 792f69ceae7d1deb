#include "engine/workers/remote_ranks.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/base/field_error.h"
#include "engine/base/try_to.h"
#include "engine/codec/step_codec.h"
#include "engine/ring/wire/wire_ring.h"
#include "engine/runner/between_ranks.h"
#include "engine/workers/worker_shelves.h"
#include "kernels/base/check.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// What workers get after their own limits to say why a step does not end.
constexpr std::chrono::milliseconds kGrace{1'000};

// Between attempts to form a ring that fail for another reason than a worker.
constexpr std::chrono::milliseconds kRestBetweenAttempts{1'000};

// How often in a row timing links may fail before the ring does without.
constexpr int kMostFailedTimings = 2;

// How often longer than a step may be silent one of its layers may take on average, so that whoever
// counts on and never ends it is lost some day. Nothing tighter is known of a step as a whole:
// other steps tell little of one over a longer context, and a worker that counts slowly looks like
// a slow machine, or one that reads its experts from a disk.
constexpr int kMostSilencesOfALayer = 10;

// What all workers are told.
wire::Assign AssignOf(const RemoteRanksOptions& options) {
  wire::Assign assign;
  assign.set_rows_per_rank(options.set.rows_per_rank);
  assign.set_suspended_rows(options.set.suspended_rows);
  assign.set_max_running(options.set.engine.max_running);
  assign.set_kv_bytes_per_rank(options.kv_bytes_per_rank);
  assign.set_exchange_timeout_ms(options.set.engine.exchange_timeout.count());
  assign.set_shelf_slots(options.shelf_slots);
  return assign;
}

RingCrewOptions CrewOptionsOf(const RemoteRanksOptions& options, int layers) {
  RingCrewOptions crew;
  crew.first_rank = options.set.span.local;
  crew.ranks = options.set.span.all;
  crew.agreement = options.agreement;
  crew.assign = AssignOf(options);
  crew.silence = options.silence;
  // What a beat says is that old at most.
  crew.step_silence = options.set.engine.exchange_timeout + options.silence;
  crew.step_limit = (layers + 1) * kMostSilencesOfALayer * crew.step_silence;
  crew.hello_timeout = options.hello_timeout;
  crew.forming_timeout = options.forming_timeout;
  crew.replacement_timeout = options.replacement_timeout;
  crew.patience = 2 * options.set.engine.exchange_timeout + kGrace;
  crew.on_loss = options.on_loss;
  crew.clock = options.set.clock;
  return crew;
}

}  // namespace

RemoteRanks::RemoteRanks(const RankModel& model, WorkerSource& source,
                         const RemoteRanksOptions& options)
    : model_(model),
      options_(options),
      no_memory_(NoMemoryError()),
      crew_(std::make_unique<RingCrew>(CrewOptionsOf(options, model.layers()), source)) {}

absl::StatusOr<std::unique_ptr<RemoteRanks>> RemoteRanks::Create(
    const RankModel& model, Backend& backend, WorkerSource& source,
    const RemoteRanksOptions& options) {
  const RankSpan& span = options.set.span;
  ANNULUS_CHECK(span.first == 0 && 0 <= span.local && span.local < span.all) << "no rank is left";
  if (!backend.capabilities().host_accessible) {
    return absl::FailedPreconditionError(
        "wires between processes carry what is in the host's memory: workers and their coordinator "
        "run on CPUs");
  }
  std::unique_ptr<RemoteRanks> ranks(new RemoteRanks(model, source, options));
  absl::Status opened = ranks->crew_->Gather();
  if (opened.ok()) opened = ranks->Open(backend);
  // Where a worker is unfit, the ring does not form: that is the cause.
  if (const absl::Status why = ranks->crew_->hopeless(); !opened.ok() && !why.ok()) opened = why;
  if (!opened.ok()) {
    // Whoever is at fault was told so; the others may join the next attempt.
    ranks->crew_->Close(absl::UnavailableError(opened.message()));
    return opened;
  }
  ranks->crew_->BeginAborts();
  const absl::Status timed = ranks->TimeLinks();
  ranks->mender_ = std::thread([ring = ranks.get()] { ring->Mend(); });
  if (!timed.ok()) ranks->BeginMending(timed);  // as after any loss of a ring that was founded
  return ranks;
}

RemoteRanks::~RemoteRanks() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  crew_->Stop();
  if (mender_.joinable()) mender_.join();
  crew_->EndAborts();
  if (local_ != nullptr) local_->Abort(absl::CancelledError("the ring ends"));
  crew_.reset();  // it calls local_
  if (probe_ != nullptr) probe_->Join();
}

// Forms the ring, and has all ranks take their memory.
absl::Status RemoteRanks::Open(Backend& backend) {
  if (options_.set.span.local == 0) {
    ANNULUS_RETURN_IF_ERROR(crew_->Form(1, {}).status());
  } else {
    RankSetOptions set = options_.set;
    set.ring = WiderRing{[this] { return OpenWires(); }, kWireRingNeeds};
    ANNULUS_ASSIGN_OR_RETURN(local_, RankSet::Create(model_, backend, set));
    crew_->Join(*local_);
    facts_ = local_->facts();
  }
  absl::Status ready = AwaitFacts();
  // Form waits for somebody in place of a worker that is lost before it; one that is lost later
  // breaks the epoch.
  while (!ready.ok() && !crew_->lost().ok() && crew_->hopeless().ok()) {
    const uint64_t broken = crew_->epoch();
    crew_->Abort(ready);
    ready = FormAnew();
    if (crew_->epoch() == broken) break;  // for another reason than a loss
  }
  return ready.ok() ? OpenShelves() : ready;
}

absl::Status RemoteRanks::OpenShelves() {
  if (options_.shelf_slots == 0) return absl::OkStatus();
  const RankSpan& span = options_.set.span;
  std::unique_ptr<LocalShelves> here;
  if (local_ != nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(here, ShelvesOf(*local_, span, options_.shelf_slots));
  }
  shelves_ = std::make_unique<RingShelves>(*crew_, std::move(here), span.local);
  return absl::OkStatus();
}

// Waits until the workers have their memory. A rank checks the pages of plans against its own
// number of them, so all must have as many: those of the first ring say how many.
absl::Status RemoteRanks::AwaitFacts() {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::optional<RankFacts>> others, crew_->AwaitReady());
  const bool first = facts_.size() < static_cast<size_t>(options_.set.span.all);
  if (first) {
    for (const std::optional<RankFacts>& rank : others) facts_.push_back(rank.value());
    visiting_pages_ = crew_->visiting_pages();
    if (local_ != nullptr) visiting_pages_ = std::min(visiting_pages_, local_->visiting_pages());
  }
  for (size_t i = 0; i < others.size(); ++i) {
    const RankFacts& one = facts_[0];
    const int rank = options_.set.span.local + static_cast<int>(i);
    if (!others[i].has_value()) continue;
    if (one.pages == others[i]->pages && one.page_bytes == others[i]->page_bytes) continue;
    return crew_->Lose(
        rank, absl::InternalError(absl::StrCat("rank 0 has ", one.pages, " pages of ",
                                               one.page_bytes, " bytes, rank ", rank, " has ",
                                               others[i]->pages, " of ", others[i]->page_bytes)));
  }
  hosted_.clear();
  for (int rank = 0; rank < options_.set.span.all; ++rank) {
    if (is_hosted(rank)) hosted_.push_back(rank);
  }
  return crew_->Found();
}

absl::StatusOr<std::unique_ptr<RingGroup>> RemoteRanks::OpenWires() {
  WireRingSetup setup;
  setup.ranks = options_.set.span.all;
  setup.local.resize(options_.set.span.local);
  std::iota(setup.local.begin(), setup.local.end(), 0);
  setup.open = options_.open_carrier;
  setup.exchange = [this](uint64_t epoch, std::vector<std::string> own) {
    return crew_->Form(epoch, std::move(own));
  };
  const std::vector<int> local = setup.local;
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<WireRing> ring,
                           WireRing::Create(std::move(setup), *options_.set.clock));
  probe_ = std::make_unique<LinkProbe>(*ring, local);
  return ring;
}

absl::Status RemoteRanks::Start(std::shared_ptr<const StepPlan> plan) {
  if (started_ == 0 && state() != RanksState::kUp) return Trouble();
  ANNULUS_CHECK(started_ < 2) << "two steps are under way";
  const absl::StatusOr<std::string> bytes = EncodePlan(*plan, CodecLimitsOf(model_, page_counts()));
  if (!bytes.ok()) {
    if (started_ == 0) BeginMending(bytes.status());  // the ranks forget all sequences
    return bytes.status();
  }
  Step& step = steps_[started_++];
  step.plan = plan;
  step.pause = started_ == 1 ? SecondsBetween(ended_, options_.set.clock->Now()) : 0;
  crew_->Run(*bytes);
  return local_ == nullptr ? absl::OkStatus() : local_->Start(std::move(plan));
}

absl::StatusOr<std::vector<RankResult>> RemoteRanks::Results() {
  ANNULUS_CHECK(started_ > 0) << "no step was started";
  const Step step = std::exchange(steps_[0], std::exchange(steps_[1], Step()));
  --started_;
  pause_ = step.pause;
  absl::StatusOr<std::vector<RankResult>> results = TakeResults(*step.plan);
  ended_ = options_.set.clock->Now();
  if (results.ok()) return results;
  absl::Status failure = CauseOf(results.status());
  if (MayBeOfWire(failure)) failure = BetweenRanks(std::move(failure));
  BeginMending(failure);
  return failure;
}

// Why what the ranks did together has failed; counts what failed between them. The wires of a
// worker that is lost may end before its link does: nobody else is to blame then, and what it had
// is known to be lost.
absl::Status RemoteRanks::CauseOf(absl::Status failure) {
  if (absl::IsUnavailable(failure)) {
    if (absl::Status lost = crew_->AwaitLoss(); !lost.ok()) return lost;
  }
  if (options_.on_loss != nullptr && MayBeOfWire(failure)) options_.on_loss(RingLoss::kWire);
  return failure;
}

// No rank's own work fails so. That of a worker was told by the crew.
bool RemoteRanks::MayBeOfWire(const absl::Status& failure) const {
  return crew_->lost().ok() && (absl::IsUnavailable(failure) || absl::IsDataLoss(failure) ||
                                absl::IsDeadlineExceeded(failure));
}

absl::StatusOr<std::vector<RankResult>> RemoteRanks::TakeResults(const StepPlan& plan) {
  std::vector<RankResult> results;
  if (local_ != nullptr) {
    absl::StatusOr<std::vector<RankResult>> own = local_->Results();
    if (!own.ok()) {
      // If ranks elsewhere failed, those here were aborted.
      const absl::Status broken = crew_->broken();
      return broken.ok() ? own.status() : broken;
    }
    results = *std::move(own);
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::optional<std::string>> others,
                           crew_->AwaitResults());
  const CodecLimits limits = CodecLimitsOf(model_, page_counts());
  for (const std::optional<std::string>& bytes : others) {
    if (!bytes.has_value()) {
      results.emplace_back();
      continue;
    }
    absl::StatusOr<RankResult> result = DecodeResult(*bytes, plan, limits);
    if (!result.ok()) return crew_->Lose(static_cast<int>(results.size()), result.status());
    ANNULUS_RETURN_IF_ERROR(result->status);
    results.push_back(*std::move(result));
  }
  return results;
}

std::vector<int32_t> RemoteRanks::TakeLost() {
  ANNULUS_CHECK(started_ == 0) << "a step is under way";
  std::vector<int32_t> lost = crew_->TakeLost();
  // A worker may be lost, or a step have failed, since the ring was mended.
  if (!is_mending() && !crew_->is_up()) BeginMending(Trouble());
  return lost;
}

RanksState RemoteRanks::state() const {
  {
    std::lock_guard lock(mutex_);
    if (!abandoned_.ok()) return RanksState::kLost;
  }
  if (started_ > 0 || (!is_mending() && crew_->is_up())) return RanksState::kUp;
  const std::optional<SteadyTime> since = crew_->vacant_since();
  const bool waits = !since.has_value() || crew_->can_shrink() ||
                     options_.set.clock->Now() < *since + options_.replacement_timeout;
  return waits ? RanksState::kMending : RanksState::kFailed;
}

// Why state() is not kUp.
absl::Status RemoteRanks::Trouble() const {
  if (absl::Status lost = crew_->lost(); !lost.ok()) return lost;
  std::lock_guard lock(mutex_);
  if (!abandoned_.ok()) return abandoned_;
  return broke_.ok() ? absl::UnavailableError("the ring forms anew") : broke_;
}

// ---- the ring forms anew

bool RemoteRanks::is_mending() const {
  std::lock_guard lock(mutex_);
  return mending_;
}

// Drops all steps, and has the ring form anew.
void RemoteRanks::BeginMending(const absl::Status& why) {
  crew_->EndAborts();
  TryTo([&] { crew_->Abort(why); });  // otherwise TryForming does
  steps_ = {};
  started_ = 0;
  std::lock_guard lock(mutex_);
  if (!abandoned_.ok()) return;
  broke_ = why;
  if (IsStuck()) {
    abandoned_ = why;
    return;
  }
  mending_ = true;
  changed_.notify_all();
}

void RemoteRanks::Mend() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return mending_ || stop_; });
    if (stop_) return;
    const absl::Status broke = broke_;
    const bool served = std::exchange(served_, false);
    lock.unlock();
    // Other links. A loss by timing them is none of a ring that served: it would come again and
    // again.
    if (served && !crew_->lost().ok()) failed_timings_ = 0;
    const uint64_t before = crew_->epoch();
    const absl::Status formed =
        Guarded([&] { return TryForming(broke); }, [this] { return no_memory_; });
    const bool stuck = IsStuck();
    if (!formed.ok()) crew_->EndAborts();
    if (!formed.ok() && !stuck) {
      TryTo([&] { crew_->Abort(formed); });  // otherwise the next attempt does
      // A loss in this epoch has its own cause of delay: nobody is there until somebody dials.
      const bool has_new_loss = crew_->epoch() != before && !crew_->lost().ok();
      if (!has_new_loss) crew_->Pause(kRestBetweenAttempts);
    }
    lock.lock();
    if (stuck) abandoned_ = formed;
    if (formed.ok() || stuck) mending_ = false;
  }
}

// A rank here has not ended a step, or its wire hangs in a probe: the ring cannot be reset.
bool RemoteRanks::IsStuck() const {
  if (local_ == nullptr) return false;
  return local_->state() == RanksState::kLost || !probe_->stuck().ok();
}

// Every attempt sees to it that the workers are told that the last epoch is over.
absl::Status RemoteRanks::TryForming(const absl::Status& broke) {
  crew_->Abort(broke);
  ANNULUS_RETURN_IF_ERROR(FormAnew());
  crew_->BeginAborts();
  return TimeLinks();
}

// Waits for hosts of all ranks, for as long as it takes.
absl::Status RemoteRanks::FormAnew() {
  if (local_ != nullptr) {
    ANNULUS_RETURN_IF_ERROR(local_->Reset());
  } else {
    ANNULUS_RETURN_IF_ERROR(crew_->Form(crew_->epoch() + 1, {}).status());
  }
  return AwaitFacts();
}

// ---- links

// Links that cannot be timed do not keep the ring from serving: what steps meet there has its own
// bounds, and requests end by them.
absl::Status RemoteRanks::TimeLinks() {
  std::optional<LinkRates> links;
  const bool has_links = hosted_.size() > 1;
  if (options_.time_links && has_links && failed_timings_ < kMostFailedTimings) {
    const auto measure = [&]() -> absl::Status {
      ANNULUS_ASSIGN_OR_RETURN(links, MeasureLinks());
      return absl::OkStatus();
    };
    const absl::Status measured = Guarded(measure, [this] { return no_memory_; });
    if (!measured.ok()) {
      ++failed_timings_;
      return CauseOf(measured);
    }
    failed_timings_ = 0;
  }
  std::lock_guard lock(mutex_);
  links_ = links;
  served_ = true;
  return absl::OkStatus();
}

// Messages grow until a pass takes long compared with the delay of a thread that wakes late.
absl::StatusOr<LinkRates> RemoteRanks::MeasureLinks() {
  constexpr double kEnoughSeconds = 10e-3;
  constexpr size_t kSmallBytes = 64;
  constexpr size_t kFirstBytes = size_t{64} << 10;
  constexpr size_t kGrowth = 8;
  const double messages = static_cast<double>(hosted_.size()) - 1;  // of a pass
  ANNULUS_ASSIGN_OR_RETURN(const double small, TimePass(kSmallBytes));
  size_t bytes = kFirstBytes;
  ANNULUS_ASSIGN_OR_RETURN(double large, TimePass(bytes));
  while (large < kEnoughSeconds && bytes * kGrowth <= LinkProbe::kMostBytes) {
    bytes *= kGrowth;
    ANNULUS_ASSIGN_OR_RETURN(large, TimePass(bytes));
  }
  // A large message takes no less than a small one, but for noise; no clock is finer than 1 ns.
  const double moving = std::max({large - small, large / 4, 1e-9});
  return LinkRates{small / messages, messages * static_cast<double>(bytes) / moving};
}

// Of the slowest rank of the ring.
absl::StatusOr<double> RemoteRanks::TimePass(size_t bytes) {
  const SteadyTime deadline = options_.set.clock->Now() + options_.set.engine.exchange_timeout;
  crew_->BeginProbe(bytes);
  absl::StatusOr<double> here = 0.0;
  if (probe_ != nullptr) here = probe_->Time(hosted_, bytes, deadline);
  if (!here.ok()) {
    if (probe_ != nullptr) ANNULUS_RETURN_IF_ERROR(probe_->stuck());
    // If ranks elsewhere failed, those here were aborted.
    const absl::Status broken = crew_->broken();
    return broken.ok() ? here.status() : broken;
  }
  ANNULUS_ASSIGN_OR_RETURN(const double there, crew_->AwaitProbe());
  return std::max(*here, there);
}

std::optional<LinkRates> RemoteRanks::links() const {
  std::lock_guard lock(mutex_);
  return links_;
}

SteadyTime RemoteRanks::last_progress() const { return crew_->last_progress(); }

RankStatistics RemoteRanks::Statistics(int rank) const {
  return is_here(rank) ? local_->Statistics(rank) : crew_->Statistics(rank);
}

std::string RemoteRanks::transport() const {
  const int processes = crew_->workers() + (local_ == nullptr ? 0 : 1);
  std::string text =
      absl::StrCat("wires between ", processes, processes == 1 ? " process" : " processes");
  const std::vector<std::string> spares = crew_->spares();
  if (!spares.empty()) absl::StrAppend(&text, "; spare workers: ", absl::StrJoin(spares, ", "));
  return text;
}

int64_t RemoteRanks::PagesSummarised(const SummaryKinds& kinds) const {
  return annulus::PagesSummarised(kinds, model_.page_shape,
                                  model_.ops->kv_page_bytes(model_.page_shape));
}

PatternCache& RemoteRanks::patterns() { return local_ == nullptr ? patterns_ : local_->patterns(); }

PageBook::Hooks RemoteRanks::page_hooks() {
  if (local_ == nullptr) return {};
  PageBook::Hooks hooks = local_->page_hooks();
  const auto of_here = [this](std::function<void(const PageBook::Event&)> hook) {
    if (hook == nullptr) return hook;
    return std::function<void(const PageBook::Event&)>(
        [this, hook = std::move(hook)](const PageBook::Event& page) {
          if (is_here(page.id.rank)) hook(page);
        });
  };
  return {.on_take = of_here(std::move(hooks.on_take)),
          .on_free = of_here(std::move(hooks.on_free))};
}

const KvPool* RemoteRanks::local_pages(int rank) const {
  return is_here(rank) ? local_->local_pages(rank) : nullptr;
}

}  // namespace annulus
