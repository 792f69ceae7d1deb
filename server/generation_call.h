#ifndef ANNULUS_SERVER_GENERATION_CALL_H_
#define ANNULUS_SERVER_GENERATION_CALL_H_

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
#include "server/bounded_sink.h"
#include "server/call_memory.h"
#include "server/generation_run.h"
#include "server/lifecycle.h"
#include "server/service_context.h"
#include "server/wire.h"

namespace annulus {

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

// A call that asks for one generation, from the request's bytes to the terminal event: Generate,
// StreamGenerate and PrefillDocument alike. The pool's job, the reactor and, through the sink, the
// engine share ownership: each may be the last. Thread-safe.
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

  // For the events, the name and the origin.
  GenerationRun& run() { return run_; }

  // The client cancelled, went away, or its deadline passed: stops the engine's work.
  void Cancel();

  // Stops the engine's work and ends the events with `status`, unless they have ended already.
  void Abort(absl::Status status) override;

  // Counts and logs the end; gives the status to send.
  grpc::Status Conclude(const Completion& completion, grpc::CallbackServerContext& call);

  // The reader ends: it is not called again once this returns.
  void Close();

 private:
  GenerationCall(ServiceContext& context, absl::string_view name, SinkReader& reader);

  absl::Status Begin(const grpc::CallbackServerContext& call, size_t request_bytes,
                     Decoder decoder);
  void Prepare(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);
  absl::Status Submit(Engine& engine, const Decoder& decoder, const CancelFlag& cancel);

  ServiceContext& context_;
  CallFacts facts_;  // filled by Start, then only read
  const JobId job_;
  size_t most_answer_bytes_ = SIZE_MAX;  // as the facts
  CallMemory memory_;                    // used by Start, then by the job only
  GenerationRun run_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_GENERATION_CALL_H_
