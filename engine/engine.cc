#include <algorithm>
#include <atomic>
#include <ctime>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "engine/base/field_error.h"
#include "engine/base/process_memory.h"
#include "engine/coordinator/admission/room_kept.h"
#include "engine/coordinator/coordinator.h"
#include "engine/coordinator/planning/plan_density.h"
#include "engine/disk/disk_calls.h"
#include "engine/engine_seams.h"
#include "engine/engine_setup.h"
#include "engine/exchange/find_exchange.h"
#include "engine/grammar/compiler/compile.h"
#include "engine/grammar/compiler/output_compiler.h"
#include "engine/loading/loaded_model.h"
#include "engine/memory_plan.h"
#include "engine/metrics/engine_metrics.h"
#include "engine/pages/page_stores.h"
#include "engine/prompt/answer_reading.h"
#include "engine/prompt/chat.h"
#include "engine/prompt/chat_documents.h"
#include "engine/prompt/encoder_stream.h"
#include "engine/request/check_request.h"
#include "engine/runner/rank_set.h"
#include "engine/sampling/validate.h"
#include "engine/scheduler/output_guide.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Attention rates are measured if ranks exchange anything; otherwise this is the guess.
AutoSetting MakeAutoSetting(const RankModel& model, double flops) {
  AutoSetting setting;
  setting.scores = CanScoreBlocks(*model.ops);
  setting.gates = model.gates != nullptr;
  setting.flops = flops;
  setting.layers = 0;
  for (const CacheGroup& group : model.groups) {
    if (group.window == 0) setting.layers += static_cast<int>(group.layers.size());
  }
  return setting;
}

// Host memory of the process without the weights, after loading them.
size_t ProgramBytes(const RankModel& model, const Backend& backend) {
  const int64_t weights =
      backend.capabilities().host_accessible ? static_cast<int64_t>(model.weights.bytes) : 0;
  return static_cast<size_t>(std::max<int64_t>(0, ReadProcessMemory().resident - weights));
}

class EngineImpl final : public Engine {
 public:
  static absl::StatusOr<std::unique_ptr<Engine>> Create(const EngineOptions& options,
                                                        Backend& backend,
                                                        const KernelRegistry& kernels,
                                                        const EngineSeams& seams) {
    ANNULUS_RETURN_IF_ERROR(CheckOptions(options));
    std::unique_ptr<EngineImpl> engine(new EngineImpl(Settle(options, backend), seams));
    ANNULUS_ASSIGN_OR_RETURN(engine->model_, LoadModel(engine->options_, backend, kernels));
    ANNULUS_RETURN_IF_ERROR(CheckAttention(options.attention, engine->model_.ranks));
    engine->outputs_ = std::make_unique<OutputCompiler>(engine->model_.ranks.tokens);
    ANNULUS_RETURN_IF_ERROR(engine->StartRanks(backend));
    ANNULUS_RETURN_IF_ERROR(engine->StartCoordinator(backend));
    return engine;
  }

  absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) override {
    if (spec.prefill_only) {
      spec.sampling = {};
      spec.sampling.max_tokens = 1;  // the last row still has one drawn, which nobody sees
    }
    ANNULUS_RETURN_IF_ERROR(CheckAndCount(spec));
    if (spec.prefill_only && !CutToPages(spec, limits_.page_tokens)) {
      Completion nothing;
      nothing.finish_reason = FinishReason::kPrefilled;
      sink->OnDone(std::move(nothing));
      return next_id_.fetch_add(1);
    }
    if (!spec.sampling.seed.has_value()) spec.sampling.seed = std::random_device()();
    const RequestId id = next_id_.fetch_add(1);
    std::vector<int32_t> forced;
    if (seams_.force_answer != nullptr) forced = seams_.force_answer(spec);
    auto request =
        std::make_unique<Request>(id, std::move(spec), std::move(sink), *model_.tokenizer, clock_);
    request->ForceAnswer(std::move(forced));
    ANNULUS_RETURN_IF_ERROR(coordinator_->Submit(std::move(request)));
    return id;
  }

  absl::Status CheckQueue() override { return coordinator_->CheckQueue(); }

  absl::Status Validate(const RequestSpec& spec) const override {
    const ModelInfo& info = model_.info;
    ANNULUS_RETURN_IF_ERROR(ValidateSampling(spec.sampling, info.vocabulary));
    if (const absl::Status text = model_.tokenizer->usable();
        !text.ok() && !spec.sampling.stop.empty()) {
      return FieldError(text.code(), "sampling.stop",
                        absl::StrCat("stop texts need a tokenizer: ", text.message()));
    }
    if (spec.prompt.empty()) {
      return FieldError(absl::StatusCode::kInvalidArgument, "input",
                        "the prompt is empty; give at least one token");
    }
    for (size_t i = 0; i < spec.prompt.size(); ++i) {
      if (spec.prompt[i] >= 0 && spec.prompt[i] < info.vocabulary) continue;
      return FieldError(
          absl::StatusCode::kInvalidArgument, "input",
          absl::StrCat("token id ", spec.prompt[i], " at index ", i,
                       " is not in the vocabulary; allowed are 0 to ", info.vocabulary - 1));
    }
    ANNULUS_RETURN_IF_ERROR(CheckOutput(spec, info));
    ANNULUS_RETURN_IF_ERROR(CheckPrefixes(spec));
    ANNULUS_RETURN_IF_ERROR(CheckKeeping(spec));
    if (spec.attention.has_value()) {
      const absl::Status status = CheckAttention(*spec.attention, model_.ranks);
      if (!status.ok()) return FieldError(status.code(), "attention.policy", status.message());
    }
    if (spec.priority < -2 || spec.priority > 2) {
      return FieldError(absl::StatusCode::kInvalidArgument, "priority",
                        absl::StrCat(spec.priority, " is not allowed: -2 to 2"));
    }
    ANNULUS_RETURN_IF_ERROR(CheckContext(spec));
    return CheckMemory(spec);
  }

  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel) const override {
    const absl::Status valid = Validate(spec);
    if (absl::IsOutOfRange(valid) && valid.GetPayload(kLimitPayload) != absl::Cord("context")) {
      return RequestPlan{.room = RoomFor::kNever,
                         .obstacle = std::string(valid.message()),
                         .policy = AssignmentText(spec.attention.value_or(options_.attention))};
    }
    ANNULUS_RETURN_IF_ERROR(valid);
    const int64_t tokens = std::ssize(spec.prompt);
    ANNULUS_ASSIGN_OR_RETURN(RequestPlan plan, coordinator_->Plan(std::move(spec), cancel));
    ANNULUS_RETURN_IF_ERROR(AddDensity(model_.ranks.config, tokens, plan));
    return plan;
  }

  void Cancel(RequestId id) override { coordinator_->Cancel(id); }

  absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                              const CancelFlag& cancel) override {
    coordinator_->ForgetDocument(TagOf(tenant, content));
    return stores_->ForgetDocument(tenant, content, cancel);
  }

  void UnpinDocument(const TenantId& tenant, absl::string_view content) override {
    coordinator_->UnpinDocument(TagOf(tenant, content));
  }

  absl::StatusOr<std::vector<KeptDocument>> FindDocuments(const TenantId& tenant,
                                                          std::span<const std::string> contents,
                                                          const CancelFlag& cancel) const override {
    std::vector<KeptDocument> found;
    for (const std::string& content : contents) {
      found.push_back(coordinator_->FindDocument(TagOf(tenant, content)));
    }
    ANNULUS_RETURN_IF_ERROR(stores_->AddKept(tenant, contents, limits_.page_tokens, cancel, found));
    return found;
  }

  absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                const CancelFlag& cancel) const override {
    return model_.tokenizer->Encode(text, add_special, cancel);
  }

  absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                         const CancelFlag& cancel) const override {
    ANNULUS_ASSIGN_OR_RETURN(const std::string bytes,
                             model_.tokenizer->Decode(ids, skip_special, cancel));
    return ToValidUtf8(bytes);
  }

  std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const override {
    return NewEncoderStream(*model_.tokenizer, cancel);
  }

  absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                 const CancelFlag& cancel,
                                                 MemoryGrant& memory) const override {
    if (model_.templates.empty()) {
      return absl::UnimplementedError("the model has no chat template; send text");
    }
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    ANNULUS_ASSIGN_OR_RETURN(const ChatRequest adapted,
                             AdaptCalls(model_.reading, request, cancel, memory));
    ANNULUS_ASSIGN_OR_RETURN(RenderedChat chat, RenderChat(model_.templates, *model_.tokenizer,
                                                           adapted, utc, cancel, memory));
    ANNULUS_RETURN_IF_ERROR(SetReading(model_.reading, request, chat, memory));
    return chat;
  }

  absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                         absl::string_view text,
                                         const CancelFlag& cancel) const override {
    return FrameDocuments(*model_.tokenizer, documents, text, cancel);
  }

  absl::StatusOr<CompiledOutput> CompileOutput(const TenantId& tenant,
                                               const OutputConstraint& constraint,
                                               const CancelFlag& cancel,
                                               MemoryGrant& memory) const override {
    const auto machine = outputs_->Compile(tenant, constraint, cancel, memory);
    if (absl::IsInvalidArgument(machine.status()) &&
        !machine.status().GetPayload(kFieldPayload).has_value()) {
      return FieldError(machine.status().code(), "output", machine.status().message());
    }
    ANNULUS_RETURN_IF_ERROR(machine.status());
    return CompiledOutput{
        *machine, MachineBytes(**machine) + GrammarCache::kDefaultBytes + OutputGuide::kCacheBytes};
  }

  absl::StatusOr<BlockMap> MapAttention(BlockMapSpec spec,
                                        const CancelFlag& cancel) const override {
    ANNULUS_RETURN_IF_ERROR(CheckPolicy(spec.policy, limits_.page_tokens));
    if (spec.heads == 0) spec.heads = model_.ranks.config.kv_heads;
    return DrawBlockMap(spec, cancel);
  }

  const ModelInfo& model() const override { return model_.info; }

  EngineLoad Load() const override { return LoadAt(TakeMoment()); }

  EngineReport Report() const override {
    const Moment moment = TakeMoment();
    EngineReport report{LoadAt(moment), {}};
    for (const RankLoad& rank : report.load.ranks) {
      for (const auto& [kind, bytes] : rank.memory_bytes) {
        metrics_->rank_memory_bytes.With({absl::StrCat(rank.rank), kind})
            .Set(static_cast<double>(bytes));
      }
      metrics_->ranks[rank.rank].up.Set(rank.up ? 1 : 0);
      metrics_->graphs[rank.rank].Show(moment.ranks[rank.rank].graphs);
      const BufferPoolStats& pool = moment.ranks[rank.rank].memory;
      metrics_->pools[rank.rank].Show({.held = pool.held,
                                       .free = pool.free,
                                       .limit = pool.limit,
                                       .high_water = pool.high_water_held,
                                       .fragmentation_ratio = pool.fragmentation_ratio(),
                                       .trims = pool.trims,
                                       .trimmed_bytes = pool.trimmed_bytes,
                                       .refusals = pool.refusals});
      const PageCounts& pages = moment.now.pages[rank.rank];
      metrics_->pages[rank.rank].Show({.held = pages.in_use(),
                                       .reserved = pages.reserved,
                                       .cached = pages.cached,
                                       .free = pages.free,
                                       .most = moment.now.pages_most[rank.rank]},
                                      PageBytes(rank.rank));
    }
    const PatternCache::Counters patterns = ranks_->patterns().counters();
    metrics_->pattern_cache_hits.Raise(static_cast<double>(patterns.hits));
    metrics_->pattern_cache_misses.Raise(static_cast<double>(patterns.misses));
    metrics_->pattern_cache_bytes.Set(static_cast<double>(patterns.bytes));
    stores_->Show(*metrics_);
    report.metrics = metrics_->Collect();
    return report;
  }

 private:
  // What is reported together comes from one of these, so that its figures add up.
  struct Moment {
    Coordinator::Snapshot now;
    std::vector<RankStatistics> ranks;
  };

  EngineImpl(EngineOptions options, const EngineSeams& seams)
      : options_(std::move(options)), seams_(seams), clock_(*seams.clock) {}

  // Opens the ring and takes all memory of the ranks.
  absl::Status StartRanks(Backend& backend) {
    const RankModel& model = model_.ranks;
    limits_ = PlanLimitsOf(options_, model);
    RankSetOptions ranks = RankSetOptionsOf(options_, limits_);
    ranks.clock = &clock_;
    ranks.through_bytes = seams_.through_bytes;
    ANNULUS_ASSIGN_OR_RETURN(exchange_, FindExchange(options_, model, backend));
    program_bytes_ = ProgramBytes(model, backend);
    if (options_.kv_memory_bytes == 0) {
      ANNULUS_ASSIGN_OR_RETURN(ranks.engine.kv_memory_bytes,
                               DefaultKvMemory(model, ranks, backend));
    }
    const HostUse host = {.program = program_bytes_,
                          .kv_host = static_cast<size_t>(options_.kv_host_bytes),
                          .pinned = PageStores::BufferBytes(options_, GeometryOf(model)),
                          .memory = options_.host_memory_bytes};
    ANNULUS_ASSIGN_OR_RETURN(plan_, PlanMemory(model, ranks, host, backend));
    ANNULUS_RETURN_IF_ERROR(CheckPlan(plan_, ranks.span.local));
    ANNULUS_ASSIGN_OR_RETURN(ranks_, RankSet::Create(model, backend, ranks));
    if (seams_.wrap_ranks != nullptr) ranks_ = seams_.wrap_ranks(std::move(ranks_));
    metrics_ = std::make_unique<EngineMetrics>(options_.ranks, model_.info);
    return absl::OkStatus();
  }

  absl::Status StartCoordinator(Backend& backend) {
    const RankModel& model = model_.ranks;
    const RankSpan span = options_.span();
    std::vector<Backend*> devices;
    for (int index = 0; index < span.local; ++index) {
      devices.push_back(&backend.OnDevice(index % DevicesOf(backend, span.local)));
    }
    DiskCalls& disk = seams_.disk_calls == nullptr ? DiskCalls::System() : *seams_.disk_calls;
    ANNULUS_ASSIGN_OR_RETURN(stores_,
                             PageStores::Open(options_, GeometryOf(model), devices, disk, clock_));
    CoordinatorOptions coordinator;
    coordinator.engine = options_;
    coordinator.limits = limits_;
    // With one thread, ranks that wait have none to lend.
    coordinator.ranks_share_machine = backend.capabilities().host_accessible &&
                                      backend.capabilities().nodes == 1 && span.all > 1 &&
                                      span.local == span.all && options_.threads > 1;
    coordinator.modes = ModePolicyOf(options_, model, exchange_.rates);
    coordinator.modes.visiting_pages = ranks_->visiting_pages();
    coordinator.identity = absl::StrCat(model_.identity, "/", limits_.shards);
    coordinator.automatic = MakeAutoSetting(model, exchange_.rates.attention.back().flops);
    coordinator.ropes = model.config.ropes;
    coordinator.other_identities = stores_->OtherIdentities(coordinator.identity);
    coordinator.tiers = stores_->Levels(*metrics_);
    coordinator.comparer = stores_->comparer();
    coordinator.tokenizer = model_.tokenizer.get();
    coordinator.tokens = model_.ranks.tokens;
    coordinator_ =
        std::make_unique<Coordinator>(coordinator, *ranks_, *metrics_, clock_,
                                      model_.info.end_of_text_ids, model_.info.vocabulary);
    return absl::OkStatus();
  }

  Moment TakeMoment() const {
    Moment moment{coordinator_->snapshot(), {}};
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      moment.ranks.push_back(ranks_->Statistics(rank));
    }
    return moment;
  }

  EngineLoad LoadAt(const Moment& moment) const {
    const Coordinator::Snapshot& now = moment.now;
    EngineLoad load;
    load.running = now.running;
    load.waiting = now.waiting;
    const SteadyTime last = std::max(now.last_turn, ranks_->last_progress());
    load.seconds_since_step = SecondsBetween(last, clock_.Now());
    const double stuck = std::chrono::duration<double>(options_.exchange_timeout).count();
    load.healthy = now.healthy && (!now.busy || load.seconds_since_step < stuck);
    load.process = ReadProcessMemory();
    load.memory.program = static_cast<int64_t>(program_bytes_);
    load.memory.weights = static_cast<int64_t>(model_.ranks.weights.bytes *
                                               (1 + model_.ranks.further_weights.size()));
    load.memory.requests = now.request_bytes_most;
    load.memory.kv_host = stores_->host_bytes();
    load.plan = plan_;
    int64_t used = 0;
    int64_t total = 0;
    for (int rank = 0; rank < ranks_->size(); ++rank) {
      used += now.pages[rank].in_use();
      total += now.pages[rank].total();
      const BufferPoolStats& stats = moment.ranks[rank].memory;
      load.memory.kv += now.pages_most[rank] * PageBytes(rank);
      load.memory.step += HeldBytes(stats, Lifetime::kStep);
      load.memory.ring += HeldBytes(stats, Lifetime::kRingSlots);
      load.memory.workspace += static_cast<int64_t>(moment.ranks[rank].workspace_bytes);
      load.ranks.push_back(LookAtRank(rank, now, stats));
    }
    load.stall_budget_seconds = now.stall_budget_seconds;
    load.smallest_chunk_seconds = now.smallest_chunk_seconds;
    load.tiers = stores_->Load();
    load.exchange = exchange_.rates;
    load.exchange_source = exchange_.source;
    load.ring_transport = ranks_->transport();
    load.kv_usage = total > 0 ? static_cast<double>(used) / static_cast<double>(total) : 0;
    return load;
  }

  absl::Status CheckAndCount(const RequestSpec& spec) {
    const absl::Status status = Validate(spec);
    if (status.code() == absl::StatusCode::kOutOfRange) {
      const bool memory = status.GetPayload(kLimitPayload) != absl::Cord("context");
      metrics_->CountRejection(memory ? AdmissionRejection::kMemory : AdmissionRejection::kContext);
    }
    return status;
  }

  absl::Status CheckContext(const RequestSpec& spec) const {
    const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
    const int64_t needed = prompt + spec.sampling.max_tokens;
    const int64_t limit = model_.info.max_context;
    if (needed <= limit) return absl::OkStatus();
    return TooLarge(
        "context", prompt < limit ? "sampling.max_tokens" : "input",
        absl::StrCat("the prompt has ", prompt, " tokens and max_tokens is ",
                     spec.sampling.max_tokens, ", in total ", needed, "; the context is ", limit,
                     prompt < limit ? absl::StrCat("; lower max_tokens to at most ", limit - prompt)
                                    : std::string("; shorten the prompt")));
  }

  static absl::Status TooLarge(absl::string_view limit, absl::string_view field,
                               absl::string_view message) {
    absl::Status status = FieldError(absl::StatusCode::kOutOfRange, field, message);
    status.SetPayload(kLimitPayload, absl::Cord(limit));
    return status;
  }

  // Whether the request's pages would fit if it were alone.
  absl::Status CheckMemory(const RequestSpec& spec) const {
    PageDemand demand = Demand(spec, limits_.page_tokens);
    const SummaryKinds summaries = SummariesOf(spec.attention.value_or(options_.attention));
    demand.summarised = ranks_->PagesSummarised(summaries);
    int64_t available = 0;
    for (const RankFacts& rank : ranks_->facts()) available += rank.pages * rank.page_bytes;
    const std::vector<int32_t> pages = ranks_->page_counts();
    if (const auto ring = ChooseRing(demand, pages, {}, limits_)) {
      const std::vector<int32_t> held = PagesHeld(*ring, nullptr, limits_);
      return CheckTenantRoom(spec, PageBytes(0) * std::accumulate(held.begin(), held.end(), 0LL));
    }
    const int64_t needed = AllPagesNeeded(demand, limits_) * PageBytes(0);
    PageDemand shortest = demand;
    shortest.tokens = std::ssize(spec.prompt) + 1;
    const bool answer = ChooseRing(shortest, pages, {}, limits_).has_value();
    return TooLarge(
        answer ? "answer" : "memory", answer ? "sampling.max_tokens" : "input",
        absl::StrCat(summaries.any() ? "keys, values and summaries of " : "keys and values of ",
                     demand.tokens, " tokens need ", needed, " bytes over ", limits_.ranks,
                     " ranks; ", available, " bytes are available; ",
                     answer ? "lower max_tokens" : "shorten the prompt",
                     ", or start the server with a larger --kv-memory"));
  }

  static int64_t HeldBytes(const BufferPoolStats& stats, Lifetime lifetime) {
    return static_cast<int64_t>(stats.held_by_lifetime[static_cast<size_t>(lifetime)]);
  }

  int64_t PageBytes(int rank) const { return ranks_->facts()[rank].page_bytes; }

  RankLoad LookAtRank(int rank, const Coordinator::Snapshot& now,
                      const BufferPoolStats& stats) const {
    const PageCounts& pages = now.pages[rank];
    const int64_t page_bytes = PageBytes(rank);
    RankLoad load;
    load.rank = rank;
    load.up = now.healthy;
    load.device = ranks_->facts()[rank].device;
    load.node = ranks_->facts()[rank].node;
    load.kv_bytes_used = pages.in_use() * page_bytes;
    load.kv_bytes_total = pages.total() * page_bytes;
    // The kinds add up to what the rank holds.
    load.memory_bytes["kv_full"] = pages.full * page_bytes;
    load.memory_bytes["kv_window"] = pages.window * page_bytes;
    load.memory_bytes["kv_summaries"] = pages.summaries * page_bytes;
    load.memory_bytes["kv_reserved"] = pages.reserved * page_bytes;
    load.memory_bytes["kv_cached"] = pages.cached * page_bytes;
    load.memory_bytes["kv_free"] = pages.free * page_bytes;
    load.memory_bytes["step"] = HeldBytes(stats, Lifetime::kStep);
    for (const Lifetime kind : {Lifetime::kRingSlots, Lifetime::kWorkspace}) {
      const int64_t bytes = HeldBytes(stats, kind);
      if (bytes > 0) load.memory_bytes[std::string(LifetimeName(kind))] = bytes;
    }
    // One copy serves all ranks of a device; it is counted once, at the first of them.
    const bool first = rank <= static_cast<int>(model_.ranks.further_weights.size());
    load.memory_bytes["weights"] = first ? static_cast<int64_t>(model_.ranks.weights.bytes) : 0;
    return load;
  }

  const EngineOptions options_;  // settled
  const EngineSeams seams_;
  const Clock& clock_;
  LoadedModel model_;
  size_t program_bytes_ = 0;
  MemoryPlan plan_;
  std::unique_ptr<OutputCompiler> outputs_;
  PlanLimits limits_;
  FoundExchange exchange_;
  std::unique_ptr<RankPort> ranks_;
  std::unique_ptr<EngineMetrics> metrics_;
  std::unique_ptr<PageStores> stores_;
  std::unique_ptr<Coordinator> coordinator_;  // last: ends first
  std::atomic<RequestId> next_id_{1};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, Backend& backend,
                                                     const KernelRegistry& kernels) {
  return CreateEngineWith({}, options, backend, kernels);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWith(const EngineSeams& seams,
                                                         const EngineOptions& options,
                                                         Backend& backend,
                                                         const KernelRegistry& kernels) {
  return EngineImpl::Create(options, backend, kernels, seams);
}

}  // namespace annulus
