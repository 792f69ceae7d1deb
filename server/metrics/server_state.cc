#include "server/metrics/server_state.h"

namespace annulus::server {

v1::ServerState StateOf(const Lifecycle& lifecycle) {
  switch (lifecycle.phase()) {
    case Phase::kLoading:
      return v1::SERVER_STATE_LOADING;
    case Phase::kDraining:
      return v1::SERVER_STATE_DRAINING;
    case Phase::kFailed:
      return v1::SERVER_STATE_UNHEALTHY;
    case Phase::kServing:
      break;
  }
  const auto engine = lifecycle.engine();
  const bool healthy = engine.ok() && (*engine)->Load().healthy;
  return healthy ? v1::SERVER_STATE_SERVING : v1::SERVER_STATE_UNHEALTHY;
}

const char* StateName(v1::ServerState state) {
  switch (state) {
    case v1::SERVER_STATE_LOADING:
      return "loading";
    case v1::SERVER_STATE_SERVING:
      return "serving";
    case v1::SERVER_STATE_DRAINING:
      return "draining";
    default:
      return "unhealthy";
  }
}

}  // namespace annulus::server
