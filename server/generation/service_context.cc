#include "server/generation/service_context.h"

#include <sys/random.h>

#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/identity/call_roles.h"

namespace annulus::server {
namespace {

constexpr int64_t kRetryBusyMs = 500;
// The most bytes of a call's headers, counted as in HTTP/2: 32 more for each header.
constexpr size_t kMostHeaderBytes = size_t{16} << 10;

// Marks a refusal that came before the caller was identified.
constexpr char kNobodyPayload[] = "annulus/nobody";

}  // namespace

std::string ServiceContext::NewRequestId() {
  uint64_t number = 0;
  // Cannot fail for so few bytes once the system has booted.
  ANNULUS_CHECK(getrandom(&number, sizeof(number), 0) == sizeof(number));
  return absl::StrCat("r-", absl::Hex(number, absl::kZeroPad16));
}

CallEnd ServiceContext::Conclude(const CallContext& call, const absl::Status& status,
                                 std::string id) {
  CallEnd end{.request_id = id.empty() ? NewRequestId() : std::move(id),
              .retry_pushback = RetryPushback(status)};
  if (status.ok()) {
    metrics.CountCall(call.method, absl::StatusCode::kOk);
    log.Debug("call_done", {{"call", call.method}, {"id", end.request_id}});
    return end;
  }
  metrics.CountCall(call.method,
                    HidesMessage(status) ? absl::StatusCode::kInternal : status.code());
  // A lookup that finds nothing is not an error: clients look before they upload.
  if (call.method == "GetDocument" && absl::IsNotFound(status) && !HidesMessage(status)) {
    log.Debug("call_done", {{"call", call.method}, {"id", end.request_id}, {"found", "nothing"}});
    end.status = ToWireStatus(status, end.request_id);
  } else {
    end.status = Fail(call, end.request_id, status);
  }
  return end;
}

google::rpc::Status ServiceContext::Fail(const CallContext& call, const std::string& id,
                                         const absl::Status& status) {
  google::rpc::Status wire = ToWireStatus(status, id);
  const auto code = static_cast<absl::StatusCode>(wire.code());
  metrics.CountError(code);
  const bool ours = HidesMessage(status);
  const bool nobody =
      code == absl::StatusCode::kUnauthenticated || status.GetPayload(kNobodyPayload).has_value();
  log.FromClient(ours ? LogLevel::kError : LogLevel::kInfo, "call_failed",
                 {{"call", call.method},
                  {"id", id},
                  LogField::IfAny("tenant", nobody ? "" : call.caller.tenant.name()),
                  {"peer", call.peer},
                  {"code", absl::StatusCodeToString(code)},
                  {ours ? "cause" : "message", ours ? status.ToString() : wire.message()},
                  LogField::IfAny("trace", call.trace.trace)});
  return wire;
}

absl::Status ServiceContext::CheckHeaders(const CallContext& call) const {
  const size_t bytes = call.header_bytes();
  if (bytes <= kMostHeaderBytes) return absl::OkStatus();
  absl::Status status =
      ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_MESSAGE_TOO_LARGE,
                  absl::StrCat("the call's headers have ", bytes, " bytes; at most ",
                               kMostHeaderBytes, " are allowed; send less metadata"),
                  {{"needed", absl::StrCat(bytes)}, {"available", absl::StrCat(kMostHeaderBytes)}});
  status.SetPayload(kNobodyPayload, absl::Cord());
  return status;
}

absl::Status ServiceContext::Authenticate(CallContext& call) const {
  const auto identify = [&]() -> absl::Status {
    ANNULUS_RETURN_IF_ERROR(CheckHeaders(call));
    ANNULUS_ASSIGN_OR_RETURN(call.caller, authenticator.Authenticate(call));
    return absl::OkStatus();
  };
  const absl::Status known = identify();
  if (known.ok()) {
    peers.CountKnown(call.connection);
  } else {
    peers.CountRefused(call.connection, std::chrono::steady_clock::now());
  }
  return known;
}

absl::Status ServiceContext::Admit(CallContext& call) const {
  if (call.admitted) return absl::OkStatus();
  const absl::Status known = Authenticate(call);
  std::vector<CallContext::Header>().swap(call.headers);
  ANNULUS_RETURN_IF_ERROR(known);
  const Roles needed = RolesFor(call.method);
  call.admitted = needed.empty() || call.caller.roles.HasAnyOf(needed);
  if (call.admitted) return absl::OkStatus();
  return ReasonError(
      absl::StatusCode::kPermissionDenied, v1::ERROR_REASON_ROLE_MISSING,
      absl::StrCat(call.method, " needs the role ", RolesText(needed, " or "),
                   "; this caller of the tenant ", call.caller.tenant.name(),
                   " has: ", RolesText(call.caller.roles, ", "),
                   "; use another token, or ask the operator to add the role to the tokens file"));
}

absl::Status ServiceContext::CheckDocumentsLoaded() const {
  return documents.folder() == nullptr ? absl::OkStatus() : lifecycle.engine().status();
}

absl::Status ServiceContext::CheckModel(absl::string_view name) const {
  if (name.empty() || name == config.served_model_name) return absl::OkStatus();
  return ResourceError(absl::StatusCode::kNotFound, v1::ERROR_REASON_MODEL_NOT_FOUND, "model", name,
                       absl::StrCat("there is no model ", QuoteName(name), "; this server has ",
                                    QuoteName(config.served_model_name)));
}

absl::Status ServiceContext::PoolRefusal() const {
  if (pool.all().cancelled()) return DrainingError();
  return WithRetry(ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_QUEUE_FULL,
                               "too many requests (yours or those of all clients) are waiting to "
                               "be decoded and tokenized; try again in a moment"),
                   kRetryBusyMs);
}

}  // namespace annulus::server
