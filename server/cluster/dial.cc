#include "server/cluster/dial.h"

#include <grpcpp/create_channel.h>
#include <grpcpp/create_channel_posix.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/support/client_callback.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <future>
#include <memory>
#include <mutex>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"
#include "server/cluster/control_line.h"
#include "server/identity/tls_files.h"
#include "server/net/socket_address.h"
#include "server/net/socket_user.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;

constexpr int kConnectMs = 5'000;
constexpr int kProbeMs = 2'000;
constexpr milliseconds kAnswerTime{10'000};
constexpr int kKeepaliveMs = 10'000;  // the coordinator allows a ping every 5 s

// gRPC's callbacks run on threads that end with the last channel that has used them, and it waits
// for them then (CallbackAlternativeCQ in gRPC 1.51): so no callback may drop that channel.
void KeepUntilNext(std::shared_ptr<grpc::Channel> channel) {
  static std::mutex mutex;
  static auto* const kept = new std::shared_ptr<grpc::Channel>;
  std::lock_guard lock(mutex);
  kept->swap(channel);
}

// The worker's end of a line.
class CoordinatorCall final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>,
                              public ControlLine {
 public:
  static std::shared_ptr<CoordinatorCall> Begin(std::shared_ptr<grpc::Channel> channel) {
    std::shared_ptr<CoordinatorCall> line(new CoordinatorCall(channel));
    line->Keep(line);
    line->stub_.PrepareBidiStreamingCall(&line->context_, kControlMethod, grpc::StubOptions(),
                                         line.get());
    line->AddHold();
    line->StartCall();
    KeepUntilNext(std::move(channel));
    return line;
  }

  // OK once the coordinator has taken the call, else the status with which it ended.
  absl::Status WaitUntilTaken(milliseconds limit) {
    std::future<absl::Status> taken = taken_.get_future();
    if (taken.wait_for(limit) == std::future_status::ready) return taken.get();
    context_.TryCancel();
    const absl::Status status = taken.get();
    if (status.ok()) return status;
    return absl::DeadlineExceededError(
        absl::StrCat("does not answer as a coordinator within ", limit.count() / 1000, " s"));
  }

  void OnReadInitialMetadataDone(bool ok) override {
    is_taken_ = ok && context_.GetServerInitialMetadata().count(kControlHeader) > 0;
    if (is_taken_) return taken_.set_value(absl::OkStatus());
    StartRead(&nothing_);  // whose end brings the status
  }
  void OnReadDone(bool ok) override {
    if (is_taken_) return OnRead(ok);
    if (ok) context_.TryCancel();  // another service, which goes on
    RemoveHold();
  }
  void OnWriteDone(bool ok) override { OnWritten(ok); }
  void OnDone(const grpc::Status& status) override {
    const absl::Status why(static_cast<absl::StatusCode>(status.error_code()),
                           status.error_message());
    if (!is_taken_) {
      taken_.set_value(why.ok() ? absl::UnimplementedError("it ended the call") : why);
    }
    OnEnded(why);
  }

 private:
  explicit CoordinatorCall(std::shared_ptr<grpc::Channel> channel)
      : ControlLine(/*held=*/true), channel_(std::move(channel)), stub_(channel_) {}

  void BeginRead(grpc::ByteBuffer& into) override { StartRead(&into); }
  void BeginWrite(const grpc::ByteBuffer& message) override { StartWrite(&message); }
  void SayEnd(const absl::Status& why) override {
    if (why.ok()) return StartWritesDone();
    context_.TryCancel();
  }
  void LetGo(const absl::Status&, bool) override { RemoveHold(); }
  void Cancel() override { context_.TryCancel(); }

  const std::shared_ptr<grpc::Channel> channel_;
  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  std::promise<absl::Status> taken_;
  bool is_taken_ = false;  // set before the first read
  grpc::ByteBuffer nothing_;
};

std::string SystemError(int error) { return std::generic_category().message(error); }

struct Socket {
  explicit Socket(int descriptor) : descriptor(descriptor) {}
  ~Socket() {
    if (descriptor >= 0) close(descriptor);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  int Release() { return std::exchange(descriptor, -1); }
  int descriptor;
};

// Connects within kConnectMs; else returns the error.
int ConnectTo(const addrinfo& target, const Socket& socket) {
  if (connect(socket.descriptor, target.ai_addr, target.ai_addrlen) == 0) return 0;
  if (errno != EINPROGRESS) return errno;
  pollfd ready{socket.descriptor, POLLOUT, 0};
  if (poll(&ready, 1, kConnectMs) != 1) return ETIMEDOUT;
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.descriptor, SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

// A connected socket. `address`: HOST:PORT.
absl::StatusOr<int> Connect(const std::string& address) {
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.size() >= 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &found);
  if (code != 0) return absl::UnavailableError(gai_strerror(code));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> list(found, &freeaddrinfo);
  int error = 0;
  for (const addrinfo* target = found; target != nullptr; target = target->ai_next) {
    Socket socket(::socket(target->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    error = socket.descriptor < 0 ? errno : ConnectTo(*target, socket);
    if (error != 0) continue;
    const int on = 1;
    setsockopt(socket.descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
    return socket.Release();
  }
  return absl::UnavailableError(SystemError(error));
}

grpc::ChannelArguments ArgumentsOf() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(static_cast<int>(kMostControlBytes));
  arguments.SetMaxSendMessageSize(static_cast<int>(kMostControlBytes));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);  // each attempt connects anew
  return arguments;
}

// What a status of gRPC means to whoever started the worker.
absl::Status Explained(const std::string& address, const absl::Status& status) {
  if (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
      absl::IsPermissionDenied(status)) {
    return {status.code(), absl::StrCat(address, ": ", status.message())};
  }
  return absl::FailedPreconditionError(
      absl::StrCat(address,
                   " is no coordinator; give --join the address of --workers-listen, not that of "
                   "--listen (",
                   status.message(), ")"));
}

// Whether a server of HTTP/1 is there, which gRPC reports like a broken connection.
bool IsWebServer(const std::string& address) {
  constexpr absl::string_view kPreface = "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
  constexpr absl::string_view kAnswer = "HTTP/";
  const absl::StatusOr<int> connected = Connect(address);
  if (!connected.ok()) return false;
  const Socket socket(*connected);
  std::array<char, kAnswer.size()> bytes{};
  pollfd ready{socket.descriptor, POLLIN, 0};
  return send(socket.descriptor, kPreface.data(), kPreface.size(), MSG_NOSIGNAL) > 0 &&
         poll(&ready, 1, kProbeMs) == 1 &&
         recv(socket.descriptor, bytes.data(), bytes.size(), 0) == kAnswer.size() &&
         absl::string_view(bytes.data(), bytes.size()) == kAnswer;
}

absl::StatusOr<std::unique_ptr<WorkerLink>> DialPlain(const std::string& address) {
  const absl::StatusOr<int> connected = Connect(address);
  if (!connected.ok()) return Explained(address, connected.status());
  const std::string peer = PeerAddress(*connected);
  const uint16_t own_port = OwnPort(*connected);
  const auto line = CoordinatorCall::Begin(
      grpc::CreateCustomInsecureChannelFromFd(address, *connected, ArgumentsOf()));
  const absl::Status taken = line->WaitUntilTaken(kAnswerTime);
  if ((absl::IsUnavailable(taken) || absl::IsInternal(taken)) && IsWebServer(address)) {
    return absl::FailedPreconditionError(
        absl::StrCat(address,
                     " is a web server and no coordinator; give --join the address of "
                     "--workers-listen"));
  }
  if (!taken.ok()) return Explained(address, taken);
  auto link = MakeControlLink(line, address);
  // Now that it has answered, the other end has accepted the connection and so has an owner.
  ANNULUS_RETURN_IF_ERROR(CheckOwnUser(peer, own_port));
  return link;
}

absl::StatusOr<std::unique_ptr<WorkerLink>> DialWithTls(const std::string& address,
                                                        const TlsFiles::Pems& pems) {
  const grpc::SslCredentialsOptions files = {pems.client_ca, pems.key, pems.certificate};
  const auto line = CoordinatorCall::Begin(
      grpc::CreateCustomChannel(address, grpc::SslCredentials(files), ArgumentsOf()));
  const absl::Status taken = line->WaitUntilTaken(kAnswerTime);
  if (!taken.ok()) return Explained(address, taken);
  return MakeControlLink(line, address);
}

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerLink>> DialCoordinator(const ServerConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const std::shared_ptr<TlsFiles> tls, TlsFiles::Open(config));
  if (tls == nullptr) return DialPlain(config.join);
  return DialWithTls(config.join, *tls->current());
}

}  // namespace annulus::server
