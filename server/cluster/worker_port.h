#ifndef ANNULUS_SERVER_CLUSTER_WORKER_PORT_H_
#define ANNULUS_SERVER_CLUSTER_WORKER_PORT_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/workers/worker_link.h"
#include "server/config/server_config.h"
#include "server/log/log.h"

namespace annulus::server {

// The port on which a coordinator's workers dial (--workers-listen). Whoever dials must belong to
// the ring's owner: with TLS by a certificate that --tls-client-ca signed and that has a name of
// the coordinator's own; else the peer must be a process of the same user on this machine. All
// others, and calls of other methods, get a status that says what the port is for and what to do;
// gRPC's listener bounds what they can make the process hold. Each refusal is a log line. TLS files
// that change are read again, for connections from then on; lines that stand stay.
class WorkerPort : public WorkerSource {
 public:
  // Listens at once; workers wait for Start. `log` must outlive the port. UNAVAILABLE if the
  // address cannot be used; NOT_FOUND or INVALID_ARGUMENT if a TLS file is bad.
  static absl::StatusOr<std::unique_ptr<WorkerPort>> Listen(const ServerConfig& config,
                                                            const Logger& log);

  virtual int port() const = 0;
  // Passes on what Report is told from now on; null: to nobody.
  virtual void Show(std::function<void(const std::string& missing)> missing) = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CLUSTER_WORKER_PORT_H_
