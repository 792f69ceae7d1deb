#include "server/config/exposure.h"

#include "absl/strings/str_cat.h"
#include "server/config/loopback.h"

namespace annulus::server {

namespace {

// Adds the exposure of a listener for calls, if there is one. `safe`: an address that is not
// exposed.
void AddForCalls(const ServerConfig& config, absl::string_view option, const std::string& address,
                 absl::string_view safe, std::vector<Exposure>& found) {
  if (address.empty() || IsLoopbackAddress(address)) return;
  const std::string name(option);
  const std::string other = absl::StrCat("--", option, " ", safe);
  if (config.tls_certificate.empty()) {
    found.push_back({name, address,
                     "anybody who can reach this address can use the server, and anybody on the "
                     "network path can read prompts and answers",
                     absl::StrCat("set --tls-certificate, --tls-key and --tokens-file or "
                                  "--auth-token-file, or ",
                                  other)});
  } else if (!config.knows_callers()) {
    found.push_back(
        {name, address, "anybody who can reach this address can use the server",
         absl::StrCat("set --tokens-file, --auth-token-file or --tls-client-ca, or ", other)});
  }
}

}  // namespace

std::vector<Exposure> FindExposures(const ServerConfig& config) {
  std::vector<Exposure> found;
  const bool token = !config.auth_token_file.empty() || !config.tokens_file.empty();
  AddForCalls(config, "listen", config.listen, "127.0.0.1:50051", found);
  AddForCalls(config, "http", config.http, "127.0.0.1:8000", found);
  if (config.metrics.empty() || IsLoopbackAddress(config.metrics)) return found;
  const bool known = token || !config.admin_token_file.empty() ||
                     (config.metrics_tls && !config.tls_client_ca.empty());
  if (!known) {
    found.push_back(
        {"metrics", config.metrics, "anybody who can reach this address can read the metrics",
         "set --metrics-tls and --tokens-file, --auth-token-file or --tls-client-ca, or "
         "--metrics 127.0.0.1:9464"});
  } else if (!config.metrics_tls) {
    found.push_back({"metrics", config.metrics,
                     "scrapers send their token to this address unencrypted",
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
                   ", or set --insecure if only people you trust can reach it"));
}

}  // namespace annulus::server
