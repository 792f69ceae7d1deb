#include "engine/runner/rank_set.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "engine/model/experts/expert_cache.h"
#include "engine/runner/step/step_buffers.h"
#include "engine/runner/work_shape.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {

namespace {

// Both slots for pages together take at most so much of the memory for keys and values.
constexpr size_t kSlotShare = 8;

// What ranks get after the longest silence to say whom they waited for.
constexpr std::chrono::milliseconds kGrace{500};

// Longest wait for ranks to find each other: beyond it something is wrong that time does not mend.
constexpr std::chrono::milliseconds kOpening{60'000};

RingSlotPlan SlotPlan(const RankModel& model, const RankSetOptions& options) {
  const KvGeometry geometry = GeometryOf(model);
  const size_t kv_bytes = options.engine.kv_memory_bytes / options.span.local;
  RingSlotPlan plan;
  plan.ranks = options.span.all;
  plan.rows = options.rows_per_rank;
  plan.states = MostStates(options.span.all, ShardsOf(*model.ops, options.span.all)).states;
  size_t stride = 0;  // of the largest layer
  for (const CacheGroup& group : model.groups) {
    plan.shapes.push_back(RingShapeOf(model, model.attention(group.layers.front())));
    stride = std::max(stride, AlignUp(plan.shapes.back().layer_page_bytes));
  }
  // A peer has no more pages than these.
  const size_t all = kv_bytes / geometry.page_bytes();
  const size_t share = kv_bytes / kSlotShare / 2 / stride;
  plan.pages = static_cast<int64_t>(std::max<size_t>(1, std::min(all, share)));
  return plan;
}

// What layers of different shapes do not go with so far.
absl::Status CheckShapes(const ModelConfig& config, const EngineOptions& options,
                         const BackendCapabilities& device) {
  if (HasOneShape(config)) return absl::OkStatus();
  constexpr char kDiffer[] = "the layers of this model differ in the shape of their attention";
  for (const LayerConfig& layer : config.layers) {
    if (layer.window > 0 || layer.attention == WidestAttention(config)) continue;
    return absl::UnimplementedError(absl::StrCat(
        kDiffer, ", even those without a window; supported: one shape for all of these"));
  }
  if (!device.host_accessible) {
    return absl::FailedPreconditionError(
        absl::StrCat(kDiffer, ", which kernels of ", device.name, " do not run; use --device cpu"));
  }
  // What a group leaves empty of a page is not always the same, and stores compare pages.
  if (options.kv_host_bytes == 0 && options.kv_disk.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kDiffer, ", and such pages cannot be stored; leave ",
                   options.kv_host_bytes > 0 ? "kv-host" : "kv-disk", " out"));
}

}  // namespace

CodecLimits CodecLimitsOf(const RankModel& model, std::vector<int32_t> pages) {
  return {.pages = std::move(pages),
          .groups = static_cast<int>(model.groups.size()),
          .model = model.assignment_limits(),
          .vocabulary = model.config.vocabulary};
}

KvGeometry GeometryOf(const RankModel& model) {
  KvGeometry geometry;
  geometry.shape = model.page_shape;
  if (HasOneShape(model.config)) {
    geometry.layers_per_page = static_cast<int>(model.groups[0].layers.size());
    geometry.layer_page_bytes = model.ops->kv_page_bytes(model.page_shape);
    return geometry;
  }
  // The parts of a page depend on its group, so it counts as one that serves them all.
  geometry.layers_per_page = 1;
  for (const CacheGroup& group : model.groups) {
    const RingShape shape = RingShapeOf(model, model.attention(group.layers.front()));
    geometry.layer_page_bytes =
        std::max(geometry.layer_page_bytes, group.layers.size() * AlignUp(shape.layer_page_bytes));
  }
  return geometry;
}

int DevicesOf(const Backend& backend, int ranks) {
  return std::min(ranks, backend.capabilities().devices);
}

size_t CountSlotBytes(const RankModel& model, const RankSetOptions& options, int devices) {
  const RingNeeds needs = options.ring.has_value()
                              ? options.ring->needs
                              : NeedsOf(options.engine.ring_transport, devices, options.span.all);
  return (needs.copies ? RingSlots::BytesFor(SlotPlan(model, options)) : 0) + needs.send_bytes;
}

absl::StatusOr<std::unique_ptr<RankSet>> RankSet::Create(const RankModel& model, Backend& backend,
                                                         const RankSetOptions& options) {
  ANNULUS_RETURN_IF_ERROR(CheckShapes(model.config, options.engine, backend.capabilities()));
  std::unique_ptr<RankSet> set(new RankSet(model, backend, options));
  set->ResumeExperts();
  const RankSpan& span = options.span;
  ANNULUS_CHECK(span.local == span.all || options.ring.has_value()) << "a part of a ring";
  const auto timeout = std::min(options.engine.exchange_timeout, kOpening);
  ANNULUS_ASSIGN_OR_RETURN(set->ring_, options.ring.has_value()
                                           ? options.ring->open()
                                           : OpenRing(options.engine.ring_transport, backend,
                                                      span.all, timeout, *options.clock));
  if (set->ring_->channel(span.first).copies()) {
    set->visiting_pages_ = SlotPlan(model, options).pages;
  }
  for (int index = 0; index < span.local; ++index) {
    ANNULUS_RETURN_IF_ERROR(set->AddRank(model));
    set->facts_.push_back(set->FactsOf(index));
  }
  return set;
}

RanksState RankSet::state() const {
  if (lost_.ok()) return RanksState::kUp;
  return all_back_ ? RanksState::kFailed : RanksState::kLost;
}

RankFacts RankSet::FactsOf(int rank) const {
  return {.pages = pool(rank).page_count(),
          .page_bytes = static_cast<int64_t>(pool(rank).geometry().page_bytes()),
          .device = device(rank).capabilities().description,
          .node = ranks_[rank]->node};
}

RankStatistics RankSet::Statistics(int rank) const {
  const Rank& of = *ranks_[rank];
  return {of.memory->Stats(), of.stream->workspace_bytes(), of.stream->graph_counts()};
}

PageBook::Hooks RankSet::page_hooks() {
  const bool poisons = std::any_of(ranks_.begin(), ranks_.end(),
                                   [](const auto& rank) { return rank->kv->poisons(); });
  if (!poisons) return {};
  return {.on_take =
              [this](const PageBook::Event& page) {
                KvPool& pool = *ranks_[page.id.rank - options_.span.first]->kv;
                if (pool.poisons()) pool.OnTake(page);
              },
          .on_free =
              [this](const PageBook::Event& page) {
                KvPool& pool = *ranks_[page.id.rank - options_.span.first]->kv;
                if (pool.poisons()) pool.OnFree(page);
              }};
}

Backend& RankSet::device(int rank) const {
  return backend_.OnDevice(rank % backend_.capabilities().devices);
}

int64_t RankSet::PagesSummarised(const SummaryKinds& kinds) const {
  return annulus::PagesSummarised(kinds, model_.page_shape,
                                  model_.ops->kv_page_bytes(model_.page_shape));
}

RankSet::~RankSet() {
  {
    std::lock_guard lock(running_mutex_);
    next_ = nullptr;
  }
  // A thread may still read pages of other ranks, and so may what a failed step has left in its
  // stream: all end before any memory goes. An error leaves nothing to wait for.
  for (const auto& rank : ranks_) rank->thread.reset();
  for (const auto& rank : ranks_) rank->stream->Synchronize().IgnoreError();
  ring_.reset();  // its links and groups use the slots
}

absl::Status RankSet::AddRank(const RankModel& model) {
  const int index = static_cast<int>(ranks_.size());
  auto rank = std::make_unique<Rank>();
  const RankSpan& span = options_.span;
  const EngineOptions& engine = options_.engine;
  const int devices = DevicesOf(backend_, span.local);
  Backend& own = device(index);
  const int nodes = own.capabilities().nodes;
  if (nodes > 1 && span.local >= nodes) rank->node = index * nodes / span.local;
  Backend& backend = rank->node < 0 ? own : own.OnNode(rank->node);
  const size_t kv_bytes = engine.kv_memory_bytes / span.local;
  const StepBytes step =
      CountStepBytes(model, options_.rows_per_rank, span.all, backend.capabilities());
  BufferPool::Options pool;
  RingChannel& channel = ring_->channel(span.first + index);
  const size_t arrivals = channel.copies() ? RingSlots::BytesFor(SlotPlan(model, options_)) : 0;
  const size_t slot_bytes = arrivals + channel.send_bytes();
  const WorkspaceBytes workspace =
      backend.PlanWorkspace(WorkShapeOf(model, options_, backend.capabilities()));
  const size_t suspended = CountSuspendedBytes(model, options_.suspended_rows);
  pool.limit_bytes = AlignUp(kv_bytes) + AlignUp(step.device) + AlignUp(suspended) +
                     AlignUp(slot_bytes) + AlignUp(workspace.total());
  // Some large buffers that live as long as the rank: in chunks of their own size they always fit.
  pool.chunk_bytes = kMemoryAlignment;
  pool.name = absl::StrCat("rank", span.first + index);
  rank->memory = std::make_unique<BufferPool>(backend, std::move(pool));

  ANNULUS_ASSIGN_OR_RETURN(
      rank->kv, KvPool::Create(*rank->memory, GeometryOf(model), kv_bytes, options_.poison_pages));
  ANNULUS_ASSIGN_OR_RETURN(rank->slots, rank->memory->Allocate(slot_bytes, Lifetime::kRingSlots));
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer arena,
                           rank->memory->Allocate(step.device, Lifetime::kStep));
  rank->arena = std::make_unique<StepArena>(std::move(arena), rank->memory->host_accessible());
  if (suspended > 0) {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer kept, rank->memory->Allocate(suspended, Lifetime::kStep));
    rank->suspended = std::make_unique<StepArena>(std::move(kept), rank->memory->host_accessible());
  }
  if (step.host > 0) ANNULUS_RETURN_IF_ERROR(TakeHostArena(backend, step.host, *rank));
  ANNULUS_ASSIGN_OR_RETURN(rank->stream,
                           backend.CreateStream(std::max(1, engine.threads / span.local)));
  if (workspace.total() > 0) {
    ANNULUS_ASSIGN_OR_RETURN(rank->workspace,
                             rank->memory->Allocate(workspace.total(), Lifetime::kWorkspace));
    ANNULUS_RETURN_IF_ERROR(rank->stream->UseWorkspace(rank->workspace.data(), workspace));
  }
  RankParts parts;
  parts.rank = span.first + index;
  parts.device = index % devices;
  parts.model = &model;
  parts.backend = &backend;
  parts.stream = rank->stream.get();
  parts.channel = &channel;
  if (channel.copies()) {
    parts.slots = RingSlots::Cut(rank->slots.data(), SlotPlan(model, options_));
    channel.UseSendArea({rank->slots.data() + arrivals, channel.send_bytes()});
  }
  parts.pool = rank->kv.get();
  parts.arena = rank->arena.get();
  parts.host_arena = rank->host_arena != nullptr ? rank->host_arena.get() : parts.arena;
  parts.suspended = rank->suspended.get();
  parts.patterns = &patterns_;
  parts.heartbeat = &heartbeat_;
  parts.exchange_timeout = engine.exchange_timeout;
  parts.observer = options_.observer;
  parts.graphs = engine.device_graphs;
  rank->thread = std::make_unique<RankThread>(parts, [this](bool ok) { OnEnd(ok); });
  ranks_.push_back(std::move(rank));
  return absl::OkStatus();
}

absl::Status RankSet::TakeHostArena(Backend& backend, size_t bytes, Rank& rank) {
  BufferPool::Options pool;
  pool.limit_bytes = AlignUp(bytes);
  pool.chunk_bytes = kMemoryAlignment;
  pool.host_memory = true;
  pool.name = absl::StrCat(rank.memory->name(), "-host");
  rank.host_memory = std::make_unique<BufferPool>(backend, std::move(pool));
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer arena, rank.host_memory->Allocate(bytes, Lifetime::kStep));
  rank.host_arena =
      std::make_unique<StepArena>(std::move(arena), rank.host_memory->host_accessible());
  return absl::OkStatus();
}

absl::Status RankSet::Start(std::shared_ptr<const StepPlan> plan) {
  if (!lost_.ok()) return lost_;
  ANNULUS_CHECK(started_ < 2) << "two steps are under way";
  Step& step = steps_[started_];
  step.pause = 0;
  step.results.reserve(ranks_.size());  // before they start: nothing may fail while they run
  if (options_.through_bytes) {
    absl::StatusOr<std::shared_ptr<const StepPlan>> copy = ThroughBytes(*plan);
    if (!copy.ok()) {
      for (const auto& rank : ranks_) {
        if (started_ == 0) rank->thread->Reset();
      }
      return copy.status();
    }
    plan = *std::move(copy);
  }
  step.plan = plan;
  ++started_;
  std::lock_guard lock(running_mutex_);
  if (running_ > 0 || failed_) {
    next_ = std::move(plan);
    return absl::OkStatus();
  }
  step.pause = SecondsBetween(ended_, heartbeat_.clock().Now());
  Begin(std::move(plan));
  return absl::OkStatus();
}

// Call with running_mutex_ locked.
void RankSet::Begin(std::shared_ptr<const StepPlan> plan) {
  heartbeat_.Beat();
  running_ = size();
  for (const auto& rank : ranks_) rank->thread->Start(plan);
}

// On a rank's thread. The last one lets the next step begin: no rank may be a step behind another,
// which could still read what it sent.
void RankSet::OnEnd(bool ok) {
  {
    std::lock_guard lock(running_mutex_);
    if (!ok) failed_ = true;
    if (--running_ > 0) return;
    ended_ = heartbeat_.clock().Now();
    if (!failed_ && next_ != nullptr) Begin(std::exchange(next_, nullptr));
  }
  if (options_.on_step_end != nullptr) options_.on_step_end();
}

RankSet::Work RankSet::work() const {
  std::lock_guard lock(running_mutex_);
  // One that waits may have ended since.
  const int waiting = std::min(heartbeat_.waiting(), running_);
  return {.advances = heartbeat_.beats(), .running = running_, .waiting = waiting};
}

absl::StatusOr<std::shared_ptr<const StepPlan>> RankSet::ThroughBytes(const StepPlan& plan) const {
  const CodecLimits limits = CodecLimitsOf(model_, page_counts());
  ANNULUS_ASSIGN_OR_RETURN(const std::string bytes, EncodePlan(plan, limits));
  ANNULUS_ASSIGN_OR_RETURN(StepPlan copy, DecodePlan(bytes, limits));
  return std::make_shared<const StepPlan>(std::move(copy));
}

absl::StatusOr<std::vector<RankResult>> RankSet::Results() {
  ANNULUS_CHECK(started_ > 0) << "no step was started";
  Step step = std::move(steps_[0]);
  steps_[0] = std::exchange(steps_[1], Step());
  --started_;
  pause_ = step.pause;
  absl::Status failure = TakeResults(step);
  if (failure.ok()) return std::move(step.results);
  if (!lost_.ok()) return lost_;  // a rank is silent
  if (const absl::Status dropped = DropSecondStep(); !dropped.ok()) return dropped;
  if (options_.ring.has_value()) return failure;  // whoever opened it calls Reset
  // Of a lost device the first failure may be that a peer waited.
  if (const absl::Status devices = BeginAnew(); !devices.ok()) failure = devices;
  return failure;
}

// After a failure, once no step is under way. A ring that cannot be used again ends the set, and so
// does a device that is lost: every later step would fail as this one did. Returns the device's
// error.
absl::Status RankSet::BeginAnew() {
  lost_ = ring_->Reset();
  ResumeExperts();
  for (const auto& rank : ranks_) rank->thread->Reset();
  absl::Status devices;
  for (const auto& rank : ranks_) devices.Update(rank->stream->Synchronize());
  if (!devices.ok()) lost_ = devices;
  return devices;
}

void RankSet::Abort(const absl::Status& why) {
  ring_->channel(options_.span.first).Abort(why);
  if (ExpertCache* const experts = model_.weights.expert_cache.get()) experts->Abort(why);
}

// Whoever had the model before may have aborted the waits for its experts.
void RankSet::ResumeExperts() {
  if (ExpertCache* const experts = model_.weights.expert_cache.get()) experts->Resume();
}

absl::Status RankSet::EndSteps() {
  Abort(absl::CancelledError("the step was ended"));
  while (started_ > 0) Results().status().IgnoreError();
  return all_back_ ? absl::OkStatus() : lost_;
}

absl::Status RankSet::Reset() {
  EndSteps().IgnoreError();                  // lost_ has it
  if (all_back_) BeginAnew().IgnoreError();  // likewise
  return lost_;
}

// Returns the first failure of a rank, once all have ended the step.
absl::Status RankSet::TakeResults(Step& step) {
  absl::Status failure;
  for (int rank = 0; rank < size(); ++rank) {
    std::optional<RankResult> result = WaitFor(rank);
    if (!result.has_value()) return Silent(rank);
    if (options_.through_bytes) {
      const auto through_bytes = [&]() -> absl::StatusOr<RankResult> {
        const CodecLimits limits = CodecLimitsOf(model_, page_counts());
        ANNULUS_ASSIGN_OR_RETURN(const std::string bytes, EncodeResult(*result, limits));
        return DecodeResult(bytes, *step.plan, limits);
      };
      absl::StatusOr<RankResult> copy = through_bytes();
      if (!copy.ok()) result->status = copy.status();
      if (copy.ok()) result = *std::move(copy);
    }
    if (failure.ok()) failure = result->status;
    step.results.push_back(*std::move(result));
  }
  return failure;
}

// The rank did not end its step.
absl::Status RankSet::Silent(int rank) {
  {
    std::lock_guard lock(running_mutex_);
    next_ = nullptr;  // should the rank come back after all
  }
  all_back_ = false;
  started_ = 0;
  lost_ = absl::UnavailableError(absl::StrCat(
      "rank ", options_.span.first + rank, " did not answer within --exchange-timeout, ",
      options_.engine.exchange_timeout.count(),
      " ms; restart the server, and raise the timeout if steps take that long"));
  return lost_;
}

// After a failure: a second step that has begun ends, one that has not never does begin.
absl::Status RankSet::DropSecondStep() {
  bool begun;
  {
    std::lock_guard lock(running_mutex_);
    begun = started_ > 0 && next_ == nullptr;
    next_ = nullptr;
    failed_ = false;
  }
  for (int rank = 0; begun && rank < size(); ++rank) {
    if (!WaitFor(rank).has_value()) return Silent(rank);
  }
  std::lock_guard lock(running_mutex_);
  failed_ = false;
  started_ = 0;
  steps_[0] = Step();
  return absl::OkStatus();
}

std::optional<RankResult> RankSet::WaitFor(int rank) {
  while (true) {
    const SteadyTime quiet = heartbeat_.last() + options_.engine.exchange_timeout;
    std::optional<RankResult> result = ranks_[rank]->thread->Wait(quiet);
    if (result.has_value()) return result;
    if (heartbeat_.last() + options_.engine.exchange_timeout <= options_.clock->Now()) break;
  }
  // A rank that waits for a peer gives up now too, and its status names the peer.
  const auto grace = std::min(options_.engine.exchange_timeout, kGrace);
  std::optional<RankResult> late = ranks_[rank]->thread->Wait(options_.clock->Now() + grace);
  if (late.has_value()) return late;
  // Ranks that wait for the silent one come back at once.
  Abort(absl::DeadlineExceededError(absl::StrCat("no rank has made progress for ",
                                                 options_.engine.exchange_timeout.count(),
                                                 " ms, the --exchange-timeout")));
  return ranks_[rank]->thread->Wait(options_.clock->Now() + options_.engine.exchange_timeout);
}

}  // namespace annulus
