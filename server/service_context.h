#ifndef ANNULUS_SERVER_SERVICE_CONTEXT_H_
#define ANNULUS_SERVER_SERVICE_CONTEXT_H_

#include <grpcpp/server_context.h>
#include <grpcpp/support/status.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "server/admin_gate.h"
#include "server/authenticator.h"
#include "server/config/server_config.h"
#include "server/delivery_thread.h"
#include "server/document_store.h"
#include "server/identity/quota_book.h"
#include "server/lifecycle.h"
#include "server/log.h"
#include "server/memory_budget.h"
#include "server/server_metrics.h"
#include "server/shared_generation.h"
#include "server/unread_answers.h"
#include "server/work_pool.h"

namespace annulus {

// How the log and the client name a call.
struct CallName {
  absl::string_view method;
  TenantId tenant;
  std::string id;    // empty: one of ours
  std::string peer;  // ADDRESS:PORT of the client; empty: as gRPC tells it, which it does no more
                     // once a call was torn down
};

// What every service shares. All of it is thread-safe and outlives every call.
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
  // Memory of the calls under way: see CallMemory.
  const std::shared_ptr<MemoryBudget> prompts;
  AttachTable& attach;
  const std::shared_ptr<QuotaBook> quotas = std::make_shared<QuotaBook>();
  const SteadyTime started = std::chrono::steady_clock::now();

  // A name for a request that brought none: "r-" and 16 random digits, which tell nobody how many
  // calls others make.
  static std::string NewRequestId();

  // Counts and logs how a call ended, and gives the status to send. The call's id goes into the
  // trailer annulus-request-id, and into the details of an error. A status that says when to try
  // again says so to gRPC's own retries too: the trailer grpc-retry-pushback-ms.
  grpc::Status Conclude(const CallName& name, const absl::Status& status,
                        grpc::CallbackServerContext& call);

  // The same for a part of a call that failed by itself: counts and logs it, and gives its status
  // as clients get it. `name` has its peer; `trace`: see TraceOf.
  grpc::Status Fail(const CallName& name, const absl::Status& status, const std::string& trace);

  // Why the pool took no job: it is busy, or the server stops.
  absl::Status PoolRefusal() const;

  // RESOURCE_EXHAUSTED if the call's headers are too large.
  absl::Status CheckHeaders(const grpc::CallbackServerContext& call) const;

  // Who calls: the headers are not too large, and the token or certificate is right.
  absl::StatusOr<Identity> Authenticate(const grpc::CallbackServerContext& call) const;
  // The same into `caller`, who must have a role that allows `method` (see RolesFor). Who has none
  // is in `caller` too: the log says whose call was refused.
  absl::Status Admit(const grpc::CallbackServerContext& call, absl::string_view method,
                     Identity& caller) const;

  // OK, or NOT_FOUND unless `name` is empty or the served model's.
  absl::Status CheckModel(absl::string_view name) const;
};

// Whose share of the pool a call uses: its tenant's, and of callers without an identity that of the
// address that they come from, whatever the port.
std::string ClientOf(const grpc::CallbackServerContext& call, const TenantId& tenant);

// The 32 digits of the trace that the caller's metadata `traceparent` names (W3C Trace Context), or
// empty if there is none or it is malformed.
std::string TraceOf(const grpc::CallbackServerContext& call);

// When the call must have ended, on the steady clock. A deadline that has passed gives a past time.
SteadyTime SteadyDeadline(const grpc::CallbackServerContext& call);

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVICE_CONTEXT_H_
