// Where and for whom the server listens, what it holds for clients, and how it ends and logs.

#include <chrono>
#include <cstddef>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "server/config/option_setters.h"

namespace annulus::server {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

absl::Status SetMetrics(absl::string_view text, ServerConfig& config) {
  if (text == "off") {
    config.metrics.clear();
    return absl::OkStatus();
  }
  auto address = ParseHostPort(text);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(address.status().message(), ", or off"));
  }
  config.metrics = *std::move(address);
  return absl::OkStatus();
}

// Longest path of a Unix socket: the size of sun_path without the NUL at its end.
constexpr size_t kLongestSocketPath = 107;

absl::Status SetAdminListen(absl::string_view text, ServerConfig& config) {
  absl::string_view path = text;
  if (text == "auto" || text == "off") {
    config.admin_listen = text == "off" ? "" : "auto";
    return absl::OkStatus();
  }
  if (!absl::ConsumePrefix(&path, "unix:") || !absl::StartsWith(path, "/") ||
      path.size() > kLongestSocketPath) {
    return absl::InvalidArgumentError(absl::StrCat(QuoteValue(text),
                                                   " is not allowed: unix:/PATH of at most ",
                                                   kLongestSocketPath, " bytes, auto, or off"));
  }
  return SetText(path, config.admin_listen);
}

}  // namespace

std::vector<Option> ServiceOptions() {
  return {
      {"listen", "HOST:PORT", "127.0.0.1:50051", "Address of the gRPC services.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.listen, ParseHostPort(text));
         return absl::OkStatus();
       }},
      {"admin-listen", "unix:/PATH|auto|off", "auto",
       "Unix socket of AdminService, Drain included, for whoever may open it (mode 0600: this user "
       "and root); auto: admin.sock in systemd's RUNTIME_DIRECTORY, else annulus-PORT.sock in "
       "XDG_RUNTIME_DIR, else PORT.sock in /tmp/annulus-UID.",
       SetAdminListen},
      {"max-connections", "N", "1024",
       "Most gRPC connections at once; further ones are closed at once.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1'000'000, c.max_connections);
       }},
      {"keepalive-time", "TIME", "15s",
       "A gRPC connection that is silent for this long is pinged, and closed if it does not answer "
       "soon.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(100), hours(2), c.keepalive_time);
       }},
      {"metrics", "HOST:PORT|off", "127.0.0.1:9464", "Address of the Prometheus endpoint.",
       SetMetrics},
      {"metrics-tls", "on|off", "off",
       "Serve metrics and probes over HTTPS, with --tls-certificate and --tls-key. With "
       "--tls-client-ca scrapers may show a certificate instead of a token.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"on", true}, {"off", false}}, c.metrics_tls);
       },
       /*bare=*/true},
      {"tls-certificate", "FILE", "", "PEM chain of the server; with --tls-key turns TLS on.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_certificate); }},
      {"tls-key", "FILE", "", "PEM key that belongs to --tls-certificate.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_key); }},
      {"tls-client-ca", "FILE", "",
       "PEM certificates of the authorities that sign clients' certificates: every client must "
       "have one (mutual TLS), and --tokens-file can name tenants by theirs.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_client_ca); }},
      {"auth-token-file", "FILE", "", "File whose first line clients must send as a bearer token.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.auth_token_file); }},
      {"insecure", "on|off", "off",
       "Serve on an address that other machines can reach even without TLS, or without tokens or "
       "certificates of callers. For networks with only people you trust.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"on", true}, {"off", false}}, c.insecure);
       },
       /*bare=*/true},
      {"tokens-file", "FILE", "",
       "YAML file of tenants: hashes of their tokens, names of their certificates, roles and "
       "quotas. Instead of --auth-token-file; server/identity/README.md has its form.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tokens_file); }},
      {"admin-token-file", "FILE", "",
       "File whose first line, sent as a bearer token, allows AdminService.Drain on --listen too; "
       "empty: only callers with the role admin of --tokens-file may call it there.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.admin_token_file); }},
      {"max-message-size", "SIZE", "16MiB", "Largest gRPC message, received or sent.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 64 << 10, kGiB, c.max_message_bytes);
       }},
      {"max-document-size", "SIZE", "1GiB", "Largest uploaded document, as UTF-8.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 1, 64 * kGiB, c.documents.max_document_bytes);
       }},
      {"max-documents", "N", "10000", "Most uploaded documents.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 0, 10'000'000, c.documents.max_documents);
       }},
      {"max-documents-memory", "SIZE", "1GiB", "Memory for all uploaded documents together.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 0, 64 * kTiB, c.documents.max_memory);
       }},
      {"max-prompts-memory", "SIZE", "1GiB",
       "Memory for all calls in progress: requests as sent and decoded, their token ids, unary "
       "answers.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, kMiB, 64 * kTiB, c.max_prompts_memory);
       }},
      {"attach-window", "TIME", "10m",
       "How long a complete answer is kept for calls with the same request_id; 0s: not at all.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(0), hours(24), c.attach.window);
       }},
      {"max-replay-memory", "SIZE", "64MiB",
       "Memory for answers to requests with a request_id. When it is full, the tenant that takes "
       "most loses its oldest complete answer that nobody is reading, then what is kept of its "
       "largest running one.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 0, 64 * kTiB, c.attach.memory);
       }},
      {"upload-timeout", "TIME", "60s",
       "An upload that sends nothing, or hardly anything, for this long is cut off; so is a "
       "connection with a call whose message does not arrive.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(100), hours(24), c.upload_timeout);
       }},
      {"grace-time", "TIME", "30s",
       "How long admitted requests may go on when the server stops; the process ends 3 s later at "
       "the latest.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(0), hours(24), c.grace_time);
       }},
      {"log-format", "text|json", "text",
       "Form of a log line: words, or a JSON object with the same keys.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<LogFormat>(text, {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                                     c.log_format);
       }},
      {"log-level", "debug|info|warning|error", "info", "Lowest severity that is logged.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<LogLevel>(text,
                                    {{"debug", LogLevel::kDebug},
                                     {"info", LogLevel::kInfo},
                                     {"warning", LogLevel::kWarning},
                                     {"error", LogLevel::kError}},
                                    c.log_level);
       },
       /*bare=*/false, /*reloads=*/true},
  };
}

}  // namespace annulus::server
