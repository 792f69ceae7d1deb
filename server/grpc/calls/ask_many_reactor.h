#ifndef ANNULUS_SERVER_GRPC_CALLS_ASK_MANY_REACTOR_H_
#define ANNULUS_SERVER_GRPC_CALLS_ASK_MANY_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>
#include <mutex>

#include "annulus/v1/inference.pb.h"
#include "server/generation/ask_many_call.h"
#include "server/generation/bounded_sink.h"
#include "server/grpc/calls/grpc_call.h"

namespace annulus::server {

// Writes the events of all questions of one AskMany call, one at a time. While a write waits for a
// slow reader, events gather in the questions' sinks, and only there. Deletes itself.
class AskManyReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public SinkReader {
 public:
  AskManyReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                 const grpc::ByteBuffer& request);

  void OnReady() override { Advance(); }
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

 private:
  void Advance();
  void TellLocked(AskManyCall::QuestionEvent told);
  void TellEndLocked(AskManyCall::QuestionEvent told);
  // Fills the response. OUT_OF_RANGE if the event is larger than a message may be.
  absl::Status EncodeLocked(AskManyCall::QuestionEvent& told, v1::AskManyResponse& response) const;
  void WriteLocked(const v1::AskManyResponse& response);

  grpc::CallbackServerContext& call_;
  GrpcAnswering answering_{call_};
  UnreadAnswers& unread_;
  const size_t max_bytes_;
  const grpc::ByteBuffer& request_;
  const std::shared_ptr<AskManyCall> questions_;

  std::mutex mutex_;
  bool writing_ = false;
  bool cancelled_ = false;
  bool finished_ = false;
  grpc::ByteBuffer message_;  // belongs to gRPC while writing_
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_ASK_MANY_REACTOR_H_
