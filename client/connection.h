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

namespace annulus::client {

inline constexpr char kDefaultServer[] = "127.0.0.1:50051";

struct ConnectionOptions {
  // HOST, HOST:PORT, [IPv6], [IPv6]:PORT or unix:PATH. The default port is 50051.
  std::string server = kDefaultServer;
  std::optional<std::chrono::milliseconds> timeout{};  // of each call; nullopt: no deadline
  // Limit for each attempt to connect, including the server's first answer. gRPC raises values
  // below 100 ms to 100 ms.
  std::chrono::milliseconds connect_timeout{5000};
  std::string token{};            // sent as a bearer token; empty: none
  bool tls = false;               // also implied by any of the following options
  std::string tls_ca_file{};      // PEM; empty: the system's certificate authorities
  std::string tls_cert_file{};    // PEM, together with tls_key_file; empty: no client certificate
  std::string tls_key_file{};     // PEM
  std::string tls_server_name{};  // name expected in the server's certificate; empty: the host
};

// A channel to one server, with the stubs of its services. Connects lazily, when the first call is
// made. Thread-safe.
class Connection {
 public:
  // Does not connect yet. INVALID_ARGUMENT if `server` is not an address or if one of tls_cert_file
  // and tls_key_file is missing, NOT_FOUND if a file cannot be read or is empty. `cancellation`
  // must outlive the connection.
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

// The context of one call. It carries the connection's deadline and token, and the connection's
// Cancellation can cancel it. Must outlive the call.
class Call {
 public:
  explicit Call(Connection& connection);
  grpc::ClientContext* context() { return &context_; }

 private:
  grpc::ClientContext context_;
  Cancellation::Scope scope_;
};

// Returns `server`, with the default port appended if it has none.
std::string WithDefaultPort(absl::string_view server);

// Whether the address, with its port, is on this machine. A token sent to any other server stays
// secret only with TLS.
bool IsLocalServer(absl::string_view server);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CONNECTION_H_
