#include "client/connection.h"

#include <grpc/grpc.h>
#include <grpcpp/create_channel.h>
#include <grpcpp/security/credentials.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

constexpr char kDefaultPort[] = ":50051";
constexpr int kMaxReceivedBytes = 256 << 20;
// How often to ping the server while a call waits, to notice one that died. By default, servers
// reject pings more frequent than every five minutes.
constexpr int kKeepaliveMs = 6 * 60 * 1000;

absl::StatusOr<std::string> ReadTlsFile(absl::string_view flag, const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file.is_open() || text.empty()) {
    return absl::NotFoundError(
        absl::StrCat(flag, ": ", path, " cannot be read or is empty; name a PEM file"));
  }
  return text;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> TlsCredentials(
    const ConnectionOptions& options) {
  if (options.tls_cert_file.empty() != options.tls_key_file.empty()) {
    return absl::InvalidArgumentError(
        "a client certificate needs both --tls-cert and --tls-key; only one was given");
  }
  grpc::SslCredentialsOptions ssl;
  const auto read = [](absl::string_view flag, const std::string& path, std::string& into) {
    if (path.empty()) return absl::OkStatus();
    absl::StatusOr<std::string> text = ReadTlsFile(flag, path);
    if (text.ok()) into = *std::move(text);
    return text.status();
  };
  absl::Status status = read("--tls-ca", options.tls_ca_file, ssl.pem_root_certs);
  status.Update(read("--tls-cert", options.tls_cert_file, ssl.pem_cert_chain));
  status.Update(read("--tls-key", options.tls_key_file, ssl.pem_private_key));
  if (!status.ok()) return status;
  return grpc::SslCredentials(ssl);
}

// `server` is host and port. Checks them, because gRPC takes a port that it cannot parse for port
// 0, and so the last part of an IPv6 address without brackets.
absl::Status CheckServer(absl::string_view server) {
  if (absl::StartsWith(server, "unix:")) return absl::OkStatus();
  const size_t colon = server.rfind(':');
  const absl::string_view host = server.substr(0, colon);
  const bool is_host =
      absl::StartsWith(host, "[") ? absl::EndsWith(host, "]") : !absl::StrContains(host, ":");
  const bool web = absl::StartsWith(server, "http://") || absl::StartsWith(server, "https://");
  int port = 0;
  if (is_host && !web && absl::SimpleAtoi(server.substr(colon + 1), &port) && port > 0 &&
      port <= 65535) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--server: \"", server, "\" is not HOST:PORT, for example 127.0.0.1:50051",
                   web       ? "; remove the part before the host"
                   : is_host ? ""
                             : " or [::1]:50051: an IPv6 address needs brackets"));
}

// Keeps gRPC initialised when the last channel is destroyed. Its shutdown would join a thread that
// polls for up to 10 seconds after a large message, and the user would wait that long for the
// shell's prompt.
void HoldGrpc() { [[maybe_unused]] static const bool held = (grpc_init(), true); }

}  // namespace

std::string WithDefaultPort(absl::string_view server) {
  if (absl::StartsWith(server, "unix:")) return std::string(server);
  const size_t colon = server.rfind(':');
  const bool has_port = colon != absl::string_view::npos && !absl::EndsWith(server, "]");
  return has_port ? std::string(server) : absl::StrCat(server, kDefaultPort);
}

bool IsLocalServer(absl::string_view server) {
  const absl::string_view host = server.substr(0, server.rfind(':'));
  // A name may begin with 127. too.
  const bool loopback = absl::StartsWith(host, "127.") &&
                        host.find_first_not_of("0123456789.") == absl::string_view::npos;
  return absl::StartsWith(server, "unix:") || loopback || host == "localhost" || host == "[::1]";
}

absl::StatusOr<std::unique_ptr<Connection>> Connection::Open(const ConnectionOptions& options,
                                                             Cancellation& cancellation) {
  if (options.server.empty()) {
    return absl::InvalidArgumentError("--server is empty: give HOST:PORT");
  }
  HoldGrpc();
  std::string server = WithDefaultPort(options.server);
  if (absl::Status good = CheckServer(server); !good.ok()) return good;
  const bool encrypted = options.tls || !options.tls_ca_file.empty() ||
                         !options.tls_cert_file.empty() || !options.tls_key_file.empty() ||
                         !options.tls_server_name.empty();
  std::shared_ptr<grpc::ChannelCredentials> credentials = grpc::InsecureChannelCredentials();
  if (encrypted) {
    auto tls = TlsCredentials(options);
    if (!tls.ok()) return tls.status();
    credentials = *tls;
  }
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxReceivedBytes);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  // gRPC abandons an attempt to connect after this time, by default 20 s.
  const int connect_ms = static_cast<int>(options.connect_timeout.count());
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, connect_ms);
  // It also waits at least as long as its pause after a first failed attempt, by default 1 s.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, std::min(connect_ms, 1000));
  // The environment's http_proxy is meant for web traffic; it rarely leads to an annulusd.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  if (!options.tls_server_name.empty()) {
    arguments.SetSslTargetNameOverride(options.tls_server_name);
  }
  const auto channel = grpc::CreateCustomChannel(server, credentials, arguments);
  return std::unique_ptr<Connection>(
      new Connection(options, cancellation, channel, std::move(server), encrypted));
}

Connection::Connection(const ConnectionOptions& options, Cancellation& cancellation,
                       const std::shared_ptr<grpc::Channel>& channel, std::string server,
                       bool encrypted)
    : options_(options),
      cancellation_(cancellation),
      server_(std::move(server)),
      encrypted_(encrypted),
      inference_(v1::InferenceService::NewStub(channel)),
      documents_(v1::DocumentService::NewStub(channel)),
      models_(v1::ModelService::NewStub(channel)),
      admin_(v1::AdminService::NewStub(channel)) {}

Call::Call(Connection& connection) : scope_(connection.cancellation_, context_) {
  const ConnectionOptions& options = connection.options_;
  // gRPC converts this to its steady clock at once, so later jumps of the wall clock do not matter.
  if (options.timeout.has_value()) {
    context_.set_deadline(std::chrono::system_clock::now() + *options.timeout);
  }
  if (!options.token.empty()) {
    context_.AddMetadata("authorization", absl::StrCat("Bearer ", options.token));
  }
}

}  // namespace annulus::client
