#include <algorithm>
#include <atomic>
#include <ctime>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/api.h"
#include "engine/base/field_error.h"
#include "engine/coordinator/admission/room_kept.h"
#include "engine/coordinator/planning/plan_density.h"
#include "engine/engine_parts.h"
#include "engine/engine_report.h"
#include "engine/engine_seams.h"
#include "engine/grammar/compiler/output_compiler.h"
#include "engine/grammar/machine.h"
#include "engine/prompt/answer_reading.h"
#include "engine/prompt/chat.h"
#include "engine/prompt/chat_documents.h"
#include "engine/prompt/encoder_stream.h"
#include "engine/request/check_request.h"
#include "engine/request/evidence_heads.h"
#include "engine/sampling/validate.h"
#include "engine/scheduler/output_guide.h"
#include "engine/scheduler/trial_ring.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

class EngineImpl final : public Engine {
 public:
  explicit EngineImpl(std::unique_ptr<const EngineParts> parts)
      : outputs_(parts->model.ranks.tokens), parts_(std::move(parts)) {}

  absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) override {
    if (spec.prefill_only) {
      spec.sampling = {};
      spec.sampling.max_tokens = 1;  // the last row still has one drawn, which nobody sees
    }
    ANNULUS_RETURN_IF_ERROR(CheckAndCount(spec));
    if (spec.prefill_only && !CutToPages(spec, parts_->limits.page_tokens)) {
      Completion nothing;
      nothing.finish_reason = FinishReason::kPrefilled;
      sink->OnDone(std::move(nothing));
      return next_id_.fetch_add(1);
    }
    if (!spec.sampling.seed.has_value()) spec.sampling.seed = std::random_device()();
    const RequestId id = next_id_.fetch_add(1);
    std::vector<int32_t> forced;
    if (parts_->seams.force_answer != nullptr) forced = parts_->seams.force_answer(spec);
    auto request = std::make_unique<Request>(id, std::move(spec), std::move(sink),
                                             *parts_->model.tokenizer, parts_->clock());
    request->ForceAnswer(std::move(forced));
    ANNULUS_RETURN_IF_ERROR(parts_->coordinator->Submit(std::move(request)));
    return id;
  }

  absl::Status CheckQueue(const TenantId& tenant, const std::string& client) override {
    return parts_->coordinator->CheckQueue(ShareName{tenant.name(), client}.owner());
  }

  absl::Status Validate(const RequestSpec& spec) const override {
    const ModelInfo& info = parts_->model.info;
    ANNULUS_RETURN_IF_ERROR(ValidateSampling(spec.sampling, info.vocabulary));
    if (const absl::Status text = parts_->model.tokenizer->usable();
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
      const absl::Status status = CheckAttention(*spec.attention, parts_->model.ranks);
      if (!status.ok()) return FieldError(status.code(), "attention.policy", status.message());
    }
    ANNULUS_RETURN_IF_ERROR(CheckEvidence(spec, parts_->evidence_heads,
                                          spec.attention.value_or(parts_->options.attention)));
    if (spec.priority < -2 || spec.priority > 2) {
      return FieldError(absl::StatusCode::kInvalidArgument, "priority",
                        absl::StrCat(spec.priority, " is not allowed: -2 to 2"));
    }
    ANNULUS_RETURN_IF_ERROR(CheckContext(spec));
    ANNULUS_RETURN_IF_ERROR(CheckMemory(spec));
    return CheckEvidenceRoom(spec, parts_->evidence_shape, parts_->evidence_room);
  }

  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel) const override {
    const absl::Status valid = Validate(spec);
    if (absl::IsOutOfRange(valid) && valid.GetPayload(kLimitPayload) != absl::Cord("context")) {
      return RequestPlan{
          .room = RoomFor::kNever,
          .obstacle = std::string(valid.message()),
          .policy = AssignmentText(spec.attention.value_or(parts_->options.attention))};
    }
    ANNULUS_RETURN_IF_ERROR(valid);
    const int64_t tokens = std::ssize(spec.prompt);
    ANNULUS_ASSIGN_OR_RETURN(RequestPlan plan, parts_->coordinator->Plan(std::move(spec), cancel));
    ANNULUS_RETURN_IF_ERROR(AddDensity(parts_->model.ranks.config, tokens, plan));
    return plan;
  }

  void Cancel(RequestId id) override { parts_->coordinator->Cancel(id); }

  absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                              const CancelFlag& cancel) override {
    parts_->coordinator->ForgetDocument(TagOf(tenant, content));
    return parts_->stores->ForgetDocument(tenant, content, cancel);
  }

  void UnpinDocument(const TenantId& tenant, absl::string_view content) override {
    parts_->coordinator->UnpinDocument(TagOf(tenant, content));
  }

  absl::StatusOr<std::vector<KeptDocument>> FindDocuments(const TenantId& tenant,
                                                          std::span<const std::string> contents,
                                                          const CancelFlag& cancel) const override {
    std::vector<KeptDocument> found;
    for (const std::string& content : contents) {
      found.push_back(parts_->coordinator->FindDocument(TagOf(tenant, content)));
    }
    ANNULUS_RETURN_IF_ERROR(
        parts_->stores->AddKept(tenant, contents, parts_->limits.page_tokens, cancel, found));
    return found;
  }

  absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                const CancelFlag& cancel) const override {
    return parts_->model.tokenizer->Encode(text, add_special, cancel);
  }

  absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                         const CancelFlag& cancel) const override {
    ANNULUS_ASSIGN_OR_RETURN(const std::string bytes,
                             parts_->model.tokenizer->Decode(ids, skip_special, cancel));
    return ToValidUtf8(bytes);
  }

  std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const override {
    return NewEncoderStream(*parts_->model.tokenizer, cancel);
  }

  absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                 const CancelFlag& cancel,
                                                 MemoryGrant& memory) const override {
    if (parts_->model.templates.empty()) {
      return absl::UnimplementedError("the model has no chat template; send text");
    }
    const std::time_t now = std::time(nullptr);
    std::tm utc{};
    gmtime_r(&now, &utc);
    ANNULUS_ASSIGN_OR_RETURN(const ChatRequest adapted,
                             AdaptCalls(parts_->model.reading, request, cancel, memory));
    ANNULUS_ASSIGN_OR_RETURN(RenderedChat chat,
                             RenderChat(parts_->model.templates, *parts_->model.tokenizer, adapted,
                                        utc, cancel, memory));
    ANNULUS_RETURN_IF_ERROR(SetReading(parts_->model.reading, request, chat, memory));
    return chat;
  }

  absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                         absl::string_view text,
                                         const CancelFlag& cancel) const override {
    return FrameDocuments(*parts_->model.tokenizer, documents, text, cancel);
  }

  absl::StatusOr<CompiledOutput> CompileOutput(const TenantId& tenant,
                                               const OutputConstraint& constraint,
                                               const CancelFlag& cancel,
                                               MemoryGrant& memory) const override {
    const auto machine = outputs_.Compile(tenant, constraint, cancel, memory);
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
    ANNULUS_RETURN_IF_ERROR(CheckPolicy(spec.policy, parts_->limits.page_tokens));
    if (spec.heads == 0) spec.heads = parts_->model.ranks.page_shape.kv_heads;
    return DrawBlockMap(spec, cancel);
  }

  const ModelInfo& model() const override { return parts_->model.info; }

  EngineLoad Load() const override { return LoadOf(*parts_); }
  EngineReport Report() const override { return ReportOf(*parts_); }

 private:
  absl::Status CheckAndCount(const RequestSpec& spec) {
    const absl::Status status = Validate(spec);
    if (status.code() == absl::StatusCode::kOutOfRange) {
      const bool memory = status.GetPayload(kLimitPayload) != absl::Cord("context");
      parts_->metrics->CountRejection(memory ? AdmissionRejection::kMemory
                                             : AdmissionRejection::kContext);
    }
    return status;
  }

  absl::Status CheckContext(const RequestSpec& spec) const {
    const int64_t prompt = static_cast<int64_t>(spec.prompt.size());
    const int64_t needed = prompt + spec.sampling.max_tokens;
    const int64_t limit = parts_->model.info.max_context;
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
    PageDemand demand = Demand(spec, parts_->limits.page_tokens);
    const SummaryKinds summaries = SummariesOf(spec.attention.value_or(parts_->options.attention));
    demand.summarised = parts_->ranks->PagesSummarised(summaries);
    int64_t available = 0;
    for (const RankFacts& rank : parts_->ranks->facts()) available += rank.pages * rank.page_bytes;
    const std::vector<int32_t> pages = parts_->ranks->page_counts();
    if (const auto ring = ChooseRing(demand, pages, {}, parts_->limits)) {
      ANNULUS_RETURN_IF_ERROR(CheckLoss(demand, std::ssize(spec.prompt)));
      const std::vector<int32_t> held = PagesHeld(*ring, nullptr, parts_->limits);
      return CheckTenantRoom(
          spec, parts_->page_bytes(0) * std::accumulate(held.begin(), held.end(), 0LL));
    }
    const int64_t needed = AllPagesNeeded(demand, parts_->limits) * parts_->page_bytes(0);
    PageDemand shortest = demand;
    shortest.tokens = std::ssize(spec.prompt) + 1;
    const bool answer = ChooseRing(shortest, pages, {}, parts_->limits).has_value();
    return TooLarge(
        answer ? "answer" : "memory", answer ? "sampling.max_tokens" : "input",
        absl::StrCat(summaries.any() ? "keys, values and summaries of " : "keys and values of ",
                     demand.tokens, " tokens need ", needed, " bytes over ", parts_->limits.ranks,
                     " ranks; ", available, " bytes are available; ",
                     answer ? "lower max_tokens" : "shorten the prompt",
                     ", or start the server with a larger --kv-memory"));
  }

  // Whether they would fit, too, once the ranks are lost whose loss is tolerated.
  absl::Status CheckLoss(const PageDemand& demand, int64_t prompt) const {
    const int all = parts_->limits.ranks;
    const int left = all - parts_->tolerated_ranks();
    if (left == all) return absl::OkStatus();
    const TrialRing ring(parts_->limits, SmallestRooms(parts_->ranks->page_counts(), left));
    if (ring.Fits(demand)) return absl::OkStatus();
    const int64_t most = ring.LongestFit(demand);
    const bool answer = most > prompt;
    return TooLarge(
        answer ? "answer" : "memory", answer ? "sampling.max_tokens" : "input",
        absl::StrCat("prompt and answer may have ", demand.tokens, " tokens, and room is kept for ",
                     "the loss of ", all - left, " of ", all, " ranks (--tolerate ", all - left,
                     "): keys and values of 1 to ", most, " tokens fit on the other ", left, "; ",
                     answer ? absl::StrCat("lower max_tokens to at most ", most - prompt)
                            : std::string("shorten the prompt"),
                     ", or start the server with a larger --kv-memory or a smaller --tolerate"));
  }

  mutable OutputCompiler outputs_;
  const std::unique_ptr<const EngineParts> parts_;
  std::atomic<RequestId> next_id_{1};
};

}  // namespace

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options, Backend& backend,
                                                     const KernelRegistry& kernels) {
  return CreateEngineWith({}, options, backend, kernels);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngine(const EngineOptions& options,
                                                     const EngineWorkers& workers, Backend& backend,
                                                     const KernelRegistry& kernels) {
  EngineSeams seams;
  seams.workers = workers;
  return CreateEngineWith(seams, options, backend, kernels);
}

absl::StatusOr<std::unique_ptr<Engine>> CreateEngineWith(const EngineSeams& seams,
                                                         const EngineOptions& options,
                                                         Backend& backend,
                                                         const KernelRegistry& kernels) {
  ANNULUS_ASSIGN_OR_RETURN(auto parts, StartParts(seams, options, backend, kernels));
  return std::make_unique<EngineImpl>(std::move(parts));
}

}  // namespace annulus
