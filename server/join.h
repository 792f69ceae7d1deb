#ifndef ANNULUS_SERVER_JOIN_H_
#define ANNULUS_SERVER_JOIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/log/log.h"

namespace annulus::server {

// Loads the library by which ranks of several processes exchange data, and returns the network
// devices for it (FindWireDevices), so that a process without either ends at once. Call before
// other threads start: it sets variables of the environment. FAILED_PRECONDITION names the package
// to install.
absl::StatusOr<std::string> OpenWire(const ServerConfig& config);

// What the engine of a coordinator needs of its workers, who come from `source`. Of `config`, here
// and below, wire_devices must be set.
EngineWorkers WorkersOf(const ServerConfig& config, WorkerSource& source);

// Is a worker of the daemon at config.join: loads the model, dials until that daemon is there, and
// hosts ranks for it; dials again when it has left. SIGTERM ends the process at once, as a worker
// has nothing to keep; a rank that hangs ends it with status 3. Returns only an error that another
// attempt would meet again: of the model, of memory, a refusal, or an address where no coordinator
// is.
absl::Status Join(const ServerConfig& config, const Logger& log);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_JOIN_H_
