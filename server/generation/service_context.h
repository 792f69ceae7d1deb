#ifndef ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_
#define ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/base/memory_budget.h"
#include "server/config/server_config.h"
#include "server/documents/document_store.h"
#include "server/generation/delivery_thread.h"
#include "server/generation/shared_generation.h"
#include "server/generation/unread_answers.h"
#include "server/identity/admin_gate.h"
#include "server/identity/authenticator.h"
#include "server/identity/quota_book.h"
#include "server/log/log.h"
#include "server/metrics/server_metrics.h"
#include "server/work/lifecycle.h"
#include "server/work/work_pool.h"

namespace annulus::server {

// Names a call in the log and for the client.
struct CallName {
  absl::string_view method;
  TenantId tenant;
  std::string id;  // request id; empty: a new one is generated
  // ADDRESS:PORT of the client. Empty: ask gRPC, which no longer knows it once the call is torn
  // down.
  std::string peer;
};

// The objects that all services share. All are thread-safe and outlive every call.
struct ServiceContext {
  const ServerConfig& config;
  const Logger& log;
  const Authenticator& authenticator;
  const AdminGate& admin_gate;
  Lifecycle& lifecycle;
  DocumentStore& documents;
  ServerMetrics& metrics;
  WorkPool& pool;
  DeliveryThread& delivery;
  UnreadAnswers& unread;
  // Memory of all running calls: see CallMemory.
  const std::shared_ptr<MemoryBudget> prompts;
  AttachTable& attach;
  const std::shared_ptr<QuotaBook> quotas = std::make_shared<QuotaBook>();
  const SteadyTime started = std::chrono::steady_clock::now();

  // Generates an id for a request without one: "r-" and 16 hexadecimal digits. They are random, so
  // as not to reveal how many calls there are.
  static std::string NewRequestId();

  // Counts and logs the end of a call, and returns the status to send. Puts the call's id into the
  // trailer annulus-request-id and into the details of an error. If the status says when to retry,
  // or that no retry helps, also sets the trailer grpc-retry-pushback-ms: see RetryPushback.
  grpc::Status Conclude(const CallName& name, const absl::Status& status,
                        grpc::CallbackServerContext& call);

  // Counts and logs a failure, of a call or of a part of one, and returns its status for the
  // client. name.peer must be set. `trace`: see TraceOf.
  grpc::Status Fail(const CallName& name, const absl::Status& status, const std::string& trace);

  // The error for a job that the pool refused: the pool is busy, or the server is stopping.
  absl::Status PoolRefusal() const;

  // RESOURCE_EXHAUSTED if the call's headers are too large.
  absl::Status CheckHeaders(const grpc::CallbackServerContext& call) const;

  // Identifies the caller. Errors of CheckHeaders; UNAUTHENTICATED if the token or certificate is
  // not valid.
  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const;
  // Identifies the caller like Authenticate and checks that a role allows `method` (see RolesFor);
  // PERMISSION_DENIED otherwise. Also sets `caller` in that case, so that the log can say whose
  // call was refused.
  absl::Status Admit(const grpc::CallbackServerContext& call, absl::string_view method,
                     Identity& caller) const;

  // OK, or NOT_FOUND unless `name` is empty or the served model's.
  absl::Status CheckModel(absl::string_view name) const;
};

// Names the client whose share of the pool a call uses: the tenant; for callers without an
// identity, the address without the port.
std::string ClientOf(const grpc::CallbackServerContext& call, const TenantId& tenant);

// Returns the 32 digits of the trace id in the caller's metadata `traceparent` (W3C Trace Context);
// empty if there is none or it is malformed.
std::string TraceOf(const grpc::CallbackServerContext& call);

// The call's deadline on the steady clock; SteadyTime::max() if there is none. May be in the past.
SteadyTime SteadyDeadline(const grpc::CallbackServerContext& call);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_
