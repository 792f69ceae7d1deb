#ifndef ANNULUS_SERVER_METRICS_SERVER_STATE_H_
#define ANNULUS_SERVER_METRICS_SERVER_STATE_H_

#include "annulus/v1/admin.pb.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// The state that GetServerInfo and the metric annulus_server_state report.
v1::ServerState StateOf(const Lifecycle& lifecycle);

// "loading", "serving", "draining" or "unhealthy".
const char* StateName(v1::ServerState state);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_METRICS_SERVER_STATE_H_
