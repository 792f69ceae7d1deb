#include "server/grpc_listener.h"

#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <fstream>
#include <iterator>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Messages up to twice the limit are read, so that the refusal can say what to do instead.
constexpr int kReceiveFactor = 2;
constexpr int kMaxStreamsPerConnection = 1024;
constexpr int kMaxMetadataBytes = 16 << 10;
constexpr int kKeepaliveMs = 30'000;         // a silent peer is pinged this often ..
constexpr int kKeepaliveTimeoutMs = 10'000;  // .. and is gone without an answer by then
constexpr int kMinPingIntervalMs = 5'000;    // a peer that pings more often is disconnected
constexpr int kMaxPingStrikes = 2;
constexpr int kHandshakeTimeoutMs = 10'000;
constexpr int kMaxSyncThreads = 16;  // reflection only; everything else uses callbacks

absl::StatusOr<std::string> ReadPem(absl::string_view option, const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  std::string content((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.is_open() || stream.bad()) {
    return absl::NotFoundError(absl::StrCat(option, ": cannot read ", path));
  }
  if (content.find("-----BEGIN ") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat(option, ": ", path, " is not a PEM file"));
  }
  return content;
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> Credentials(const ServerConfig& config) {
  if (config.tls_certificate.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions::PemKeyCertPair pair;
  ANNULUS_ASSIGN_OR_RETURN(pair.cert_chain, ReadPem("tls-certificate", config.tls_certificate));
  ANNULUS_ASSIGN_OR_RETURN(pair.private_key, ReadPem("tls-key", config.tls_key));
  grpc::SslServerCredentialsOptions options;
  options.pem_key_cert_pairs.push_back(std::move(pair));
  return grpc::SslServerCredentials(options);
}

void Harden(const ServerConfig& config, grpc::ServerBuilder& builder) {
  const int max_message = static_cast<int>(config.max_message_bytes);
  builder.SetMaxReceiveMessageSize(max_message * kReceiveFactor);
  builder.SetMaxSendMessageSize(max_message);
  // Small compressed messages can unpack to huge ones, and this gRPC checks only the small size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeTimeoutMs);
  // Two servers must not share a port unnoticed.
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  grpc::ResourceQuota quota("annulus");
  quota.SetMaxThreads(kMaxSyncThreads);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
}

}  // namespace

absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services) {
  ANNULUS_ASSIGN_OR_RETURN(const auto credentials, Credentials(config));
  // Both are settings of the process in this gRPC; they say which services it adds to servers.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Harden(config, builder);
  GrpcListener listener;
  builder.AddListeningPort(config.listen, credentials, &listener.port);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr || listener.port == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", config.listen,
        ": the port is in use, not this machine's address, or the TLS files do not fit each other; "
        "choose another address with --listen"));
  }
  listener.server->GetHealthCheckService()->SetServingStatus(false);
  return listener;
}

}  // namespace annulus
