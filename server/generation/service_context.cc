#include "server/generation/service_context.h"

#include <grpc/support/time.h>
#include <sys/random.h>

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/identity/call_roles.h"
#include "server/net/connection_relay.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryBusyMs = 500;
// The most bytes of a call's headers, counted as in HTTP/2: 32 more for each header.
constexpr size_t kMostHeaderBytes = size_t{16} << 10;
constexpr size_t kHeaderOverhead = 32;

// Marks a refusal that came before the caller was identified.
constexpr char kNobodyPayload[] = "annulus/nobody";

}  // namespace

std::string ServiceContext::NewRequestId() {
  uint64_t number = 0;
  // Cannot fail for so few bytes once the system has booted.
  ANNULUS_CHECK(getrandom(&number, sizeof(number), 0) == sizeof(number));
  return absl::StrCat("r-", absl::Hex(number, absl::kZeroPad16));
}

grpc::Status ServiceContext::Conclude(const CallName& name, const absl::Status& status,
                                      grpc::CallbackServerContext& call) {
  const std::string id = name.id.empty() ? NewRequestId() : name.id;
  call.AddTrailingMetadata("annulus-request-id", id);
  if (const auto pushback = RetryPushback(status)) {
    call.AddTrailingMetadata("grpc-retry-pushback-ms", *pushback);
  }
  if (status.ok()) {
    metrics.CountCall(name.method, absl::StatusCode::kOk);
    log.Debug("call_done", {{"call", name.method}, {"id", id}});
    return grpc::Status::OK;
  }
  metrics.CountCall(name.method, static_cast<absl::StatusCode>(ToGrpcStatus(status).error_code()));
  // A lookup that finds nothing is not an error: clients look before they upload.
  if (name.method == "GetDocument" && absl::IsNotFound(status) && !HidesMessage(status)) {
    log.Debug("call_done", {{"call", name.method}, {"id", id}, {"found", "nothing"}});
    return ToGrpcStatus(status, id);
  }
  const std::string peer = name.peer.empty() ? ClientAddress(call.peer()) : name.peer;
  return Fail({name.method, name.tenant, id, peer}, status, TraceOf(call));
}

grpc::Status ServiceContext::Fail(const CallName& name, const absl::Status& status,
                                  const std::string& trace) {
  grpc::Status wire = ToGrpcStatus(status, name.id);
  const auto code = static_cast<absl::StatusCode>(wire.error_code());
  metrics.CountError(code);
  const bool ours = HidesMessage(status);
  const bool nobody =
      code == absl::StatusCode::kUnauthenticated || status.GetPayload(kNobodyPayload).has_value();
  log.FromClient(ours ? LogLevel::kError : LogLevel::kInfo, "call_failed",
                 {{"call", name.method},
                  {"id", name.id},
                  LogField::IfAny("tenant", nobody ? "" : name.tenant.name()),
                  {"peer", name.peer},
                  {"code", absl::StatusCodeToString(code)},
                  {ours ? "cause" : "message", ours ? status.ToString() : wire.error_message()},
                  LogField::IfAny("trace", trace)});
  return wire;
}

absl::Status ServiceContext::CheckHeaders(const grpc::CallbackServerContext& call) const {
  size_t bytes = 0;
  for (const auto& [name, value] : call.client_metadata()) {
    bytes += name.size() + value.size() + kHeaderOverhead;
  }
  if (bytes > kMostHeaderBytes) {
    absl::Status status = ReasonError(
        absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_MESSAGE_TOO_LARGE,
        absl::StrCat("the call's headers have ", bytes, " bytes; at most ", kMostHeaderBytes,
                     " are allowed: send less metadata"),
        {{"needed", absl::StrCat(bytes)}, {"available", absl::StrCat(kMostHeaderBytes)}});
    status.SetPayload(kNobodyPayload, absl::Cord());
    return status;
  }
  return absl::OkStatus();
}

absl::StatusOr<Identity> ServiceContext::Authenticate(
    const grpc::CallbackServerContext& call) const {
  ANNULUS_RETURN_IF_ERROR(CheckHeaders(call));
  return authenticator.Authenticate(call);
}

absl::Status ServiceContext::Admit(const grpc::CallbackServerContext& call,
                                   absl::string_view method, Identity& caller) const {
  ANNULUS_ASSIGN_OR_RETURN(caller, Authenticate(call));
  const Roles needed = RolesFor(method);
  if (needed.empty() || caller.roles.HasAnyOf(needed)) return absl::OkStatus();
  return ReasonError(
      absl::StatusCode::kPermissionDenied, v1::ERROR_REASON_ROLE_MISSING,
      absl::StrCat(method, " needs the role ", RolesText(needed, " or "),
                   "; this caller of the tenant ", caller.tenant.name(),
                   " has: ", RolesText(caller.roles, ", "),
                   "; use another token, or have the role added to the server's tokens file"));
}

absl::Status ServiceContext::CheckModel(absl::string_view name) const {
  if (name.empty() || name == config.served_model_name) return absl::OkStatus();
  return ResourceError(absl::StatusCode::kNotFound, v1::ERROR_REASON_MODEL_NOT_FOUND, "model", name,
                       absl::StrCat("there is no model ", QuoteName(name), "; this server has ",
                                    QuoteName(config.served_model_name)));
}

std::string ClientOf(const grpc::CallbackServerContext& call, const TenantId& tenant) {
  if (tenant != TenantId()) return absl::StrCat("tenant:", tenant.name());
  return AddressOf(ClientAddress(call.peer()));
}

absl::Status ServiceContext::PoolRefusal() const {
  if (pool.all().cancelled()) return DrainingError();
  return WithRetry(ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                               "too many requests, of yours or of all clients, wait to be read and "
                               "tokenized; try again in a moment"),
                   kRetryBusyMs);
}

std::string TraceOf(const grpc::CallbackServerContext& call) {
  constexpr size_t kTraceBegin = 3, kTraceDigits = 32, kLength = 55;
  const auto header = call.client_metadata().find("traceparent");
  if (header == call.client_metadata().end()) return "";
  const absl::string_view text(header->second.data(), header->second.size());
  if (text.size() != kLength || text.substr(0, 2) == "ff") return "";
  for (size_t i = 0; i < text.size(); ++i) {
    const bool dash = i == 2 || i == 35 || i == 52;
    const bool digit = absl::ascii_isdigit(text[i]) || (text[i] >= 'a' && text[i] <= 'f');
    if (dash ? text[i] != '-' : !digit) return "";
  }
  const absl::string_view trace = text.substr(kTraceBegin, kTraceDigits);
  return trace.find_first_not_of('0') == absl::string_view::npos ? "" : std::string(trace);
}

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

}  // namespace annulus::server
