#ifndef ANNULUS_CLIENT_CONNECTION_H_
#define ANNULUS_CLIENT_CONNECTION_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "client/cancellation.h"

namespace annulus {

inline constexpr char kDefaultServer[] = "127.0.0.1:50051";

struct ConnectionOptions {
  std::string server = kDefaultServer;  // HOST, HOST:PORT, [IPv6]:PORT or unix:PATH; port 50051
  std::optional<std::chrono::milliseconds> timeout{};  // of each call; absent: none
  // Of each attempt to connect, until the server has answered; gRPC takes a second at least.
  std::chrono::milliseconds connect_timeout{5000};
  std::string token{};            // sent as a bearer token; empty: none
  bool tls = false;               // implied by each of the following
  std::string tls_ca_file{};      // PEM; empty: the system's certificate authorities
  std::string tls_cert_file{};    // PEM, together with tls_key_file; empty: no client certificate
  std::string tls_key_file{};     // PEM
  std::string tls_server_name{};  // name to expect in the server's certificate; empty: the host
};

// A channel to one server and the stubs of its services. Connects lazily, at the first call.
// Thread-safe.
class Connection {
 public:
  // INVALID_ARGUMENT for options that contradict each other, NOT_FOUND for a file that cannot be
  // read. `cancellation` must outlive the connection.
  static absl::StatusOr<std::unique_ptr<Connection>> Open(const ConnectionOptions& options,
                                                          Cancellation& cancellation);

  v1::InferenceService::Stub& inference() { return *inference_; }
  v1::DocumentService::Stub& documents() { return *documents_; }
  v1::ModelService::Stub& models() { return *models_; }
  v1::AdminService::Stub& admin() { return *admin_; }

  // The address in use, port included.
  const std::string& server() const { return server_; }
  bool encrypted() const { return encrypted_; }

 private:
  friend class Call;
  Connection(const ConnectionOptions& options, Cancellation& cancellation,
             const std::shared_ptr<grpc::Channel>& channel, std::string server, bool encrypted);

  const ConnectionOptions options_;
  Cancellation& cancellation_;
  const std::string server_;
  const bool encrypted_;
  const std::unique_ptr<v1::InferenceService::Stub> inference_;
  const std::unique_ptr<v1::DocumentService::Stub> documents_;
  const std::unique_ptr<v1::ModelService::Stub> models_;
  const std::unique_ptr<v1::AdminService::Stub> admin_;
};

// One call: its context has the connection's deadline and token and can be cancelled. Keep it until
// the call has ended.
class Call {
 public:
  explicit Call(Connection& connection);
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  Cancellation::Scope scope_;
};

// `server` with the default port where it has none.
std::string WithDefaultPort(absl::string_view server);

// Whether the server is on this machine: a token sent to any other one needs TLS to stay secret.
bool IsLocalServer(absl::string_view server);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CONNECTION_H_
