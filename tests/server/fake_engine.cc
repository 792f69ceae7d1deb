#include "tests/server/fake_engine.h"

#include <algorithm>
#include <bitset>
#include <cmath>
#include <new>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/api/field_errors.h"
#include "engine/grammar/compiler/compile.h"
#include "engine/text/streaming_encoder.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/status_macros.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

absl::Status Field(absl::string_view field, absl::string_view message) {
  absl::Status status = absl::InvalidArgumentError(absl::StrCat(field, ": ", message));
  status.SetPayload(kFieldPayload, absl::Cord(field));
  return status;
}

// The first byte that is not UTF-8, by lengths and continuation bytes alone.
std::optional<size_t> FindBadUtf8(absl::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto lead = static_cast<unsigned char>(text[i]);
    const size_t length = lead < 0x80 ? 1 : lead < 0xc2 ? 0 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    if (length == 0 || i + length > text.size()) return i;
    for (size_t j = 1; j < length; ++j) {
      if ((static_cast<unsigned char>(text[i + j]) & 0xc0) != 0x80) return i;
    }
    i += length;
  }
  return std::nullopt;
}

void AddDocuments(const std::vector<ChatDocument>& documents, bool framed, RenderedChat& chat) {
  for (const ChatDocument& document : documents) {
    const std::string mark = document.mark.empty() ? "" : absl::StrCat(" ", document.mark);
    if (framed) absl::StrAppend(&chat.text, "[", document.name, mark, ":");
    const size_t at = chat.text.size();
    if (framed) chat.text.push_back(']');
    chat.places.push_back({at, chat.text.size()});
  }
}

}  // namespace

FakeEngine::FakeEngine() {
  model_.architecture = "FakeForTests";
  model_.description = "Says what the test wants.";
  model_.parameters = 1;
  model_.layers = 2;
  model_.hidden_size = 3;
  model_.vocabulary = kVocabulary;
  model_.max_context = 4096;
  model_.kv_bytes_per_token = 64;
  model_.kernels = "fake";
  model_.end_of_text_ids = {0};
  scripter_ = [](const RequestSpec&) {
    FakeScript script;
    script.queued = {1, 0};
    script.progress_events = 2;
    script.deltas = {"Hel", "lo"};
    return script;
  };
}

FakeEngine::~FakeEngine() {
  std::map<RequestId, std::unique_ptr<Request>> requests;
  {
    std::lock_guard lock(mutex_);
    for (auto& [id, request] : requests_) request->cancelled = true;
    requests.swap(requests_);
  }
  changed_.notify_all();
  for (auto& [id, request] : requests) request->thread.join();
}

void FakeEngine::set_keeps_accounts(bool keeps) {
  std::lock_guard lock(mutex_);
  accounts_.reset();
  if (keeps) accounts_.emplace();
}

void FakeEngine::set_submit_error(absl::Status status) {
  std::lock_guard lock(mutex_);
  submit_error_ = std::move(status);
}

std::vector<RequestSpec> FakeEngine::submitted() const {
  std::lock_guard lock(mutex_);
  return submitted_;
}

std::vector<FakeEngine::Clock::time_point> FakeEngine::cancelled() const {
  std::lock_guard lock(mutex_);
  return cancelled_;
}

int FakeEngine::active() const {
  std::lock_guard lock(mutex_);
  return active_;
}

bool FakeEngine::WaitUntilIdle(milliseconds limit) const {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, limit, [&] { return active_ == 0; });
}

absl::Status FakeEngine::Validate(const RequestSpec& spec) const {
  if (spec.prompt.empty()) return Field("input", "at least 1 token is needed");
  for (const int32_t id : spec.prompt) {
    if (id < 0 || id >= kVocabulary) return Field("input", absl::StrCat("no token has id ", id));
  }
  const SamplingParams& sampling = spec.sampling;
  std::vector<absl::Status> wrong;
  const auto check = [&wrong](bool good, const char* field, const char* message) {
    if (!good) wrong.push_back(Field(field, message));
  };
  check(sampling.max_tokens >= 1, "sampling.max_tokens", "must be at least 1");
  check(sampling.temperature >= 0 && sampling.temperature <= 2, "sampling.temperature",
        "must be 0 to 2");
  check(sampling.top_p > 0 && sampling.top_p <= 1, "sampling.top_p", "must be in (0, 1]");
  check(sampling.top_k >= 0, "sampling.top_k", "must be at least 0");
  check(sampling.stop.size() <= 16, "sampling.stop", "at most 16 are allowed");
  for (const auto& [id, bias] : sampling.logit_bias) {
    check(id >= 0 && id < kVocabulary && std::abs(bias) <= 100, "sampling.logit_bias",
          "ids of the vocabulary and values from -100 to 100");
  }
  ANNULUS_RETURN_IF_ERROR(JoinFieldErrors(wrong));
  const int64_t needed = static_cast<int64_t>(spec.prompt.size()) + sampling.max_tokens;
  const int64_t max_context = model().max_context;
  if (needed > max_context) {
    return absl::OutOfRangeError(absl::StrCat(needed, " tokens where ", max_context, " fit"));
  }
  const absl::Status error = Get(submit_error_);
  return absl::IsOutOfRange(error) ? error : absl::OkStatus();
}

absl::StatusOr<CompiledOutput> FakeEngine::CompileOutput(const TenantId&,
                                                         const OutputConstraint& constraint,
                                                         const CancelFlag& cancel,
                                                         MemoryGrant& memory) const {
  std::bitset<256> bytes;
  bytes.set();
  WorkMeter work("the output constraint", kCompileSteps, cancel);
  const auto machine = CompileConstraint(constraint, bytes, &work, &memory);
  if (absl::IsInvalidArgument(machine.status())) {
    return Field("output", machine.status().message());
  }
  if (!machine.ok()) return machine.status();
  return CompiledOutput{*machine, MachineBytes(**machine)};
}

absl::StatusOr<BlockMap> FakeEngine::MapAttention(BlockMapSpec spec,
                                                  const CancelFlag& cancel) const {
  if (spec.heads == 0) spec.heads = 2;
  return DrawBlockMap(spec, cancel);
}

std::vector<std::unique_ptr<FakeEngine::Request>> FakeEngine::TakeEnded() {
  std::lock_guard lock(mutex_);
  std::vector<std::unique_ptr<Request>> ended;
  for (auto it = requests_.begin(); it != requests_.end();) {
    const auto current = it++;
    if (!current->second->done) continue;
    ended.push_back(std::move(current->second));
    requests_.erase(current);
  }
  return ended;
}

absl::StatusOr<RequestId> FakeEngine::Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) {
  if (out_of_memory_) throw std::bad_alloc();
  ANNULUS_RETURN_IF_ERROR(Validate(spec));
  auto request = std::make_unique<Request>();
  request->script = Get(scripter_)(spec);
  request->spec = std::move(spec);
  request->sink = std::move(sink);
  const std::vector<std::unique_ptr<Request>> ended = TakeEnded();
  for (const auto& old : ended) old->thread.join();
  std::lock_guard lock(mutex_);
  if (!submit_error_.ok()) return submit_error_;
  submitted_.push_back(request->spec);
  submitted_.back().account.reset();
  if (accounts_.has_value()) accounts_->push_back(request->spec.account);
  const RequestId id = submitted_.size();
  Request& started = *request;
  requests_[id] = std::move(request);
  ++active_;
  started.thread = std::thread([this, &started] { Run(started); });
  return id;
}

absl::Status FakeEngine::CheckQueue(const TenantId&, const std::string&) {
  const absl::Status error = Get(submit_error_);
  const bool temporary =
      absl::IsResourceExhausted(error) && error.GetPayload(kRetryPayload).has_value();
  if (temporary && !error.GetPayload(kLimitPayload).has_value()) return error;
  return absl::OkStatus();
}

absl::StatusOr<RequestPlan> FakeEngine::Plan(RequestSpec spec, const CancelFlag&) const {
  ANNULUS_RETURN_IF_ERROR(Validate(spec));
  return Get(plan_);
}

void FakeEngine::Cancel(RequestId id) {
  std::lock_guard lock(mutex_);
  const auto found = requests_.find(id);
  if (found == requests_.end() || found->second->done || found->second->cancelled) return;
  found->second->cancelled = true;
  cancelled_.push_back(Clock::now());
  changed_.notify_all();
}

absl::Status FakeEngine::Pause(Request& request) {
  const auto until = std::min(Clock::now() + request.script.interval, request.spec.deadline);
  std::unique_lock lock(mutex_);
  changed_.wait_until(lock, until, [&] { return request.cancelled; });
  if (request.cancelled) return absl::CancelledError("cancelled");
  if (Clock::now() >= request.spec.deadline) return absl::DeadlineExceededError("deadline passed");
  return absl::OkStatus();
}

absl::Status FakeEngine::WaitForRoom(Request& request) {
  const auto limit = Clock::now() + Get(slow_reader_timeout_);
  while (!request.sink->HasRoom()) {
    if (Clock::now() >= limit) {
      absl::Status status = absl::ResourceExhaustedError("the answer was read too slowly");
      status.SetPayload(kLimitPayload, absl::Cord("reader"));
      return status;
    }
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, milliseconds(1), [&] { return request.cancelled; });
    if (request.cancelled) return absl::CancelledError("cancelled");
  }
  return absl::OkStatus();
}

absl::Status FakeEngine::Play(Request& request, Usage& usage) {
  const FakeScript& script = request.script;
  for (const int position : script.queued) {
    ANNULUS_RETURN_IF_ERROR(Pause(request));
    request.sink->OnQueued(position);
  }
  PromptProgress progress;
  progress.total = usage.prompt_tokens;
  progress.ring_degree = script.completion.attention.ring_degree;
  for (int i = 1; i <= script.progress_events; ++i) {
    ANNULUS_RETURN_IF_ERROR(Pause(request));
    progress.processed = progress.total * i / script.progress_events;
    request.sink->OnProgress(progress);
  }
  if (request.spec.sampling.prompt_logprobs.has_value()) {
    Delta scores;
    for (size_t i = 1; i < request.spec.prompt.size(); ++i) {
      TokenLogprob& logprob = scores.prompt_logprobs.emplace_back();
      logprob.token_id = request.spec.prompt[i];
      logprob.logprob = -0.25f * static_cast<float>(i);
      logprob.alternatives = {{logprob.token_id, logprob.logprob}};
      const std::string text(1, static_cast<char>(logprob.token_id));
      logprob.texts = {text, text};
    }
    request.sink->OnDelta(std::move(scores));
  }
  do {
    for (const std::string& text : script.deltas) {
      ANNULUS_RETURN_IF_ERROR(Pause(request));
      ANNULUS_RETURN_IF_ERROR(WaitForRoom(request));
      Delta delta;
      delta.text = text;
      delta.token_ids = {static_cast<int32_t>(usage.completion_tokens++ % kVocabulary)};
      if (request.spec.sampling.logprobs) {
        TokenLogprob& logprob = delta.logprobs.emplace_back();
        logprob.token_id = delta.token_ids[0];
        logprob.logprob = -0.5f;
        logprob.alternatives = {{delta.token_ids[0], -0.5f}};
        logprob.texts = {"token", "alternative"};
        logprob.partial = {"", "\xe2\x80"};
      }
      request.sink->OnDelta(std::move(delta));
    }
  } while (script.endless);
  for (const Delta& part : script.parts) request.sink->OnDelta(part);
  return absl::OkStatus();
}

void FakeEngine::Run(Request& request) {
  Completion completion = request.script.completion;
  completion.usage.prompt_tokens = static_cast<int64_t>(request.spec.prompt.size());
  const absl::Status status = Play(request, completion.usage);
  if (!status.ok()) {
    completion.status = status;
    completion.finish_reason = FinishReason::kError;
  }
  request.spec.account.reset();  // before anybody sees that it is idle
  {
    std::lock_guard lock(mutex_);
    request.done = true;
    --active_;
  }
  changed_.notify_all();
  request.sink->OnDone(std::move(completion));
  request.sink.reset();
}

absl::Status FakeEngine::ForgetDocument(const TenantId& tenant, absl::string_view content,
                                        const CancelFlag& cancel) {
  {
    std::lock_guard lock(mutex_);
    forgotten_.push_back(absl::StrCat(tenant.name(), " ", content));
  }
  cancel.WaitAside([&] {
    while (forgetting_hangs_ && !cancel.cancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  if (cancel.cancelled()) return absl::CancelledError("the call was cancelled");
  return Get(forget_status_);
}

void FakeEngine::UnpinDocument(const TenantId& tenant, absl::string_view content) {
  std::lock_guard lock(mutex_);
  unpinned_.push_back(absl::StrCat(tenant.name(), " ", content));
}

absl::StatusOr<std::vector<KeptDocument>> FakeEngine::FindDocuments(
    const TenantId&, std::span<const std::string> contents, const CancelFlag&) const {
  std::lock_guard lock(mutex_);
  std::vector<KeptDocument> found;
  for (const std::string& content : contents) {
    const auto known = kept_.find(content);
    found.push_back(known == kept_.end() ? KeptDocument() : known->second);
  }
  return found;
}

absl::StatusOr<std::vector<int32_t>> FakeEngine::Tokenize(absl::string_view text, bool add_special,
                                                          const CancelFlag&) const {
  if (out_of_memory_) throw std::bad_alloc();
  ++tokenizing_;
  std::this_thread::sleep_for(milliseconds(tokenize_delay_ms_));
  --tokenizing_;
  if (const auto bad = FindBadUtf8(text)) {
    return absl::InvalidArgumentError(absl::StrCat("not UTF-8 at byte ", *bad));
  }
  std::vector<int32_t> ids;
  if (add_special) ids.push_back(kBeginOfText);
  for (const char c : text) ids.push_back(static_cast<unsigned char>(c));
  return ids;
}

absl::StatusOr<std::string> FakeEngine::Detokenize(std::span<const int32_t> ids, bool skip_special,
                                                   const CancelFlag&) const {
  std::string text;
  for (const int32_t id : ids) {
    if (id < 0 || id >= kVocabulary) {
      return absl::InvalidArgumentError(absl::StrCat("no token has id ", id));
    }
    if (id < kBeginOfText) text.push_back(static_cast<char>(id));
    if (id == kBeginOfText && !skip_special) text += "<s>";
  }
  return text;
}

std::unique_ptr<TextStream> FakeEngine::NewTextStream(const CancelFlag&) const {
  class Stream final : public TextStream {
   public:
    Stream(size_t memory_bytes, size_t memory_per_byte, int32_t id_shift,
           const std::atomic<bool>& out_of_memory)
        : memory_bytes_(memory_bytes),
          memory_per_byte_(memory_per_byte),
          id_shift_(id_shift),
          out_of_memory_(out_of_memory) {}
    absl::Status Append(absl::string_view bytes, std::vector<int32_t>& ids) override {
      if (out_of_memory_) throw std::bad_alloc();
      holds_end_mark_ |= absl::StrContains(bytes, "]");
      latest_bytes_ = bytes.size();
      AddPlaces(bytes);
      return Shifted(ids, encoder_->Append(bytes, &ids));
    }
    absl::Status Finish(std::vector<int32_t>& ids) override {
      return Shifted(ids, encoder_->Finish(&ids));
    }
    size_t memory_bytes() const override {
      return memory_bytes_ + latest_bytes_ * memory_per_byte_;
    }
    bool holds_end_mark() const override { return holds_end_mark_; }
    const std::vector<TokenPlace>& places() const override { return places_; }

   private:
    // Callers give an empty list.
    absl::Status Shifted(std::vector<int32_t>& ids, absl::Status status) {
      for (int32_t& id : ids) id += id_shift_;
      return status;
    }
    // A byte is a token.
    void AddPlaces(absl::string_view bytes) {
      for (const char byte : bytes) {
        const bool begins = (static_cast<unsigned char>(byte) & 0xC0) != 0x80;
        if (begins) character_ = {tokens_, character_.character + (tokens_ == 0 ? 0 : 1)};
        if (tokens_++ % kPlaceTokens == 0) places_.push_back(character_);
      }
    }

    const size_t memory_bytes_;
    const size_t memory_per_byte_;
    const int32_t id_shift_;
    size_t latest_bytes_ = 0;
    int64_t tokens_ = 0;
    TokenPlace character_;  // where the newest one begins
    std::vector<TokenPlace> places_;
    bool holds_end_mark_ = false;
    const std::atomic<bool>& out_of_memory_;
    const std::unique_ptr<Tokenizer> tokenizer_ = MakeByteTokenizer();
    const std::unique_ptr<StreamingEncoder> encoder_ = tokenizer_->NewStream(false);
  };
  return std::make_unique<Stream>(Get(text_memory_bytes_), Get(text_memory_per_byte_),
                                  Get(id_shift_), out_of_memory_);
}

absl::StatusOr<RenderedChat> FakeEngine::ApplyChatTemplate(const ChatRequest& request,
                                                           const CancelFlag&,
                                                           MemoryGrant& memory) const {
  if (out_of_memory_) throw std::bad_alloc();
  const absl::Status allowed = memory.Allow(Get(template_memory_bytes_));
  if (!allowed.ok()) return allowed;
  if (request.tools == "bad") return Field("messages.tools", "must be a JSON array");
  RenderedChat chat;
  chat.reading = Get(reading_);
  chat.system_folded = Get(refuses_system_) && request.messages[0].role == "system";
  for (const ChatMessage& message : request.messages) {
    if (message.role == "bad") return Field("messages", "the template refuses these messages");
    chat.text += message.role + ":";
    if (message.role == "user" && chat.places.empty()) {
      AddDocuments(request.documents, request.framed, chat);
    }
    chat.text += message.content.value_or("(none)") + "|";
  }
  if (request.tools.has_value()) {
    chat.text += "tools";
    std::lock_guard lock(mutex_);
    with_tools_ = request;
  }
  if (request.add_generation_prompt) chat.text += ">";
  if (request.continue_final_message) chat.text.pop_back();
  for (const char c : chat.text) chat.token_ids.push_back(static_cast<unsigned char>(c));
  return chat;
}

absl::StatusOr<RenderedChat> FakeEngine::FrameText(const std::vector<ChatDocument>& documents,
                                                   absl::string_view text,
                                                   const CancelFlag&) const {
  RenderedChat chat;
  AddDocuments(documents, /*framed=*/true, chat);
  absl::StrAppend(&chat.text, text);
  for (const char c : chat.text) chat.token_ids.push_back(static_cast<unsigned char>(c));
  return chat;
}

EngineLoad FakeEngine::Load() const {
  EngineLoad load;
  load.running = active();
  load.waiting = 3;
  load.kv_usage = 0.25;
  load.healthy = healthy_;
  load.stall_budget_seconds = 0.25;
  load.smallest_chunk_seconds = smallest_chunk_seconds_;
  RankLoad rank;
  rank.device = "cpu";
  rank.memory_bytes = {{"kv", 1024}, {"weights", 2048}};
  rank.kv_bytes_used = 256;
  rank.kv_bytes_total = 1024;
  load.ranks.push_back(rank);
  load.memory.weights = 2048;
  load.memory.kv = 512;
  load.memory.requests = ++snapshots_;
  load.process = {.resident = 3000, .resident_most = 4000};
  return load;
}

EngineReport FakeEngine::Report() const {
  EngineLoad load = Load();
  MetricFamily running{
      "annulus_num_requests_running", "Requests that run.", MetricFamily::Type::kGauge, {}};
  running.samples.emplace_back().value = load.running;
  MetricFamily latency{"annulus_time_to_first_token_seconds",
                       "Seconds to the first token.",
                       MetricFamily::Type::kHistogram,
                       {}};
  MetricSample& sample = latency.samples.emplace_back();
  sample.buckets = {{0.1, 1}, {1, 3}};
  sample.count = 4;
  sample.sum = 7.5;
  MetricFamily snapshot{
      "annulus_fake_snapshot", "Number of the snapshot.", MetricFamily::Type::kGauge, {}};
  snapshot.samples.emplace_back().value = static_cast<double>(load.memory.requests);
  MetricFamily drafted{"annulus_spec_decode_num_draft_tokens_total",
                       "Tokens that were guessed.",
                       MetricFamily::Type::kCounter,
                       {}};
  drafted.samples.emplace_back().value = 9;
  MetricFamily accepted{"annulus_spec_decode_num_accepted_tokens_total",
                        "Tokens that were guessed and were right.",
                        MetricFamily::Type::kCounter,
                        {}};
  accepted.samples.emplace_back().value = 6;
  return {std::move(load), {running, latency, snapshot, drafted, accepted}};
}

}  // namespace annulus::server
