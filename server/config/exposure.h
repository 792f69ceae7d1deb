#ifndef ANNULUS_SERVER_CONFIG_EXPOSURE_H_
#define ANNULUS_SERVER_CONFIG_EXPOSURE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "server/config/server_config.h"

namespace annulus::server {

// A listener that other machines can reach and that is not protected enough.
struct Exposure {
  std::string option;  // "listen", "http" or "metrics"
  std::string address;
  std::string danger;  // what anybody who can reach it may do
  std::string remedy;  // the options to set
};

// Returns the exposed listeners, for warnings at start. A listener is not exposed if its address is
// loopback, or if it has TLS and requires a token or a client certificate.
std::vector<Exposure> FindExposures(const ServerConfig& config);

// INVALID_ARGUMENT if there is an exposed listener, unless --insecure allows it.
absl::Status CheckExposure(const ServerConfig& config);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_EXPOSURE_H_
