#include "server/grpc_listener.h"

#include <grpc/compression.h>
#include <grpc/grpc.h>
#include <grpcpp/ext/proto_server_reflection_plugin.h>
#include <grpcpp/health_check_service_interface.h>
#include <grpcpp/resource_quota.h>
#include <grpcpp/server_builder.h>

#include <algorithm>
#include <chrono>
#include <limits>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Messages up to twice the limit are read, so that the refusal can say what to do instead.
constexpr size_t kReceiveFactor = 2;
constexpr int kMaxStreamsPerConnection = 1024;
// Of one call's headers, unpacked. gRPC ends the whole connection for more, so calls with too many
// below that are left to ServiceContext::Admit, which refuses them alone.
constexpr int kMaxMetadataBytes = 128 << 10;
// Of one header block as it is sent, with its frames: a header of 64 KiB, and the 16 KiB that a
// call may have.
constexpr size_t kMostHeaderBlockBytes = size_t{80} << 10;
// A peer's first words, and its answer to a ping, are waited for as long as the silence that leads
// to a ping, but not longer than this.
constexpr int kLongestWaitMs = 10'000;
constexpr int kMaxIdleMs = 300'000;        // a connection without a call; clients come back
constexpr int kMinPingIntervalMs = 5'000;  // a peer that pings more often is disconnected
constexpr int kMaxPingStrikes = 2;
constexpr int kMostTrustedConnections = 32;
constexpr int kMaxSyncThreads = 16;  // reflection only; everything else uses callbacks

// An upload that sends nothing is ended by itself, before its connection is.
constexpr std::chrono::milliseconds kAfterUploads{2'000};

// Calls that are open and messages that clients have begun and not ended may take as much as those
// that are complete, in addition: less would end connections that only send much at once. And
// always one message.
size_t MostUnfinishedBytes(const ServerConfig& config) {
  return config.max_prompts_memory + config.max_message_bytes * kReceiveFactor;
}

void Harden(const ServerConfig& config, grpc::ServerBuilder& builder) {
  // gRPC counts in int, and takes a negative number for none given.
  const auto limit = [](size_t bytes) {
    return static_cast<int>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
  };
  builder.SetMaxReceiveMessageSize(limit(config.max_message_bytes * kReceiveFactor));
  builder.SetMaxSendMessageSize(limit(config.max_message_bytes));
  // Small compressed messages can unpack to huge ones, and this gRPC checks only the small size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  const int silence_ms = static_cast<int>(config.keepalive_time.count());
  const int wait_ms = std::min(silence_ms, kLongestWaitMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, silence_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, wait_ms);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS,
                             kMinPingIntervalMs);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kMaxPingStrikes);
  builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, wait_ms);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONNECTION_IDLE_MS, kMaxIdleMs);
  grpc::ResourceQuota quota("annulus");
  quota.SetMaxThreads(kMaxSyncThreads);
  // With TLS this alone bounds messages that are not complete, and at the price of calls that did
  // nothing wrong; without, the relay ends the connection at fault long before.
  quota.Resize(config.max_prompts_memory + 2 * MostUnfinishedBytes(config));
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
}

// Keeps gRPC from shutting itself down with the last server: it would join a thread of its own that
// polls for up to 10 seconds after a large message (run_poller in its tcp_posix.cc), and the
// process ends well without.
void HoldGrpc() { [[maybe_unused]] static const bool held = (grpc_init(), true); }

using ExternalAcceptor = std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>;

// Builds listener.server, and the door by which it is given connections.
absl::StatusOr<ExternalAcceptor> BuildServer(const ServerConfig& config,
                                             const std::vector<grpc::Service*>& services,
                                             GrpcListener& listener) {
  HoldGrpc();
  // Both are settings of the process in this gRPC; they say which services it adds to servers.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Harden(config, builder);
  ExternalAcceptor door = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      listener.credentials);
  for (grpc::Service* service : services) builder.RegisterService(service);
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) {
    return absl::UnavailableError("gRPC does not start; --log-level debug shows its reason");
  }
  listener.server->GetHealthCheckService()->SetServingStatus(false);
  return door;
}

// Gives the connections that come to the server, through the relay if there is one.
void StartTaking(int max_connections, ExternalAcceptor door, GrpcListener& listener) {
  listener.acceptor->Start(max_connections, [door, relay = listener.relay.get()](int connection) {
    if (relay != nullptr) connection = relay->Connect(connection);
    if (connection < 0) return;
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
    parameters.fd = connection;
    door->HandleNewConnection(&parameters);
  });
}

}  // namespace

absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services,
                                       std::shared_ptr<TlsFiles> tls,
                                       ConnectionRelay::Report report) {
  GrpcListener listener;
  listener.credentials = MakeServerCredentials(std::move(tls));
  auto acceptor = ConnectionAcceptor::Listen(config.listen);
  if (!acceptor.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", acceptor.status().message(),
                                               "; choose another address with --listen"));
  }
  listener.acceptor = *std::move(acceptor);
  ANNULUS_ASSIGN_OR_RETURN(ExternalAcceptor door, BuildServer(config, services, listener));
  if (config.tls_certificate.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(
        listener.relay, ConnectionRelay::Start({kMostHeaderBlockBytes, MostUnfinishedBytes(config),
                                                config.upload_timeout + kAfterUploads},
                                               std::move(report)));
  }
  StartTaking(config.max_connections, std::move(door), listener);
  return listener;
}

absl::StatusOr<GrpcListener> StartTrustedGrpc(const ServerConfig& config, grpc::Service& service,
                                              std::unique_ptr<ConnectionAcceptor> acceptor) {
  GrpcListener listener;
  listener.credentials = MakeServerCredentials(nullptr);
  listener.acceptor = std::move(acceptor);
  ANNULUS_ASSIGN_OR_RETURN(ExternalAcceptor door, BuildServer(config, {&service}, listener));
  StartTaking(kMostTrustedConnections, std::move(door), listener);
  return listener;
}

void GrpcListener::Shutdown(std::chrono::milliseconds grace) {
  acceptor.reset();
  // gRPC's interface wants wall-clock time; only a difference matters.
  server->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace annulus
