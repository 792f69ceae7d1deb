#ifndef ANNULUS_SERVER_GRPC_CALLS_GRPC_CALL_H_
#define ANNULUS_SERVER_GRPC_CALLS_GRPC_CALL_H_

// What a call is to the rest of the server, from and to what it is to gRPC.

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "google/rpc/status.pb.h"
#include "server/generation/service_context.h"
#include "server/generation/unread_answers.h"
#include "server/identity/call_context.h"

namespace annulus::server {

// Reads what the server needs to know of a call. `method` is a literal.
CallContext ReadCall(absl::string_view method, const PeerBook& peers,
                     const grpc::CallbackServerContext& call);

// Returns the status to finish the call with, and sets the trailers: annulus-request-id and, if it
// is known whether a retry helps, grpc-retry-pushback-ms.
grpc::Status ToGrpcStatus(const CallEnd& end, grpc::CallbackServerContext& call);

// The status that a client gets for `status`: see ToWireStatus.
grpc::Status ToGrpcStatus(const absl::Status& status);

// A gRPC call whose answers a client has to read.
class GrpcAnswering final : public Answering {
 public:
  explicit GrpcAnswering(grpc::CallbackServerContext& call) : call_(call) {}
  void CutOff() override { call_.TryCancel(); }
  bool ClientIsGone() const override { return call_.IsCancelled(); }

 private:
  grpc::CallbackServerContext& call_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_GRPC_CALL_H_
