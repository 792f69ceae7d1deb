#ifndef ANNULUS_SERVER_GENERATION_GENERATION_RUN_H_
#define ANNULUS_SERVER_GENERATION_GENERATION_RUN_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/request_builder.h"
#include "server/generation/service_context.h"
#include "server/generation/shared_generation.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// A generation as a call asks for it.
struct AskedGeneration {
  v1::GenerationSpec spec;
  // Whether to compute only the prompt up to the end of its last document, and generate nothing.
  bool prefill_only = false;
  // As in RequestSpec.
  bool pin = false;
  std::optional<std::chrono::milliseconds> ttl = std::nullopt;
  // The documents that the spec names, if the caller has looked them up already.
  std::optional<FoundDocuments> documents = std::nullopt;
  // How many answers to give, 1 to 16. Answer i has the seed of the spec, or one that the server
  // draws, plus i. For GenerationCall; a run gives one.
  int choices = 1;
  // How the request outlives this call, and how later ones find it.
  Lasting lasting = {};
  // This call repeats an earlier one, and joins its request if nobody follows that any more.
  bool joins = false;
  // This call only follows the request that the spec's request_id names, whatever it asks.
  bool follows_only = false;
};

// One generation: takes a place in the caller's quotas, submits the request, and passes its events
// on up to the last one. Failures arrive as a Completion with an error, so that the reader needs
// only one path. Thread-safe once TakePlace has returned.
class GenerationRun {
 public:
  // `call` must outlive the run, and must be admitted when TakePlace is called. `reader` must live
  // until Close.
  GenerationRun(ServiceContext& context, const CallContext& call, const SinkLimits& limits,
                SinkReader& reader);

  // Call before TakePlace if the call may follow a request that lingers or has ended. As that has a
  // place among the tenant's running requests, or needs none, TakePlace then leaves it to Submit to
  // refuse for lack of one.
  void MayFollow() { may_follow_ = true; }
  // Counts the generation in the caller's quotas. RESOURCE_EXHAUSTED if one of them is used up.
  absl::Status TakePlace();

  // Submits the request to the engine, or follows a running or kept one with the same request_id.
  // After an error no event will come, and the caller must call End. Returns OUT_OF_RANGE, before
  // any work, if the answer is certain to exceed `most_answer_bytes`, and the error of
  // Engine::CheckQueue before it makes the prompt. Holds the memory that it needs in `memory`: as
  // kWork while it runs, then as kKept for the engine's copy of the request. (If the request has a
  // request_id, the SharedGeneration holds the latter.) No-op after Abort. `built`: what
  // BuildRequest makes of the spec, to be copied; null: it is made here.
  absl::Status Submit(Engine& engine, const AskedGeneration& asked, size_t most_answer_bytes,
                      CallMemory& memory, const CancelFlag& cancel,
                      const BuiltRequest* built = nullptr);

  // Takes the next event; nullopt if there is none. Taking the terminal event ends the place in the
  // quotas.
  std::optional<SinkEvent> NextEvent();
  // Schedules another call of the reader, after the readers of other calls.
  void ComeAgain() { sink_->ComeAgain(); }

  // Ends the events with `status`, unless they have ended already.
  void End(absl::Status status);
  // The same, and also stops the engine's work.
  void Abort(absl::Status status) { Leave(std::move(status), /*lingers=*/false); }
  // The same for a client that has gone: work that lingers (Lasting) goes on.
  void AbortForClient(absl::Status status) { Leave(std::move(status), /*lingers=*/true); }
  bool aborted() const;
  // Whether the engine has the request, which may then wait for long.
  bool queued() const;

  // Call this when the terminal event was taken. Logs a successful generation, or the cause of a
  // failure.
  void Conclude(const Completion& completion);

  // The client has received the whole answer.
  void Delivered();
  // Keeps a failure that comes from now on for the client's next call, see
  // SharedGeneration::KeepFailure.
  void KeepFailure();

  // Detaches the reader. It is not called again once this returns.
  void Close();

  // The client's request_id, or a generated one.
  std::string request_id() const;
  void set_request_id(std::string id);
  // What is needed to get the same answer again (seed, kernels); empty until the request is
  // submitted.
  v1::Origin origin() const;

 private:
  // Holds the memory of the request as long as the engine keeps it. Errors of CallMemory::Hold.
  absl::Status HoldFor(RequestSpec& request) const;
  absl::Status SubmitOwn(Engine& engine, const v1::GenerationSpec& spec, BuiltRequest built,
                         CallMemory& memory);
  absl::Status SubmitShared(Engine& engine, const AskedGeneration& asked, BuiltRequest built,
                            const std::string& content, CallMemory& memory);
  std::shared_ptr<QuotaPlace> place() const;
  // Follows an earlier request, if there is one that fits, and returns whether there is. Holds
  // mutex_ from before the first event until shared_ is set, because NextEvent asks shared_ for
  // more.
  absl::StatusOr<bool> Follow(const AskedGeneration& asked, const std::string& content);
  absl::StatusOr<std::shared_ptr<SharedGeneration>> FindLocked(const AskedGeneration& asked,
                                                               const std::string& content);
  void Leave(absl::Status status, bool lingers);
  absl::StatusOr<BuiltRequest> Build(Engine& engine, const AskedGeneration& asked,
                                     CallMemory& memory, const CancelFlag& cancel,
                                     const BuiltRequest* built) const;
  // Sets shared_; if this generation was aborted, leaves at once instead. mutex_ must be held.
  void AttachLocked(std::shared_ptr<SharedGeneration> generation);
  RequestKey key() const;
  void LogDone(const Completion& completion) const;
  void AddSpans(const Completion& completion) const;

  ServiceContext& context_;
  const CallContext& call_;
  const SteadyTime began_ = std::chrono::steady_clock::now();
  const std::shared_ptr<BoundedSink> sink_;
  bool may_follow_ = false;
  absl::Status refused_;  // why there is no place_, if TakePlace left it to Submit

  mutable std::mutex mutex_;
  std::shared_ptr<QuotaPlace> place_;  // set by TakePlace; thread-safe itself
  std::string request_id_;
  v1::Origin origin_;  // of a request without a client's request_id
  bool aborted_ = false;
  std::shared_ptr<SharedGeneration> shared_;  // of a request with a client's request_id
  Engine* engine_ = nullptr;  // set together with id_, once the engine has the request
  RequestId id_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_GENERATION_RUN_H_
