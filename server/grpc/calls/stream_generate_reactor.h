#ifndef ANNULUS_SERVER_GRPC_CALLS_STREAM_GENERATE_REACTOR_H_
#define ANNULUS_SERVER_GRPC_CALLS_STREAM_GENERATE_REACTOR_H_

#include <google/protobuf/message.h>
#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>
#include <string>
#include <variant>

#include "annulus/v1/inference.pb.h"
#include "server/generation/bounded_sink.h"
#include "server/generation/generation_call.h"
#include "server/grpc/calls/grpc_call.h"

namespace annulus::server {

// A streaming call: its name, the decoder of its request and the encoder of its events.
struct StreamedCall {
  absl::string_view name;           // the method's name, a literal
  GenerationCall::Decoder decoder;  // owns a reference to the request's bytes
  using Message = std::unique_ptr<google::protobuf::Message>;
  // `first`: this is the first event.
  using Encoder = Message (*)(SinkEvent& event, const GenerationRun& generation, bool first);
  Encoder encode = nullptr;
};

// Encodes an event for StreamGenerate. `first`: it is the first event of the generation.
v1::StreamGenerateResponse GenerationEvent(SinkEvent& event, const GenerationRun& generation,
                                           bool first);

// The field of a request that asks for what can make this event larger than a message may be:
// attention details are in the completion, log probabilities in the others.
inline const char* FieldOfSize(const SinkEvent& event) {
  return std::holds_alternative<Completion>(event) ? "spec.attention.details" : "spec.sampling";
}

// The streaming call StreamGenerate.
StreamedCall StreamedGeneration(const ServiceContext& context, const grpc::ByteBuffer& request);

// Writes the events of one generation, one at a time. While a write waits for a slow reader, events
// gather in the sink, and only there. Deletes itself.
class StreamGenerateReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>,
                                    public SinkReader {
 public:
  StreamGenerateReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                        const grpc::ByteBuffer& request, StreamedCall streamed);

  void OnReady() override { Advance(); }
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Advance();
  absl::Status EncodeLocked(SinkEvent& event);
  void WriteLocked(SinkEvent event);
  void EndLocked(Completion completion);

  grpc::CallbackServerContext& call_;
  GrpcAnswering answering_{call_};
  UnreadAnswers& unread_;
  const size_t max_bytes_;
  const grpc::ByteBuffer& request_;
  const StreamedCall::Encoder encode_;
  const std::shared_ptr<GenerationCall> generation_;

  std::mutex mutex_;
  bool begun_ = false;  // an event was written
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
  absl::Status failure_;      // not OK if part of the answer is missing
  grpc::ByteBuffer message_;  // belongs to gRPC while writing_
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_STREAM_GENERATE_REACTOR_H_
