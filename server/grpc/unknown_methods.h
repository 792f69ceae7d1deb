#ifndef ANNULUS_SERVER_GRPC_UNKNOWN_METHODS_H_
#define ANNULUS_SERVER_GRPC_UNKNOWN_METHODS_H_

#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/support/status.h>

#include <memory>

#include "server/identity/peer_book.h"

namespace annulus::server {

// A reactor that ends its call with `status`.
grpc::ServerGenericBidiReactor* RefuseCall(const grpc::Status& status);

// Answers calls to methods that no service has with UNIMPLEMENTED, as gRPC itself would, and counts
// them as refused. Thread-safe.
class UnknownMethods final : public grpc::CallbackGenericService {
 public:
  explicit UnknownMethods(std::shared_ptr<PeerBook> peers);

  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext* call) override;

 private:
  const std::shared_ptr<PeerBook> peers_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_UNKNOWN_METHODS_H_
