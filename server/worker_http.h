#ifndef ANNULUS_SERVER_WORKER_HTTP_H_
#define ANNULUS_SERVER_WORKER_HTTP_H_

#include <memory>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/log/log.h"

namespace annulus::server {

// The endpoint for operators of a worker's process, on config.metrics: see StartOperatorHttp.
// /healthz says that the process answers: one whose rank hangs ends itself. /readyz is good while
// its ranks are in a ring. Files of tokens and certificates are read again when they change.
class WorkerHttp {
 public:
  // The errors of StartOperatorHttp, Credentials::Open and TlsFiles::Open. `log` must outlive it.
  static absl::StatusOr<std::unique_ptr<WorkerHttp>> Start(const ServerConfig& config,
                                                           const Logger& log);
  virtual ~WorkerHttp() = default;

  // The worker to tell of, once its model is loaded; it must outlive the endpoint.
  virtual void Show(const Worker& worker) = 0;
  virtual int port() const = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORKER_HTTP_H_
