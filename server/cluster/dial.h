#ifndef ANNULUS_SERVER_CLUSTER_DIAL_H_
#define ANNULUS_SERVER_CLUSTER_DIAL_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "engine/workers/worker_link.h"
#include "server/config/server_config.h"

namespace annulus::server {

// Dials the coordinator at config.join once, and returns a line to it. Checks that it is one: with
// TLS its certificate must be signed by --tls-client-ca and valid for the host; without, it must be
// a process of the same user on this machine (CheckOwnUser). Every wait is bounded, by 22 s in all.
// - UNAVAILABLE or DEADLINE_EXCEEDED: nobody listens there, it does not answer, or the connection
//   broke; another attempt may succeed.
// - Otherwise the address is wrong, or the coordinator refuses this process: the message says what
//   to do.
absl::StatusOr<std::unique_ptr<WorkerLink>> DialCoordinator(const ServerConfig& config);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CLUSTER_DIAL_H_
