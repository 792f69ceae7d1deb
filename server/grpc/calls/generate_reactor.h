#ifndef ANNULUS_SERVER_GRPC_CALLS_GENERATE_REACTOR_H_
#define ANNULUS_SERVER_GRPC_CALLS_GENERATE_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <memory>

#include "server/generation/bounded_sink.h"
#include "server/generation/generation_call.h"
#include "server/grpc/calls/answer_bytes.h"
#include "server/grpc/calls/grpc_call.h"
#include "server/work/call_memory.h"

namespace annulus::server {

// The reactor of Generate. Gathers the events of one generation into one response. Deletes itself.
class GenerateReactor final : public grpc::ServerUnaryReactor, public SinkReader {
 public:
  GenerateReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                  const grpc::ByteBuffer& request, grpc::ByteBuffer& response);

  void OnReady() override;
  void OnCancel() override { generation_->Cancel(); }
  void OnDone() override;

 private:
  absl::Status Gather(Delta delta);
  void End(Completion completion);
  size_t HeldByAnswer() const;
  absl::Status EncodeAnswer(const Completion& completion);

  grpc::CallbackServerContext& call_;
  GrpcAnswering answering_{call_};
  UnreadAnswers& unread_;
  const size_t max_bytes_;
  const grpc::ByteBuffer& request_;
  grpc::ByteBuffer& response_bytes_;
  AnswerBytes answer_;    // used by the delivery thread only
  absl::Status failure_;  // not OK if part of the answer is missing
  CallMemory memory_;     // memory held for answer_
  const std::shared_ptr<GenerationCall> generation_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_GENERATE_REACTOR_H_
