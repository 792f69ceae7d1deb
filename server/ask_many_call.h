#ifndef ANNULUS_SERVER_ASK_MANY_CALL_H_
#define ANNULUS_SERVER_ASK_MANY_CALL_H_

#include <google/protobuf/repeated_field.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "annulus/v1/inference.pb.h"
#include "google/rpc/status.pb.h"
#include "server/bounded_sink.h"
#include "server/call_memory.h"
#include "server/generation_run.h"
#include "server/lifecycle.h"
#include "server/service_context.h"
#include "server/work_pool.h"

namespace annulus {

// One call of AskMany: its questions, of which at most kAtOnce are under way. A question is built
// and submitted when its turn comes, in the pool, so the call holds the prompts of kAtOnce
// questions and not of all. Until the first answer begins, one question is under way alone: it
// leaves the keys and values of what all share, and the others find them.
//
// A question that is refused for want of room (a quota, memory, the queue) waits until another of
// the call ends, and fails if there is no other. The next question begins when the reader has taken
// the end of an earlier one, so a client that does not read stops its own call only.
//
// The pool's job, the reactor and, through the sinks, the engine share ownership. Thread-safe.
class AskManyCall final : public Abortable, public std::enable_shared_from_this<AskManyCall> {
 public:
  static constexpr size_t kAtOnce = 16;

  // `reader` must live until Close.
  static std::shared_ptr<AskManyCall> Create(ServiceContext& context, SinkReader& reader);

  // Begins the work. Events may come from now on, also before this returns.
  void Start(const grpc::CallbackServerContext& call, const grpc::ByteBuffer& request);

  // A question that is under way, or whose end was just taken.
  struct Question {
    Question(ServiceContext& context, const CallFacts& facts, SinkReader& reader, int index);

    const int index;
    bool told = false;     // an event of it was written; the reader's
    absl::Status failure;  // not OK: a part of its answer is missing; the reader's
    CallMemory memory;     // used by the pool's job
    GenerationRun run;
  };
  struct QuestionEvent {
    std::shared_ptr<Question> question;
    SinkEvent event;
  };
  // The end of the call.
  struct CallEnd {
    absl::Status status;
  };
  // The next event, of the questions in turns, and last the call's end; nothing if there is none
  // now. The reader calls it again when it is ready for more.
  using Event = std::variant<QuestionEvent, CallEnd>;
  std::optional<Event> NextEvent();

  // Counts and logs a question's end; gives what the client is told of one that failed.
  google::rpc::Status Conclude(Question& question, const Completion& completion);
  // The same for the call.
  grpc::Status Conclude(const absl::Status& status, grpc::CallbackServerContext& call);

  // The client cancelled, went away, or its deadline passed.
  void Cancel();

  // Ends all questions, and the call, with `status`.
  void Abort(absl::Status status) override;

  // The reader ends: it is not called again once this returns.
  void Close();

 private:
  AskManyCall(ServiceContext& context, SinkReader& reader);

  absl::Status Begin(const grpc::CallbackServerContext& call, const grpc::ByteBuffer& request);
  // In the pool: decodes the request if that is still to do, and asks what may be asked now.
  void Feed(const WorkTurn& turn);
  void PostFeed();
  absl::Status RefusePost();
  absl::Status Decode();
  absl::Status CheckRequest();
  std::shared_ptr<Question> NextToAsk();
  absl::Status Ask(Question& question, const CancelFlag& cancel);
  void PlaceQuestion(const std::string& text);
  absl::Status PlaceQuestionField(int index, absl::Status status) const;
  // The question that Ask refused fails, waits, or ends the call.
  void UseRefusal(const std::shared_ptr<Question>& question, absl::Status status);
  void FreeEnded();
  void DropRequest();

  // mutex_ is held.
  bool MayAskLocked() const;
  std::shared_ptr<Question> TakeNextLocked();
  std::optional<Event> TakeEventLocked();
  void RetireLocked(const std::shared_ptr<Question>& question);

  ServiceContext& context_;
  SinkReader& reader_;
  CallFacts facts_;                         // filled by Start, then only read
  std::string client_;                      // as the facts: whose share of the pool it uses
  size_t request_bytes_ = 0;                // as the facts
  Engine* engine_ = nullptr;                // as the facts
  const std::shared_ptr<BoundedSink> own_;  // has the reader called for the call's end

  // Of the pool's job, of which there is one at a time.
  CallMemory memory_;
  grpc::ByteBuffer bytes_;
  bool decoded_ = false;
  AskedGeneration asked_;  // what all share; while a question is asked, with it
  google::protobuf::RepeatedPtrField<std::string> questions_;
  bool names_itself_ = false;  // the request has an id

  std::mutex closing_mutex_;  // held while questions are closed; taken before mutex_
  std::mutex mutex_;          // guards all below
  std::string request_id_;
  std::optional<JobId> feeding_;  // the job that waits or runs
  int count_ = 0;                 // of questions; 0: not decoded yet
  int next_ = 0;                  // the first question that was not asked yet
  bool waits_ = false;            // for one of its own to end: the next was refused
  bool answered_ = false;         // the answer of one has begun
  bool closed_ = false;
  bool told_end_ = false;
  std::optional<absl::Status> aborted_;
  size_t turn_ = 0;  // whose events come next
  std::vector<std::shared_ptr<Question>> active_;
  std::vector<std::shared_ptr<Question>> ended_;  // their sinks may call the reader still
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_ASK_MANY_CALL_H_
