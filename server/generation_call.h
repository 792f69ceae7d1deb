#ifndef ANNULUS_SERVER_GENERATION_CALL_H_
#define ANNULUS_SERVER_GENERATION_CALL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "kernels/base/status_macros.h"
#include "server/bounded_sink.h"
#include "server/call_memory.h"
#include "server/lifecycle.h"
#include "server/service_context.h"
#include "server/shared_generation.h"
#include "server/wire.h"

namespace annulus {

// What a call asks for.
struct AskedGeneration {
  v1::GenerationSpec spec;
  // The prompt is read up to the end of its last document, and nothing is generated.
  bool prefill_only = false;
  // As in RequestSpec.
  bool pin = false;
  std::optional<std::chrono::milliseconds> ttl;
};

// The generation that a request of either service asks for.
template <typename Request>
absl::StatusOr<AskedGeneration> DecodeSpec(const grpc::ByteBuffer& bytes, size_t max_bytes,
                                           CallMemory& memory) {
  Request request;
  ANNULUS_RETURN_IF_ERROR(DecodeMessage(bytes, max_bytes, memory, request));
  AskedGeneration asked;
  asked.spec = std::move(*request.mutable_spec());
  return asked;
}

// One generation, from the request's bytes to its terminal event, for Generate, StreamGenerate and
// PrefillDocument alike. Whatever goes wrong arrives as a Completion with an error, so that the
// reader has one path only. The pool's job, the reactor and, through the sink, the engine share
// ownership: each may be the last. Thread-safe.
class GenerationCall final : public Abortable, public std::enable_shared_from_this<GenerationCall> {
 public:
  // Decodes the request's bytes; runs in the pool.
  using Decoder = std::function<absl::StatusOr<AskedGeneration>(CallMemory& memory)>;

  // `name` is the method's, for the log. `reader` must live until Close.
  static std::shared_ptr<GenerationCall> Create(ServiceContext& context, absl::string_view name,
                                                SinkReader& reader);

  // Begins the work. Events may come from now on, also before this returns. `request_bytes` is what
  // the request takes, which gRPC keeps until the call ends. An answer that is sure to have more
  // than `most_answer_bytes` is refused before any work.
  void Start(const grpc::CallbackServerContext& call, size_t request_bytes, Decoder decoder,
             size_t most_answer_bytes = SIZE_MAX);

  std::optional<SinkEvent> NextEvent();
  // Has the reader called once more, after others.
  void ComeAgain() { sink_->ComeAgain(); }

  // The client cancelled, went away, or its deadline passed: stops the engine's work.
  void Cancel();

  // Stops the engine's work and ends the events with `status`, unless they have ended already.
  void Abort(absl::Status status) override;

  // Counts and logs the end; gives the status to send.
  grpc::Status Conclude(const Completion& completion, grpc::CallbackServerContext& call);

  // The reader ends: it is not called again once this returns.
  void Close();

  // The caller's name for the request, or ours.
  std::string request_id() const;
  // What the answer follows from; of a request that the engine was not given yet, nothing.
  v1::Origin origin() const;

 private:
  GenerationCall(ServiceContext& context, absl::string_view name, SinkReader& reader);

  absl::Status Begin(const grpc::CallbackServerContext& call, size_t request_bytes,
                     Decoder decoder);
  void Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status Submit(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status SubmitAsked(Engine& engine, const AskedGeneration& asked, const CancelFlag& cancel);
  absl::Status SubmitOwn(Engine& engine, const v1::GenerationSpec& spec, RequestSpec request);
  absl::Status SubmitShared(Engine& engine, const v1::GenerationSpec& spec, RequestSpec request,
                            const std::string& content);
  // Whether a request of that name is there; then this call follows it. Holds mutex_ from the first
  // event on until shared_ is set: whoever takes that event asks shared_ for more.
  absl::StatusOr<bool> Follow(const std::string& content);
  // Leaves at once if the call has ended. mutex_ is held.
  void AttachLocked(std::shared_ptr<SharedGeneration> generation);
  RequestKey key() const;
  void End(absl::Status status);
  void LogDone(const std::string& id, const Completion& completion,
               const grpc::CallbackServerContext& call) const;

  ServiceContext& context_;
  const absl::string_view name_;  // a literal
  const std::shared_ptr<BoundedSink> sink_;
  const JobId job_;
  SteadyTime deadline_;                  // set by Start, then only read
  size_t most_answer_bytes_ = SIZE_MAX;  // as the deadline
  Identity caller_;                      // as the deadline
  std::string connection_;               // as the deadline: whose share the request uses
  std::unique_ptr<QuotaPlace> place_;    // as the deadline; thread-safe itself
  CallMemory memory_;                    // used by Start, then by the job only

  mutable std::mutex mutex_;
  std::string request_id_;
  v1::Origin origin_;  // of a request that its client has not named
  bool aborted_ = false;
  std::shared_ptr<SharedGeneration> shared_;  // of a request that its client has named
  Engine* engine_ = nullptr;  // set together with id_, once the engine has the request
  RequestId id_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GENERATION_CALL_H_
