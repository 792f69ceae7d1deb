#include "server/config/exposure.h"

#include "absl/strings/str_cat.h"
#include "server/config/loopback.h"

namespace annulus {

std::vector<Exposure> FindExposures(const ServerConfig& config) {
  std::vector<Exposure> found;
  const bool token = !config.auth_token_file.empty() || !config.tokens_file.empty();
  if (!IsLoopbackAddress(config.listen)) {
    if (config.tls_certificate.empty()) {
      found.push_back(
          {config.listen,
           "anybody who reaches this address can use the server, and whoever is on the "
           "way can read prompts and answers",
           "set --tls-certificate, --tls-key and --tokens-file or --auth-token-file, or "
           "--listen 127.0.0.1:50051"});
    } else if (!token && config.tls_client_ca.empty()) {
      found.push_back({config.listen, "anybody who reaches this address can use the server",
                       "set --tokens-file, --auth-token-file or --tls-client-ca, or --listen "
                       "127.0.0.1:50051"});
    }
  }
  if (config.metrics.empty() || IsLoopbackAddress(config.metrics)) return found;
  if (token || !config.admin_token_file.empty()) {
    found.push_back({config.metrics, "scrapers send the token to this address without TLS",
                     "set --metrics 127.0.0.1:9464 and put a proxy with TLS before it", false});
  } else {
    found.push_back({config.metrics, "anybody who reaches this address can read the metrics",
                     "set --tokens-file or --auth-token-file, or --metrics 127.0.0.1:9464", false});
  }
  return found;
}

absl::Status CheckExposure(const ServerConfig& config) {
  if (config.insecure) return absl::OkStatus();
  for (const Exposure& exposure : FindExposures(config)) {
    if (!exposure.of_calls) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("listen: on ", exposure.address, " ", exposure.danger, "; ", exposure.remedy,
                     ", or say --insecure if only those whom you trust can reach it"));
  }
  return absl::OkStatus();
}

}  // namespace annulus
