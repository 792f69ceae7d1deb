#include "server/config/exposure.h"

#include "server/config/loopback.h"

namespace annulus {

std::vector<Exposure> FindExposures(const ServerConfig& config) {
  std::vector<Exposure> found;
  const bool token = !config.auth_token_file.empty();
  if (!IsLoopbackAddress(config.listen)) {
    if (config.tls_certificate.empty()) {
      found.push_back({config.listen,
                       "anybody who reaches this address can use the server, and whoever is on the "
                       "way can read prompts and answers",
                       "set --tls-certificate, --tls-key and --auth-token-file, or --listen "
                       "127.0.0.1:50051"});
    } else if (!token) {
      found.push_back({config.listen, "anybody who reaches this address can use the server",
                       "set --auth-token-file, or --listen 127.0.0.1:50051"});
    }
  }
  if (config.metrics.empty() || IsLoopbackAddress(config.metrics)) return found;
  if (token || !config.admin_token_file.empty()) {
    found.push_back({config.metrics, "scrapers send the token to this address without TLS",
                     "set --metrics 127.0.0.1:9464 and put a proxy with TLS before it"});
  } else {
    found.push_back({config.metrics, "anybody who reaches this address can read the metrics",
                     "set --auth-token-file, or --metrics 127.0.0.1:9464"});
  }
  return found;
}

}  // namespace annulus
