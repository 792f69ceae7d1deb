#ifndef ANNULUS_TESTS_SERVER_FAKE_ENGINE_H_
#define ANNULUS_TESTS_SERVER_FAKE_ENGINE_H_

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/api.h"

namespace annulus::server {

// What a fake request does, in this order.
struct FakeScript {
  std::vector<int> queued;  // positions reported
  int progress_events = 0;
  std::vector<std::string> deltas;        // one token each
  std::vector<Delta> parts;               // after them: reasoning and calls
  bool endless = false;                   // the deltas repeat until the request is ended
  std::chrono::milliseconds interval{0};  // before every event
  Completion completion;                  // how it ends, if nothing else ends it
};

// The same delta for ever.
inline FakeScript Endless(std::chrono::milliseconds interval, const std::string& text = "x") {
  FakeScript script;
  script.deltas = {text};
  script.endless = true;
  script.interval = interval;
  return script;
}

// An Engine whose tokens are bytes (ids 0 to 255, 256 is beginning-of-text) and whose requests
// follow a script, each on its own thread. Keeps the contract of engine/api.h: sinks are asked for
// room, deadlines and cancels end requests, OnDone comes once.
class FakeEngine final : public Engine {
 public:
  using Clock = std::chrono::steady_clock;
  using Scripter = std::function<FakeScript(const RequestSpec&)>;
  static constexpr int32_t kBeginOfText = 256;
  static constexpr int32_t kVocabulary = 257;

  FakeEngine();
  ~FakeEngine() override;

  // What ApplyChatTemplate asks for, beside some for the messages.
  void set_template_memory_bytes(size_t bytes) { Set(template_memory_bytes_, bytes); }
  // Before the first request.
  void set_scripter(Scripter scripter) { Set(scripter_, std::move(scripter)); }
  // How the answers to conversations are read.
  void set_reading(const AnswerReading& reading) { Set(reading_, reading); }
  void set_chat_template(bool present) { Set(model_.has_chat_template, present); }
  // The template refuses system messages: what the engine makes of a conversation with one says so.
  void set_refuses_system(bool refuses) { Set(refuses_system_, refuses); }
  void set_frames_documents(bool frames) { Set(model_.frames_documents, frames); }
  void set_default_sampling(const SamplingParams& params) { Set(model_.default_sampling, params); }
  void set_max_context(int64_t tokens) { Set(model_.max_context, tokens); }
  // What a new text stream says that it holds back.
  void set_text_memory_bytes(size_t bytes) { Set(text_memory_bytes_, bytes); }
  // Bytes that a text stream counts besides, for each byte of its latest part.
  void set_text_memory_per_byte(size_t bytes) { Set(text_memory_per_byte_, bytes); }
  // What is added to each id of new text streams, as if they had another tokenizer.
  void set_id_shift(int32_t shift) { Set(id_shift_, shift); }
  void set_slow_reader_timeout(std::chrono::milliseconds limit) {
    Set(slow_reader_timeout_, limit);
  }
  // At any time.
  void set_healthy(bool healthy) { healthy_ = healthy; }
  // Beside a stall budget of 0.25 s.
  void set_smallest_chunk_seconds(double seconds) { smallest_chunk_seconds_ = seconds; }
  // Of Submit; OUT_OF_RANGE also of Validate, as what can never fit.
  void set_submit_error(absl::Status status);
  void set_tokenize_delay(std::chrono::milliseconds delay) { tokenize_delay_ms_ = delay.count(); }

  // From now on the engine keeps what accounts for its requests, as it does until a step ends;
  // false: it lets go of all.
  void set_keeps_accounts(bool keeps);

  // From now on nothing can be allocated for texts and requests.
  void set_out_of_memory(bool out) { out_of_memory_ = out; }

  // What was seen so far.
  std::vector<RequestSpec> submitted() const;
  std::vector<Clock::time_point> cancelled() const;  // when Cancel came for running requests
  // The latest conversation with tools.
  ChatRequest with_tools() const { return Get(with_tools_); }
  int active() const;
  int tokenizing() const { return tokenizing_; }  // calls of Tokenize that wait for their delay
  bool WaitUntilIdle(std::chrono::milliseconds limit) const;

  absl::StatusOr<RequestId> Submit(RequestSpec spec, std::shared_ptr<TokenSink> sink) override;
  // The error of set_submit_error if it is that of a full queue: with a time to retry, and of no
  // tenant's quota.
  absl::Status CheckQueue(const TenantId& tenant, const std::string& client) override;
  absl::Status Validate(const RequestSpec& spec) const override;
  // Checks as Submit does, then gives what was set.
  absl::StatusOr<RequestPlan> Plan(RequestSpec spec, const CancelFlag& cancel) const override;
  void set_plan(const absl::StatusOr<RequestPlan>& plan) { Set(plan_, plan); }
  void Cancel(RequestId id) override;
  absl::Status ForgetDocument(const TenantId& tenant, absl::string_view content,
                              const CancelFlag& cancel) override;
  // As on a disk that hangs, until it does not any more.
  void set_forgetting_hangs(bool hangs) { forgetting_hangs_ = hangs; }
  // "TENANT CONTENT" of each call.
  std::vector<std::string> forgotten() const { return Get(forgotten_); }
  void UnpinDocument(const TenantId& tenant, absl::string_view content) override;
  std::vector<std::string> unpinned() const { return Get(unpinned_); }
  // What `kept` says of each content; nothing of others.
  absl::StatusOr<std::vector<KeptDocument>> FindDocuments(const TenantId& tenant,
                                                          std::span<const std::string> contents,
                                                          const CancelFlag& cancel) const override;
  void set_kept(std::map<std::string, KeptDocument> kept) { Set(kept_, std::move(kept)); }
  void set_forget_status(const absl::Status& status) { Set(forget_status_, status); }
  absl::StatusOr<std::vector<int32_t>> Tokenize(absl::string_view text, bool add_special,
                                                const CancelFlag& cancel) const override;
  absl::StatusOr<std::string> Detokenize(std::span<const int32_t> ids, bool skip_special,
                                         const CancelFlag& cancel) const override;
  // Writes "role:content|" for each message and "tools" where there are any; refuses the role
  // "bad". A frame is "[name mark:" and "]", the name's letters and no escapes.
  std::unique_ptr<TextStream> NewTextStream(const CancelFlag& cancel) const override;
  absl::StatusOr<RenderedChat> ApplyChatTemplate(const ChatRequest& request,
                                                 const CancelFlag& cancel,
                                                 MemoryGrant& memory) const override;
  absl::StatusOr<RenderedChat> FrameText(const std::vector<ChatDocument>& documents,
                                         absl::string_view text,
                                         const CancelFlag& cancel) const override;
  // For the vocabulary of bytes.
  absl::StatusOr<CompiledOutput> CompileOutput(const TenantId& tenant,
                                               const OutputConstraint& constraint,
                                               const CancelFlag& cancel,
                                               MemoryGrant& memory) const override;
  // As if the model had two heads of keys and values.
  absl::StatusOr<BlockMap> MapAttention(BlockMapSpec spec, const CancelFlag& cancel) const override;
  const ModelInfo& model() const override {
    std::lock_guard lock(mutex_);
    return model_;
  }
  EngineLoad Load() const override;
  // Also numbers its snapshots: MemoryForecast::requests is the number, and annulus_fake_snapshot.
  EngineReport Report() const override;

 private:
  struct Request {
    RequestSpec spec;
    std::shared_ptr<TokenSink> sink;
    FakeScript script;
    bool cancelled = false;
    bool done = false;
    std::thread thread;
  };

  // A test sets before it calls, but nothing that the thread sanitizer counts orders the call's
  // handler after that, so both sides take the lock.
  template <typename Value>
  void Set(Value& member, Value value) {
    std::lock_guard lock(mutex_);
    member = std::move(value);
  }
  template <typename Value>
  Value Get(const Value& member) const {
    std::lock_guard lock(mutex_);
    return member;
  }

  std::vector<std::unique_ptr<Request>> TakeEnded();
  void Run(Request& request);
  // Waits the script's interval. The status that ends the request, if something did.
  absl::Status Pause(Request& request);
  absl::Status WaitForRoom(Request& request);
  absl::Status Play(Request& request, Usage& usage);

  ModelInfo model_;
  size_t text_memory_bytes_ = 0;
  size_t text_memory_per_byte_ = 0;
  int32_t id_shift_ = 0;
  bool refuses_system_ = false;
  size_t template_memory_bytes_ = 0;
  mutable ChatRequest with_tools_;
  AnswerReading reading_;
  Scripter scripter_;
  std::chrono::milliseconds slow_reader_timeout_{30'000};
  std::atomic<bool> healthy_{true};
  std::atomic<double> smallest_chunk_seconds_{0};
  std::atomic<bool> out_of_memory_{false};
  std::atomic<bool> forgetting_hangs_{false};
  std::atomic<int64_t> tokenize_delay_ms_{0};
  mutable std::atomic<int> tokenizing_{0};
  mutable std::atomic<int64_t> snapshots_{0};

  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  absl::Status submit_error_;
  std::map<RequestId, std::unique_ptr<Request>> requests_;
  std::vector<RequestSpec> submitted_;                                // without accounts
  std::optional<std::vector<std::shared_ptr<const void>>> accounts_;  // if it keeps them
  std::vector<Clock::time_point> cancelled_;
  std::vector<std::string> forgotten_;
  std::vector<std::string> unpinned_;
  std::map<std::string, KeptDocument> kept_;
  absl::Status forget_status_;
  absl::StatusOr<RequestPlan> plan_ = RequestPlan();
  int active_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_FAKE_ENGINE_H_
