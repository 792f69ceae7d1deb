#include "server/grpc/grpc_listener.h"

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
#include "server/grpc/unknown_methods.h"

namespace annulus::server {
namespace {

// gRPC reads messages up to twice the limit, so that our own error can say what to do.
constexpr size_t kReceiveFactor = 2;
constexpr int kMaxStreamsPerConnection = 1024;
// The most bytes of one call's headers, unpacked. Beyond this, gRPC closes the whole connection.
// ServiceContext::CheckHeaders has a lower limit, beyond which it refuses only the call.
constexpr int kMaxMetadataBytes = 128 << 10;
// The most bytes of one header block as sent, including its frames: one header of 64 KiB, plus the
// 16 KiB that a call may have.
constexpr size_t kMostHeaderBlockBytes = size_t{80} << 10;
// Upper bound of LongestWait; below it that is --keepalive-time.
constexpr std::chrono::milliseconds kLongestWait{10'000};
constexpr int kMaxIdleMs = 300'000;        // then a connection without calls is closed
constexpr int kMinPingIntervalMs = 5'000;  // a peer that pings more often is disconnected
constexpr int kMaxPingStrikes = 2;
constexpr int kMostTrustedConnections = 32;
constexpr int kMaxSyncThreads = 16;  // reflection only; everything else uses callbacks

// Added to the upload timeout, so that a silent upload ends by itself before its connection is
// closed.
constexpr std::chrono::milliseconds kAfterUploads{2'000};

// The time that a peer has for its TLS handshake, for the first frames and for the answer to a
// ping.
std::chrono::milliseconds LongestWait(const GrpcPort& port) {
  return std::min(port.keepalive_time, kLongestWait);
}

// Of the connections, so that those whose handshake is not complete cannot take all places.
size_t MostHandshakes(const GrpcPort& port) {
  return static_cast<size_t>(std::max(port.max_connections / 8, 1));
}

// The port for clients.
GrpcPort PortOf(const ServerConfig& config) {
  GrpcPort port;
  port.address = config.listen;
  port.option = "--listen";
  port.max_connections = config.max_connections;
  port.keepalive_time = config.keepalive_time;
  port.message_time = config.upload_timeout + kAfterUploads;
  port.received_bytes = config.max_message_bytes * kReceiveFactor;
  port.sent_bytes = config.max_message_bytes;
  // As much again as for complete requests, since less would close connections that only send much
  // at once, plus always one message.
  port.unfinished_bytes = config.max_prompts_memory + port.received_bytes;
  port.message_bytes = config.max_prompts_memory;
  return port;
}

void Harden(const GrpcPort& port, grpc::ServerBuilder& builder) {
  // gRPC takes an int, and treats a negative number as not set.
  const auto limit = [](size_t bytes) {
    return static_cast<int>(std::min<size_t>(bytes, std::numeric_limits<int>::max()));
  };
  builder.SetMaxReceiveMessageSize(limit(port.received_bytes));
  builder.SetMaxSendMessageSize(limit(port.sent_bytes));
  // Refuse compression: a small message can unpack to a huge one, and gRPC 1.51 checks only the
  // small size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kMaxStreamsPerConnection);
  builder.AddChannelArgument(GRPC_ARG_MAX_METADATA_SIZE, kMaxMetadataBytes);
  const int silence_ms = static_cast<int>(port.keepalive_time.count());
  const int wait_ms = static_cast<int>(LongestWait(port).count());
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
  // A last resort, at which innocent calls may fail too: the relay closes the connection that is
  // responsible long before.
  quota.Resize(port.message_bytes + 2 * port.unfinished_bytes);
  builder.SetResourceQuota(quota);
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
}

// Keeps gRPC initialised when the last server is destroyed. Its shutdown would join a thread that
// polls for up to 10 seconds after a large message (run_poller in tcp_posix.cc); the process can
// end without that.
void HoldGrpc() { [[maybe_unused]] static const bool held = (grpc_init(), true); }

using ExternalAcceptor = std::shared_ptr<grpc::experimental::ExternalConnectionAcceptor>;

// Builds listener.server. Returns the object through which it is given connections.
absl::StatusOr<ExternalAcceptor> BuildServer(GrpcPort& port, GrpcListener& listener) {
  HoldGrpc();
  // In gRPC 1.51 these two are process-wide: they make it add these services to its servers.
  grpc::EnableDefaultHealthCheckService(true);
  grpc::reflection::InitProtoReflectionServerBuilderPlugin();
  grpc::ServerBuilder builder;
  Harden(port, builder);
  ExternalAcceptor door = builder.experimental().AddExternalConnectionAcceptor(
      grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD,
      grpc::InsecureServerCredentials());
  for (grpc::Service* service : port.services) builder.RegisterService(service);
  listener.others = std::move(port.others);
  if (listener.others != nullptr) builder.RegisterCallbackGenericService(listener.others.get());
  listener.server = builder.BuildAndStart();
  if (listener.server == nullptr) {
    return absl::UnavailableError(
        "the gRPC server cannot start; start annulusd with --log-level debug to see gRPC's reason");
  }
  listener.server->GetHealthCheckService()->SetServingStatus(false);
  return door;
}

void HandOver(const ExternalAcceptor& door, int connection) {
  if (connection < 0) return;
  grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters parameters;
  parameters.fd = connection;
  door->HandleNewConnection(&parameters);
}

// Starts passing accepted connections to the relay, after their handshake if there is TLS, and from
// there to the server.
absl::Status StartTaking(const GrpcPort& port, std::shared_ptr<TlsFiles> tls, ExternalAcceptor door,
                         GrpcListener& listener) {
  ConnectionRelay* const relay = listener.relay.get();
  const auto make_room = [relay](const std::string& client) { return relay->MakeRoomFor(client); };
  if (tls == nullptr) {
    listener.acceptor->Start(
        port.max_connections, [door, relay](int client) { HandOver(door, relay->Connect(client)); },
        make_room);
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(
      listener.handshakes,
      TlsHandshakes::Start(
          std::make_unique<TlsStreams>(std::move(tls), TlsStreams::For::kCalls),
          {LongestWait(port), MostHandshakes(port)},
          [door, relay](int client, std::unique_ptr<PeerStream> stream) {
            HandOver(door, relay->Connect(client, std::move(stream)));
          },
          port.handshake_failed));
  listener.acceptor->Start(
      port.max_connections,
      [handshakes = listener.handshakes.get()](int client) { handshakes->Begin(client); },
      make_room);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<GrpcListener> StartGrpc(GrpcPort port, std::shared_ptr<TlsFiles> tls,
                                       std::shared_ptr<PeerBook> peers,
                                       ConnectionRelay::Report report) {
  GrpcListener listener;
  auto acceptor = ConnectionAcceptor::Listen(port.address);
  if (!acceptor.ok()) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", acceptor.status().message(),
                                               "; choose another address with ", port.option));
  }
  listener.acceptor = *std::move(acceptor);
  ANNULUS_ASSIGN_OR_RETURN(ExternalAcceptor door, BuildServer(port, listener));
  ANNULUS_ASSIGN_OR_RETURN(
      listener.relay,
      ConnectionRelay::Start({kMostHeaderBlockBytes, port.unfinished_bytes, port.message_time},
                             std::move(report), std::move(peers)));
  ANNULUS_RETURN_IF_ERROR(StartTaking(port, std::move(tls), std::move(door), listener));
  return listener;
}

absl::StatusOr<GrpcListener> StartGrpc(const ServerConfig& config,
                                       const std::vector<grpc::Service*>& services,
                                       std::shared_ptr<TlsFiles> tls,
                                       std::shared_ptr<PeerBook> peers,
                                       ConnectionRelay::Report report) {
  GrpcPort port = PortOf(config);
  port.services = services;
  port.others = std::make_unique<UnknownMethods>(peers);
  return StartGrpc(std::move(port), std::move(tls), std::move(peers), std::move(report));
}

absl::StatusOr<GrpcListener> StartTrustedGrpc(const ServerConfig& config, grpc::Service& service,
                                              std::unique_ptr<ConnectionAcceptor> acceptor) {
  GrpcListener listener;
  listener.acceptor = std::move(acceptor);
  GrpcPort port = PortOf(config);
  port.services = {&service};
  ANNULUS_ASSIGN_OR_RETURN(ExternalAcceptor door, BuildServer(port, listener));
  listener.acceptor->Start(kMostTrustedConnections,
                           [door](int connection) { HandOver(door, connection); });
  return listener;
}

void GrpcListener::Shutdown(std::chrono::milliseconds grace) {
  acceptor.reset();
  handshakes.reset();
  // gRPC's interface takes wall-clock time, but uses only the difference to now.
  server->Shutdown(std::chrono::system_clock::now() + grace);
}

}  // namespace annulus::server
