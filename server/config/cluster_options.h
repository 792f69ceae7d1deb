#ifndef ANNULUS_SERVER_CONFIG_CLUSTER_OPTIONS_H_
#define ANNULUS_SERVER_CONFIG_CLUSTER_OPTIONS_H_

#include "absl/status/status.h"
#include "server/config/options.h"
#include "server/config/server_config.h"

namespace annulus::server {

// INVALID_ARGUMENT if options of a ring over several processes do not go together, or not with
// others. `texts`: of the options that were set.
absl::Status CheckCluster(const ServerConfig& config, const OptionTexts& texts);

// A worker serves metrics only if they were asked for: several on one machine would have the same
// default address.
void LeaveOutUnsetMetrics(const OptionTexts& texts, ServerConfig& config);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_CLUSTER_OPTIONS_H_
