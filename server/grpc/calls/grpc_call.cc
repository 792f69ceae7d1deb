#include "server/grpc/calls/grpc_call.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <chrono>
#include <string>

#include "server/base/errors.h"
#include "server/identity/peer_book.h"

namespace annulus::server {
namespace {

// The call's deadline on the steady clock; SteadyTime::max() if there is none. May be in the past.
SteadyTime SteadyDeadline(const grpc::CallbackServerContext& call) {
  const gpr_timespec deadline = call.raw_deadline();
  const gpr_timespec infinite = gpr_inf_future(deadline.clock_type);
  if (gpr_time_cmp(deadline, infinite) == 0) return SteadyTime::max();
  const gpr_timespec left = gpr_time_sub(gpr_convert_clock_type(deadline, GPR_CLOCK_MONOTONIC),
                                         gpr_now(GPR_CLOCK_MONOTONIC));
  const auto now = std::chrono::steady_clock::now();
  // Treat a far deadline as none, because adding it to the current time could overflow.
  constexpr int64_t kFarSeconds = int64_t{10} * 365 * 24 * 3600;
  if (left.tv_sec >= kFarSeconds) return SteadyTime::max();
  const int64_t seconds = std::max<int64_t>(left.tv_sec, -1);
  return now + std::chrono::seconds(seconds) + std::chrono::nanoseconds(left.tv_nsec);
}

grpc::Status ToGrpc(const google::rpc::Status& status) {
  if (status.code() == 0) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), status.message(),
                      status.SerializeAsString());
}

}  // namespace

CallContext ReadCall(absl::string_view method, const PeerBook& peers,
                     const grpc::CallbackServerContext& call) {
  const std::string peer = call.peer();
  const PeerBook::Number connection = peers.NumberOf(peer);
  CallContext read{.method = method,
                   .peer = ClientAddress(peer),
                   .connection = connection,
                   .certificate_names = peers.CertificateNames(connection),
                   .deadline = SteadyDeadline(call)};
  read.headers.reserve(call.client_metadata().size());
  for (const auto& [name, value] : call.client_metadata()) {
    read.headers.emplace_back(std::string(name.data(), name.size()),
                              std::string(value.data(), value.size()));
  }
  if (const std::string* const parent = read.FindHeader("traceparent")) {
    read.trace = ParseTraceParent(*parent);
  }
  return read;
}

grpc::Status ToGrpcStatus(const CallEnd& end, grpc::CallbackServerContext& call) {
  call.AddTrailingMetadata("annulus-request-id", end.request_id);
  if (end.retry_pushback.has_value()) {
    call.AddTrailingMetadata("grpc-retry-pushback-ms", *end.retry_pushback);
  }
  return ToGrpc(end.status);
}

grpc::Status ToGrpcStatus(const absl::Status& status) { return ToGrpc(ToWireStatus(status)); }

}  // namespace annulus::server
