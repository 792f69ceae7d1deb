#ifndef ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_
#define ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_

#include <memory>
#include <optional>
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
#include "server/identity/call_context.h"
#include "server/identity/peer_book.h"
#include "server/identity/quota_book.h"
#include "server/log/log.h"
#include "server/metrics/memory_report.h"
#include "server/metrics/server_metrics.h"
#include "server/traces/span_queue.h"
#include "server/work/client_shares.h"
#include "server/work/lifecycle.h"
#include "server/work/work_pool.h"

namespace annulus::server {

// What the client is told at the end of a call.
struct CallEnd {
  google::rpc::Status status = {};  // code 0: OK
  std::string request_id = {};
  // See RetryPushback: milliseconds, or -1 if no retry helps.
  std::optional<std::string> retry_pushback = std::nullopt;
};

// What a download holds.
inline constexpr size_t kDownloadBytes = 4 * kFileBlockBytes;  // of the text at a time
// Its blocks, the message and its encoded form.
inline constexpr size_t kDownloadMemory = 3 * kDownloadBytes;

// The objects that all services share. All are thread-safe and outlive every call.
struct ServiceContext {
  const ServerConfig& config;
  const Logger& log;
  const Authenticator& authenticator;
  PeerBook& peers;  // is told how calls begin
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
  SpanQueue* spans = nullptr;  // gets those of generations; null: nobody wants any
  const std::shared_ptr<QuotaBook> quotas = std::make_shared<QuotaBook>();
  // Of `prompts`: what the downloads of one client hold together, which last as long as it likes.
  ClientShares downloads{prompts->limit(), kDownloadMemory};
  const SteadyTime started = std::chrono::steady_clock::now();

  // Generates an id for a request without one: "r-" and 16 hexadecimal digits. They are random, so
  // as not to reveal how many calls there are.
  static std::string NewRequestId();

  // Counts and logs the end of a call. `id` names the call in the log and for the client; empty: a
  // new one is generated.
  CallEnd Conclude(const CallContext& call, const absl::Status& status, std::string id = "");

  // Counts and logs a failure, of a call or of a part of one, and returns its status for the
  // client.
  google::rpc::Status Fail(const CallContext& call, const std::string& id,
                           const absl::Status& status);

  // The error for a job that the pool refused: the pool is busy, or the server is stopping.
  absl::Status PoolRefusal() const;

  // RESOURCE_EXHAUSTED if the call's headers are too large.
  absl::Status CheckHeaders(const CallContext& call) const;

  // Identifies the caller, sets `call.caller` and tells `peers`. Errors of CheckHeaders;
  // UNAUTHENTICATED if the token or certificate is not valid.
  absl::Status Authenticate(CallContext& call) const;
  // Identifies the caller like Authenticate and checks that a role allows the method (see
  // RolesFor); PERMISSION_DENIED otherwise. Sets the caller also in that case, so that the log can
  // say whose call was refused. Drops the headers, which nothing needs any more. No-op for a call
  // that it has let in already: a transport may ask before the request's bytes have come.
  absl::Status Admit(CallContext& call) const;

  // Memory that documents and kept answers took at most.
  HeldMost held_most() const { return {documents.memory_most(), attach.most_bytes()}; }

  // UNAVAILABLE while documents of an earlier process may not have been loaded.
  absl::Status CheckDocumentsLoaded() const;

  // OK, or NOT_FOUND unless `name` is empty or the served model's.
  absl::Status CheckModel(absl::string_view name) const;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GENERATION_SERVICE_CONTEXT_H_
