#include "server/server_state.h"

namespace annulus {

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

}  // namespace annulus
