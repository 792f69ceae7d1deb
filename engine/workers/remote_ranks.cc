#include "engine/workers/remote_ranks.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/codec/step_codec.h"
#include "engine/ring/wire/wire_ring.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// What workers get after their own limits to say why a step does not end.
constexpr std::chrono::milliseconds kGrace{1'000};

RingCrewOptions CrewOptionsOf(const RemoteRanksOptions& options) {
  RingCrewOptions crew;
  crew.first_rank = options.set.span.local;
  crew.ranks = options.set.span.all;
  crew.agreement = options.agreement;
  crew.silence = options.silence;
  crew.hello_timeout = options.hello_timeout;
  crew.forming_timeout = options.forming_timeout;
  crew.patience = 2 * options.set.engine.exchange_timeout + kGrace;
  crew.clock = options.set.clock;
  return crew;
}

// What all workers are told.
wire::Assign AssignOf(const RemoteRanksOptions& options) {
  wire::Assign assign;
  assign.set_rows_per_rank(options.set.rows_per_rank);
  assign.set_suspended_rows(options.set.suspended_rows);
  assign.set_max_running(options.set.engine.max_running);
  assign.set_kv_bytes_per_rank(options.kv_bytes_per_rank);
  assign.set_exchange_timeout_ms(options.set.engine.exchange_timeout.count());
  return assign;
}

}  // namespace

RemoteRanks::RemoteRanks(const RankModel& model, const RemoteRanksOptions& options)
    : model_(model), options_(options), crew_(std::make_unique<RingCrew>(CrewOptionsOf(options))) {}

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
  std::unique_ptr<RemoteRanks> ranks(new RemoteRanks(model, options));
  absl::Status opened = ranks->crew_->Gather(source);
  if (opened.ok()) opened = ranks->Open(backend);
  // Where a worker is lost, the ring does not form: that is the cause.
  if (const absl::Status lost = ranks->crew_->lost(); !lost.ok()) opened = lost;
  if (!opened.ok()) {
    // Whoever is at fault was told so; the others may join the next attempt.
    ranks->crew_->Close(absl::UnavailableError(opened.message()));
    return opened;
  }
  ranks->crew_->BeginAborts();
  return ranks;
}

RemoteRanks::~RemoteRanks() {
  crew_->EndAborts();
  if (local_ != nullptr) local_->Abort(absl::CancelledError("the ring ends"));
}

// Forms the ring, and has all ranks take their memory.
absl::Status RemoteRanks::Open(Backend& backend) {
  crew_->Assign(AssignOf(options_));
  if (options_.set.span.local == 0) {
    ANNULUS_RETURN_IF_ERROR(crew_->Form(epoch_, {}).status());
  } else {
    RankSetOptions set = options_.set;
    set.ring = WiderRing{[this] { return OpenWires(); }, kWireRingNeeds};
    ANNULUS_ASSIGN_OR_RETURN(local_, RankSet::Create(model_, backend, set));
    crew_->Join(*local_);
    facts_ = local_->facts();
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<RankFacts> others, crew_->AwaitReady());
  facts_.insert(facts_.end(), others.begin(), others.end());
  visiting_pages_ = crew_->visiting_pages();
  if (local_ != nullptr) visiting_pages_ = std::min(visiting_pages_, local_->visiting_pages());
  return CheckEqualPages();
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
  return WireRing::Create(std::move(setup), *options_.set.clock);
}

// A rank checks the pages of plans against its own number of them.
absl::Status RemoteRanks::CheckEqualPages() const {
  for (int rank = 1; rank < size(); ++rank) {
    const RankFacts& one = facts_[0];
    const RankFacts& other = facts_[rank];
    if (one.pages == other.pages && one.page_bytes == other.page_bytes) continue;
    return absl::InternalError(absl::StrCat("rank 0 has ", one.pages, " pages of ", one.page_bytes,
                                            " bytes, rank ", rank, " has ", other.pages, " of ",
                                            other.page_bytes));
  }
  return absl::OkStatus();
}

absl::Status RemoteRanks::Start(std::shared_ptr<const StepPlan> plan) {
  if (started_ == 0 && lost_.ok()) lost_ = crew_->lost();
  if (!lost_.ok()) return lost_;
  ANNULUS_CHECK(started_ < 2) << "two steps are under way";
  const absl::StatusOr<std::string> bytes = EncodePlan(*plan, CodecLimitsOf(model_, page_counts()));
  if (!bytes.ok()) return started_ == 0 ? BeginAnew(bytes.status()) : bytes.status();
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
  return BeginAnew(results.status());
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
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<std::string> others, crew_->AwaitResults());
  const CodecLimits limits = CodecLimitsOf(model_, page_counts());
  for (const std::string& bytes : others) {
    absl::StatusOr<RankResult> result = DecodeResult(bytes, plan, limits);
    if (!result.ok()) return crew_->Lose(static_cast<int>(results.size()), result.status());
    ANNULUS_RETURN_IF_ERROR(result->status);
    results.push_back(*std::move(result));
  }
  return results;
}

// Drops all steps and forms the ring anew. Returns why: `failure`, unless nothing can run any more.
absl::Status RemoteRanks::BeginAnew(const absl::Status& failure) {
  crew_->EndAborts();
  crew_->Abort(failure);
  steps_ = {};
  started_ = 0;
  const absl::Status formed =
      local_ != nullptr ? local_->Reset() : crew_->Form(++epoch_, {}).status();
  if (!formed.ok()) {
    lost_ = crew_->lost();
    if (lost_.ok()) lost_ = formed;
    return lost_;
  }
  crew_->BeginAborts();
  return failure;
}

std::vector<int32_t> RemoteRanks::lost() const { return crew_->lost_ranks(); }

RanksState RemoteRanks::state() const {
  if (lost_.ok() && (started_ > 0 || crew_->lost().ok())) return RanksState::kUp;
  const bool silent = local_ != nullptr && local_->state() == RanksState::kLost;
  return silent ? RanksState::kLost : RanksState::kFailed;
}

SteadyTime RemoteRanks::last_progress() const { return crew_->last_progress(); }

RankStatistics RemoteRanks::Statistics(int rank) const {
  return is_here(rank) ? local_->Statistics(rank) : crew_->Statistics(rank);
}

std::string RemoteRanks::transport() const {
  const int processes = crew_->workers() + (local_ == nullptr ? 0 : 1);
  return absl::StrCat("wires between ", processes, processes == 1 ? " process" : " processes");
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
