#include "server/config/exposure.h"

#include "absl/strings/str_cat.h"
#include "server/config/loopback.h"

namespace annulus::server {

std::vector<Exposure> FindExposures(const ServerConfig& config) {
  std::vector<Exposure> found;
  const bool token = !config.auth_token_file.empty() || !config.tokens_file.empty();
  if (!IsLoopbackAddress(config.listen)) {
    if (config.tls_certificate.empty()) {
      found.push_back(
          {"listen", config.listen,
           "anybody who reaches this address can use the server, and whoever is on the "
           "way can read prompts and answers",
           "set --tls-certificate, --tls-key and --tokens-file or --auth-token-file, or "
           "--listen 127.0.0.1:50051"});
    } else if (!config.knows_callers()) {
      found.push_back({"listen", config.listen,
                       "anybody who reaches this address can use the server",
                       "set --tokens-file, --auth-token-file or --tls-client-ca, or --listen "
                       "127.0.0.1:50051"});
    }
  }
  if (config.metrics.empty() || IsLoopbackAddress(config.metrics)) return found;
  const bool known = token || !config.admin_token_file.empty() ||
                     (config.metrics_tls && !config.tls_client_ca.empty());
  if (!known) {
    found.push_back(
        {"metrics", config.metrics, "anybody who reaches this address can read the metrics",
         "set --metrics-tls and --tokens-file, --auth-token-file or --tls-client-ca, or "
         "--metrics 127.0.0.1:9464"});
  } else if (!config.metrics_tls) {
    found.push_back({"metrics", config.metrics,
                     "scrapers send the token to this address without TLS",
                     "set --metrics-tls, or --metrics 127.0.0.1:9464"});
  }
  return found;
}

absl::Status CheckExposure(const ServerConfig& config) {
  if (config.insecure) return absl::OkStatus();
  const std::vector<Exposure> found = FindExposures(config);
  if (found.empty()) return absl::OkStatus();
  const Exposure& first = found.front();
  return absl::InvalidArgumentError(
      absl::StrCat(first.option, ": on ", first.address, " ", first.danger, "; ", first.remedy,
                   ", or say --insecure if only those whom you trust can reach it"));
}

}  // namespace annulus::server
