#ifndef ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_
#define ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "annulus/v1/inference.pb.h"
#include "engine/api.h"
#include "kernels/base/status_macros.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/generation_run.h"
#include "server/generation/service_context.h"
#include "server/grpc/wire.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// Decodes a request whose field `spec` says what to generate.
template <typename Request>
absl::StatusOr<AskedGeneration> DecodeSpec(const grpc::ByteBuffer& bytes, size_t max_bytes,
                                           CallMemory& memory) {
  Request request;
  ANNULUS_RETURN_IF_ERROR(DecodeMessage(bytes, max_bytes, memory, request));
  AskedGeneration asked;
  asked.spec = std::move(*request.mutable_spec());
  return asked;
}

// A call for one generation (Generate, StreamGenerate or PrefillDocument), from the request's bytes
// to the terminal event. The pool's job, the reactor and, through the sink, the engine share
// ownership; any of them may be the last owner. Thread-safe.
class GenerationCall final : public Abortable, public std::enable_shared_from_this<GenerationCall> {
 public:
  // Decodes the request's bytes. Runs in the pool.
  using Decoder = std::function<absl::StatusOr<AskedGeneration>(CallMemory& memory)>;

  // `name` is the method's name, a literal. `reader` must live until Close.
  static std::shared_ptr<GenerationCall> Create(ServiceContext& context, absl::string_view name,
                                                SinkReader& reader);

  // Starts the call. The reader may be called from now on, even before this returns.
  // `request_bytes` is the size of the request, which gRPC keeps until the call ends. If the answer
  // is certain to exceed `most_answer_bytes`, the call fails before any work.
  void Start(const grpc::CallbackServerContext& call, size_t request_bytes, Decoder decoder,
             size_t most_answer_bytes = SIZE_MAX);

  // Gives access to the events, the request id and the origin.
  GenerationRun& run() { return run_; }

  // Ends the call for a client that cancelled, disconnected, or whose deadline passed. Stops the
  // engine's work.
  void Cancel();

  // Stops the engine's work and ends the events with `status`, unless they have ended already.
  void Abort(absl::Status status) override;

  // Counts and logs the end of the call. Returns the status to send.
  grpc::Status Conclude(const Completion& completion, grpc::CallbackServerContext& call);

  // Detaches the reader. It is not called again once this returns.
  void Close();

 private:
  GenerationCall(ServiceContext& context, absl::string_view name, SinkReader& reader);

  absl::Status Begin(const grpc::CallbackServerContext& call, size_t request_bytes,
                     Decoder decoder);
  void Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status Submit(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);

  ServiceContext& context_;
  const SteadyTime arrived_ = std::chrono::steady_clock::now();
  CallFacts facts_;  // set by Start, constant afterwards
  const JobId job_;
  size_t most_answer_bytes_ = SIZE_MAX;  // set by Start, constant afterwards
  CallMemory memory_;                    // used by Start, later by the job only
  GenerationRun run_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_GENERATION_CALL_H_
