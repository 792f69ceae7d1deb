#include "server/grpc/unknown_methods.h"

#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

class Refusal final : public grpc::ServerGenericBidiReactor {
 public:
  explicit Refusal(const grpc::Status& status) { Finish(status); }
  void OnDone() override { delete this; }
};

}  // namespace

grpc::ServerGenericBidiReactor* RefuseCall(const grpc::Status& status) {
  return new Refusal(status);
}

UnknownMethods::UnknownMethods(std::shared_ptr<PeerBook> peers) : peers_(std::move(peers)) {}

grpc::ServerGenericBidiReactor* UnknownMethods::CreateReactor(
    grpc::GenericCallbackServerContext* call) {
  peers_->CountRefused(peers_->NumberOf(call->peer()), std::chrono::steady_clock::now());
  return RefuseCall({grpc::StatusCode::UNIMPLEMENTED,
                     absl::StrCat("this server has no method ", QuoteName(call->method()),
                                  "; it may be older than the client, or serve another API")});
}

}  // namespace annulus::server
