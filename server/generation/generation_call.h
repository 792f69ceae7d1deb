#ifndef ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_
#define ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/generation_run.h"
#include "server/generation/service_context.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// A call for one generation (Generate, StreamGenerate or PrefillDocument), from the request's bytes
// to the terminal event. The pool's job, the reactor and, through the sink, the engine share
// ownership; any of them may be the last owner. Thread-safe.
class GenerationCall final : public Abortable, public std::enable_shared_from_this<GenerationCall> {
 public:
  // Decodes the request's bytes. Runs in the pool.
  using Decoder =
      std::function<absl::StatusOr<AskedGeneration>(CallMemory& memory, const CancelFlag& cancel)>;

  // `reader` must live until Close.
  static std::shared_ptr<GenerationCall> Create(ServiceContext& context, CallContext call,
                                                SinkReader& reader);
  // The same for a request whose bytes the transport already holds memory for, as
  // CallMemory::kReceived in `memory`.
  static std::shared_ptr<GenerationCall> Create(ServiceContext& context, CallContext call,
                                                SinkReader& reader, CallMemory memory);

  // Call before Start: see GenerationRun::MayFollow.
  void MayFollow() {
    may_follow_ = true;
    run_.MayFollow();
  }

  // Starts the call. The reader may be called from now on, even before this returns.
  // `request_bytes` is the size of the request, which the transport keeps until the call ends. If
  // the answer is certain to exceed `most_answer_bytes`, the call fails before any work.
  void Start(size_t request_bytes, Decoder decoder, size_t most_answer_bytes = SIZE_MAX);

  // Gives access to the events, the request id and the origin, of the first choice.
  GenerationRun& run() { return run_; }

  // An event of one of the request's choices (AskedGeneration::choices).
  struct ChoiceEvent {
    int choice;
    SinkEvent event;
  };
  // Takes the next event, visiting the choices in turn; nullopt if there is none. For one reader,
  // which ends the call with Conclude once every choice has ended, or one of them has failed.
  std::optional<ChoiceEvent> NextEvent();
  // Whether the engine has all choices, which may then wait for long.
  bool queued() const;
  // Logs the end of a choice that is not the last.
  void ConcludeChoice(const ChoiceEvent& end);

  // Ends the call for a client that cancelled, disconnected, or whose deadline passed. Stops the
  // engine's work, unless that lingers.
  void Cancel();

  // See GenerationRun; of all choices.
  void Delivered();
  void KeepFailure();

  // Stops the engine's work and ends the events with `status`, unless they have ended already.
  void Abort(absl::Status status) override;

  // Counts and logs the end of the call, with that of its last choice. Returns what to tell the
  // client.
  CallEnd Conclude(const Completion& completion, int choice = 0);

  // Detaches the reader. It is not called again once this returns.
  void Close();

 private:
  GenerationCall(ServiceContext& context, CallContext call, SinkReader& reader, CallMemory memory);

  absl::Status Begin(size_t request_bytes, Decoder decoder);
  void Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status Submit(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status SubmitChoices(Engine& engine, AskedGeneration& asked, const CancelFlag& cancel);
  absl::Status AddChoices(int count);
  GenerationRun& RunOf(int choice);
  void SetEnded();
  std::vector<GenerationRun*> Runs();
  void Leave(const absl::Status& status, bool lingers);

  // A choice after the first.
  struct Choice {
    Choice(ServiceContext& context, const CallContext& call, SinkReader& reader);
    CallMemory memory;  // used by the job only
    GenerationRun run;
  };

  ServiceContext& context_;
  SinkReader& reader_;
  const SteadyTime arrived_ = std::chrono::steady_clock::now();
  CallContext call_;  // constant once Start has returned
  const JobId job_;
  size_t most_answer_bytes_ = SIZE_MAX;  // set by Start, constant afterwards
  CallMemory memory_;                    // used by Start, later by the job only
  GenerationRun run_;
  bool may_follow_ = false;  // of all choices; set before Start
  int turn_ = 0;             // the choice whose event is taken next; used by the reader only

  mutable std::mutex mutex_;                   // guards everything below
  std::vector<std::unique_ptr<Choice>> more_;  // only grows, before any of them is submitted
  bool submitted_ = false;                     // the engine has all choices
  bool ended_ = false;
  bool client_left_ = false;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_
