// Options of addresses, access, limits for clients, shutdown and log.

#include <chrono>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

// Web pages' origins, as browsers send them: "SCHEME://HOST" or "SCHEME://HOST:PORT".
absl::StatusOr<std::vector<std::string>> ParseOrigins(absl::string_view text) {
  std::vector<std::string> origins = absl::StrSplit(text, ',', absl::SkipEmpty());
  for (const std::string& origin : origins) {
    const size_t host = origin.find("://");
    const bool has_host = host != std::string::npos && host > 0 && host + 3 < origin.size();
    if (!has_host || origin.find_first_of("/ ", host + 3) != std::string::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat(QuoteValue(origin),
                       " is not allowed: give origins such as https://a.example or "
                       "http://localhost:8080, separated by commas"));
    }
  }
  return origins;
}

// Longest path of a Unix socket: the size of sun_path without the NUL at its end.
constexpr size_t kLongestSocketPath = 107;

absl::StatusOr<std::string> ParseAdminListen(absl::string_view text) {
  absl::string_view path = text;
  if (text == "off") return std::string();
  if (text == "auto") return std::string(text);
  if (!absl::ConsumePrefix(&path, "unix:") || !absl::StartsWith(path, "/") ||
      path.size() > kLongestSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat(QuoteValue(text),
                                                   " is not allowed: unix:/PATH of at most ",
                                                   kLongestSocketPath, " bytes, auto, or off"));
  }
  return ParseText(path);
}

}  // namespace

absl::StatusOr<std::string> ParseOptionalAddress(absl::string_view text) {
  if (text == "off") return std::string();
  absl::StatusOr<std::string> address = ParseHostPort(text);
  if (address.ok()) return address;
  return absl::InvalidArgumentError(absl::StrCat(address.status().message(), ", or off"));
}

std::vector<Option> ServiceOptions() {
  return {
      {"listen", "HOST:PORT", "127.0.0.1:50051", "Address of the gRPC services.",
       Into(&ServerConfig::listen, ParseHostPort)},
      {"admin-listen", "unix:/PATH|auto|off", "auto",
       "Unix socket of AdminService, including Drain, without a token: whoever can open it may use "
       "it (mode 0600: this user and root). auto: admin.sock in systemd's RUNTIME_DIRECTORY, else "
       "annulus-PORT.sock in "
       "XDG_RUNTIME_DIR, else PORT.sock in /tmp/annulus-UID.",
       Into(&ServerConfig::admin_listen, ParseAdminListen)},
      {"http", "HOST:PORT|off", "off",
       "Address of the HTTP APIs (OpenAI's and Anthropic's), with the same TLS, tokens and "
       "certificates as --listen.",
       Into(&ServerConfig::http, ParseOptionalAddress)},
      {"http-heartbeat", "TIME", "5s",
       "How often the server writes to an HTTP client whose answer has not begun, so that the "
       "client does not time out on long prompts.",
       Within(&ServerConfig::http_heartbeat, milliseconds(10), hours(1))},
      {"http-linger", "TIME", "60s",
       "How long an HTTP request with an Idempotency-Key continues after its connection is closed, "
       "so that a retry finds it; 0s: not at all.",
       Within(&AttachLimits::linger, milliseconds(0), hours(1))},
      {"http-origins", "ORIGIN,..", "",
       "Origins of web pages that may use the HTTP APIs (CORS), such as https://chat.example; all "
       "others are refused.",
       Into(&ServerConfig::http_origins, ParseOrigins)},
      {"http-page", "on|off", "on",
       "Serve a page at / of the HTTP address, on which people choose documents and ask. It holds "
       "no data; its calls need the token that the others need.",
       OneOf(&ServerConfig::http_page, {{"on", true}, {"off", false}})},
      {"max-connections", "N", "1024",
       "Largest number of open gRPC connections, and of open HTTP connections; one more "
       "closes an idle one, or one of the client with most, or is closed itself.",
       Within(&ServerConfig::max_connections, 1, 1'000'000)},
      {"keepalive-time", "TIME", "15s",
       "Ping a gRPC connection that is silent for this long; close it if no answer comes within "
       "the same time, or 10s if that is less.",
       Within(&ServerConfig::keepalive_time, milliseconds(100), hours(2))},
      {"metrics", "HOST:PORT|off", "127.0.0.1:9464",
       "Address of /metrics for Prometheus, and of the probes /healthz and /readyz. A worker "
       "(--join) has none unless this is set.",
       Into(&ServerConfig::metrics, ParseOptionalAddress)},
      {"otlp-endpoint", "HOST:PORT|off", "off",
       "OpenTelemetry collector that gets a trace of each generation, by OTLP over gRPC without "
       "TLS.",
       Into(&ServerConfig::otlp_endpoint, ParseOptionalAddress)},
      {"metrics-tls", "on|off", "off",
       "Serve metrics and probes over HTTPS, with --tls-certificate and --tls-key. With "
       "--tls-client-ca scrapers may show a certificate instead of a token.",
       OneOf(&ServerConfig::metrics_tls, {{"on", true}, {"off", false}}),
       /*bare=*/true},
      {"tls-certificate", "FILE", "", "PEM chain of the server; with --tls-key turns TLS on.",
       Into(&ServerConfig::tls_certificate, ParseText)},
      {"tls-key", "FILE", "", "PEM key that belongs to --tls-certificate.",
       Into(&ServerConfig::tls_key, ParseText)},
      {"tls-client-ca", "FILE", "",
       "PEM certificates of the authorities that sign client certificates. Every client must then "
       "present one (mutual TLS), and --tokens-file can map certificates to tenants.",
       Into(&ServerConfig::tls_client_ca, ParseText)},
      {"auth-token-file", "FILE", "", "File whose first line clients must send as a bearer token.",
       Into(&ServerConfig::auth_token_file, ParseText)},
      {"insecure", "on|off", "off",
       "Allow serving on an address that other machines can reach without TLS, or without tokens "
       "or client certificates. Only for networks where you trust everybody.",
       OneOf(&ServerConfig::insecure, {{"on", true}, {"off", false}}),
       /*bare=*/true},
      {"tokens-file", "FILE", "",
       "YAML file of tenants: hashes of their tokens, names of their certificates, roles and "
       "quotas. Replaces --auth-token-file; its format is in server/identity/README.md.",
       Into(&ServerConfig::tokens_file, ParseText)},
      {"admin-token-file", "FILE", "",
       "File whose first line, sent as a bearer token, also allows AdminService.Drain on --listen; "
       "empty: only callers with the role admin in --tokens-file may call it there.",
       Into(&ServerConfig::admin_token_file, ParseText)},
      {"max-message-size", "SIZE", "16MiB", "Largest gRPC message, received or sent.",
       Within(&ServerConfig::max_message_bytes, 64 << 10, kGiB)},
      {"max-document-size", "SIZE", "1GiB", "Largest uploaded document, in bytes of UTF-8.",
       Within(&DocumentLimits::max_document_bytes, 1, 64 * kGiB)},
      {"max-documents", "N", "10000", "Largest number of uploaded documents.",
       Within(&DocumentLimits::max_documents, 0, 10'000'000)},
      {"max-documents-memory", "SIZE", "1GiB", "Memory for all uploaded documents together.",
       Within(&DocumentLimits::max_memory, 0, 64 * kTiB)},
      {"documents", "DIR", "",
       "Folder that keeps the bytes of uploaded documents (mode 0700, one daemon for each): they "
       "outlive a restart, and `annulus documents get` returns them. Documents that clients "
       "upload for one question are not written. Empty: documents are lost when the daemon stops.",
       Into(&DocumentLimits::folder, ParseText)},
      {"documents-size", "SIZE", "16GiB", "Largest total size of the files in --documents.",
       Within(&DocumentLimits::folder_bytes, 0, 64 * kTiB)},
      {"max-prompts-memory", "SIZE", "1GiB",
       "Memory for all calls in progress: received and decoded messages, token ids, unary answers.",
       Within(&ServerConfig::max_prompts_memory, kMiB, 64 * kTiB)},
      {"attach-window", "TIME", "10m",
       "How long a complete answer is kept for retries with the same request_id; 0s: not at all.",
       Within(&AttachLimits::window, milliseconds(0), hours(24))},
      {"max-replay-memory", "SIZE", "64MiB",
       "Memory for answers that are kept for retries (requests with a request_id). When it is "
       "full, the tenant that uses most loses its oldest complete answer that nobody is reading, "
       "then the kept part of its largest running answer.",
       Within(&AttachLimits::memory, 0, 64 * kTiB)},
      {"upload-timeout", "TIME", "60s",
       "End an upload that sends nothing, or almost nothing, for this long; also close a "
       "connection with a call whose message does not arrive in this time.",
       Within(&ServerConfig::upload_timeout, milliseconds(100), hours(24))},
      {"grace-time", "TIME", "30s",
       "How long admitted requests may continue when the server stops; the process exits at most 3 "
       "s later.",
       Within(&ServerConfig::grace_time, milliseconds(0), hours(24))},
      {"log-format", "text|json", "text",
       "Format of log lines: text (key=value), or JSON objects with the same keys.",
       OneOf(&ServerConfig::log_format, {{"text", LogFormat::kText}, {"json", LogFormat::kJson}})},
      {"log-level", "debug|info|warning|error", "info", "Lowest level that is logged.",
       OneOf(&ServerConfig::log_level, {{"debug", LogLevel::kDebug},
                                        {"info", LogLevel::kInfo},
                                        {"warning", LogLevel::kWarning},
                                        {"error", LogLevel::kError}}),
       /*bare=*/false, /*reloads=*/true},
  };
}

}  // namespace annulus::server
