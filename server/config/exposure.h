#ifndef ANNULUS_SERVER_CONFIG_EXPOSURE_H_
#define ANNULUS_SERVER_CONFIG_EXPOSURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/server_config.h"

namespace annulus {

// A listener that others than this machine can reach, and what protects it too little.
struct Exposure {
  std::string option;  // "listen" or "metrics"
  std::string address;
  std::string danger;  // what anybody can do who reaches it
  std::string remedy;  // the options to set
};

// For warnings at start. Empty if everything listens on loopback addresses or has TLS and a token.
std::vector<Exposure> FindExposures(const ServerConfig& config);

// INVALID_ARGUMENT if calls or metrics are served to others without TLS or to anybody, and
// --insecure does not say that this is meant.
absl::Status CheckExposure(const ServerConfig& config);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_EXPOSURE_H_
