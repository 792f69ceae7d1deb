#ifndef ANNULUS_SERVER_GENERATION_ASK_MANY_CALL_H_
#define ANNULUS_SERVER_GENERATION_ASK_MANY_CALL_H_

#include <google/protobuf/repeated_field.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "google/rpc/status.pb.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/generation_run.h"
#include "server/generation/service_context.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"
#include "server/work/work_pool.h"

namespace annulus::server {

// One AskMany call with its questions, of which at most kAtOnce run at a time. A pool job builds
// and submits each question when its turn comes, so the call holds the prompts of at most kAtOnce
// questions. Until the first answer begins, a single question runs: it computes the keys and values
// of the shared prompt, and the others reuse them.
//
// A question that is refused for lack of room (a quota, memory, the queue) waits until another
// question of the call ends; if no other is running, it fails. The next question starts when the
// reader has taken the end of an earlier one, so a client that does not read stops only its own
// call.
//
// The pool's job, the reactor and, through the sinks, the engine share ownership. Thread-safe.
class AskManyCall final : public Abortable, public std::enable_shared_from_this<AskManyCall> {
 public:
  static constexpr size_t kAtOnce = 16;

  // Decodes the request, once, in the pool. Owns its bytes.
  using Decoder = std::function<absl::Status(CallMemory& memory, v1::AskManyRequest& request)>;

  // `reader` must live until Close.
  static std::shared_ptr<AskManyCall> Create(ServiceContext& context, CallContext call,
                                             SinkReader& reader);

  // Starts the call, whose request has `request_bytes`. The reader may be called from now on, even
  // before this returns.
  void Start(size_t request_bytes, Decoder decoder);

  // A question that is running, or whose end was just taken.
  struct Question {
    Question(ServiceContext& context, const CallContext& call, SinkReader& reader, int index);

    const int index;
    const SteadyTime asked = std::chrono::steady_clock::now();  // when its turn came
    bool told = false;     // whether an event was written; used by the reader only
    absl::Status failure;  // not OK if part of the answer is missing; used by the reader only
    CallMemory memory;     // used by the pool's job only
    GenerationRun run;
  };
  struct QuestionEvent {
    std::shared_ptr<Question> question;
    SinkEvent event;
  };
  // All questions have ended.
  struct Over {
    absl::Status status;
  };
  // Takes the next event, visiting the questions in turn; the last event is Over. nullopt if
  // there is none now. The reader calls this again whenever it is ready for more.
  using Event = std::variant<QuestionEvent, Over>;
  std::optional<Event> NextEvent();

  // Counts and logs the end of a question. Returns the status to send if the question failed.
  google::rpc::Status Conclude(Question& question, const Completion& completion);
  // Counts and logs the end of the call. Returns what to tell the client.
  CallEnd Conclude(const absl::Status& status);

  // Ends the call for a client that cancelled, disconnected, or whose deadline passed.
  void Cancel();

  // Ends all questions and the call with `status`.
  void Abort(absl::Status status) override;

  // Detaches the reader. It is not called again once this returns.
  void Close();

 private:
  AskManyCall(ServiceContext& context, CallContext call, SinkReader& reader);

  absl::Status Begin(size_t request_bytes, Decoder decoder);
  // Runs in the pool. Decodes the request, the first time, and asks the questions that may be asked
  // now.
  void Feed(const WorkTurn& turn);
  void PostFeed();
  absl::Status RefusePost();
  absl::Status Decode();
  absl::Status CheckRequest();
  std::shared_ptr<Question> NextToAsk();
  absl::Status Ask(Question& question, const CancelFlag& cancel);
  void PlaceQuestion(const std::string& text);
  absl::Status PlaceQuestionField(int index, absl::Status status) const;
  // Handles a refusal by Ask: fails the question, lets it wait, or ends the call.
  void UseRefusal(const std::shared_ptr<Question>& question, absl::Status status);
  void FreeEnded();
  void DropRequest();

  // These require mutex_ to be held.
  bool MayAskLocked() const;
  std::shared_ptr<Question> TakeNextLocked();
  // Ends a question that was not asked with `status`.
  void FailLocked(Question& question, absl::Status status);
  std::optional<Event> TakeEventLocked();
  void RetireLocked(const std::shared_ptr<Question>& question);

  ServiceContext& context_;
  SinkReader& reader_;
  const SteadyTime arrived_ = std::chrono::steady_clock::now();
  // Constant once Start has returned.
  CallContext call_;
  size_t request_bytes_ = 0;
  Engine* engine_ = nullptr;
  const std::shared_ptr<BoundedSink> own_;  // its only use: to call the reader for the call's end

  // Used by the pool's job only; there is one job at a time.
  CallMemory memory_;
  Decoder decoder_;  // null once it has decoded
  bool decoded_ = false;
  AskedGeneration asked_;  // the shared request; Ask adds a question to it and removes it again
  google::protobuf::RepeatedPtrField<std::string> questions_;
  bool names_itself_ = false;  // the request has a request_id

  std::mutex closing_mutex_;  // held while questions are closed; taken before mutex_
  std::mutex mutex_;          // guards everything below
  std::string request_id_;
  std::optional<JobId> feeding_;  // the job that is queued or running
  int count_ = 0;                 // number of questions; 0: not decoded yet
  int next_ = 0;                  // the first question that was not asked yet
  bool waits_ = false;            // the next question was refused and waits for another to end
  bool answered_ = false;         // an answer has begun
  bool closed_ = false;
  bool told_end_ = false;
  std::optional<absl::Status> aborted_;
  size_t turn_ = 0;  // index into active_ of the question whose event is taken next
  std::vector<std::shared_ptr<Question>> active_;
  std::vector<std::shared_ptr<Question>> ended_;  // not closed yet: sinks may still call the reader
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_ASK_MANY_CALL_H_
