#include "server/http/http_responder.h"

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus::server {

// A request that waits for the end of the round.
class HttpResponder::Asked final : public HttpExchange,
                                   public std::enable_shared_from_this<HttpResponder::Asked> {
 public:
  Asked(HttpResponder& responder, HttpRequest request, const Handler& handler,
        std::shared_ptr<HttpReply> reply)
      : responder_(responder),
        request_(std::move(request)),
        handler_(handler),
        reply_(std::move(reply)) {}

  void Start(BodyBytes) override { responder_.asked_.push_back(shared_from_this()); }
  // Requests have no body here, and there is no memory for one.
  void Refuse(const absl::Status&) override {
    Send({.status = 413, .body = "the request has a body, but this path accepts none\n"});
  }
  void OnWritten() override {}
  void OnBeat() override {}
  void OnGone() override {}
  void OnOver() override {}

  void Answer(uint64_t round) {
    request_.round = round;
    Send(handler_(request_));
  }

 private:
  // If the client has gone meanwhile, the answer goes nowhere.
  void Send(const HttpAnswer& answer) {
    reply_->Send(Serialize(answer, /*keep_alive=*/false, request_.method != "HEAD"),
                 HttpReply::End::kLast);
  }

  HttpResponder& responder_;
  HttpRequest request_;
  const Handler& handler_;
  const std::shared_ptr<HttpReply> reply_;
};

absl::StatusOr<std::unique_ptr<HttpResponder>> HttpResponder::Start(
    const std::string& address, Routes routes, std::unique_ptr<TlsStreams> tls) {
  HttpListener::Options options{.address = address,
                                .max_connections = kMostConnections,
                                .any_makes_room = true,
                                .limits = {.request = {kMostHeadBytes, SIZE_MAX},
                                           .idle_time = kTimeToAsk,
                                           .head_time = kTimeToAsk,
                                           .unread_time = kTimeToRead,
                                           .heartbeat = std::chrono::milliseconds(0),
                                           .keep_alive = false}};
  std::unique_ptr<HttpResponder> responder(new HttpResponder(std::move(routes)));
  // No request's body is taken, so none needs memory.
  ANNULUS_ASSIGN_OR_RETURN(responder->listener_,
                           HttpListener::Start(std::move(options), *responder,
                                               std::make_shared<MemoryBudget>(0), std::move(tls)));
  return responder;
}

HttpService::Opening HttpResponder::Open(HttpRequest request, const std::string&,
                                         std::shared_ptr<HttpReply> reply) {
  const auto route = routes_.find(request.path);
  if (route == routes_.end()) {
    std::string known = "there is nothing at this path; known paths are";
    for (const auto& [path, handler] : routes_) absl::StrAppend(&known, " ", path);
    return HttpAnswer{.status = 404, .body = absl::StrCat(known, "\n")};
  }
  if (request.method != "HEAD" && request.method != "GET") {
    return HttpAnswer{
        .status = 405, .body = "GET and HEAD only\n", .headers = {"Allow: GET, HEAD"}};
  }
  return std::make_shared<Asked>(*this, std::move(request), route->second, std::move(reply));
}

void HttpResponder::OnTurn() {
  if (asked_.empty()) return;
  ++round_;
  for (const auto& asked : std::exchange(asked_, {})) asked->Answer(round_);
}

HttpAnswer HttpResponder::OnFault(const HttpFault& fault) {
  return {.status = fault.status, .body = absl::StrCat(fault.message, "\n")};
}

}  // namespace annulus::server
