#ifndef ANNULUS_TESTS_SERVER_TEST_SERVER_H_
#define ANNULUS_TESTS_SERVER_TEST_SERVER_H_

#include <grpcpp/channel.h>
#include <grpcpp/client_context.h>
#include <gtest/gtest.h>

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "google/rpc/error_details.pb.h"
#include "server/grpc/calls/grpc_call.h"
#include "server/log/log.h"
#include "server/server.h"
#include "tests/server/fake_engine.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {

// A server on a free port of 127.0.0.1 with a fake engine, and a channel to it. No metrics unless
// the flags ask for them.
class TestServer {
 public:
  // `flags` are added to the ones that make it a test server. `authenticator`: null for the one
  // that the flags ask for. Not serving yet.
  explicit TestServer(std::vector<std::string> flags = {},
                      std::unique_ptr<const Authenticator> authenticator = nullptr);
  ~TestServer();

  FakeEngine& engine() { return *engine_; }
  Server& server() { return *server_; }
  void Serve() { server_->StartServing(*engine_); }
  void StopServer() { server_.reset(); }

  std::string address() const;
  std::string metrics_address() const;
  int http_port() const { return server_->http_port(); }
  // A channel with a connection of its own.
  std::shared_ptr<grpc::Channel> NewChannel() const;
  std::shared_ptr<grpc::Channel> channel() { return channel_; }

  std::unique_ptr<v1::InferenceService::Stub> inference() {
    return v1::InferenceService::NewStub(channel_);
  }
  std::unique_ptr<v1::DocumentService::Stub> documents() {
    return v1::DocumentService::NewStub(channel_);
  }
  std::unique_ptr<v1::ModelService::Stub> models() { return v1::ModelService::NewStub(channel_); }
  std::unique_ptr<v1::AdminService::Stub> admin() { return v1::AdminService::NewStub(channel_); }
  // The same over the socket for administrators.
  std::unique_ptr<v1::AdminService::Stub> operators() const;
  std::string admin_socket() const { return directory_.path() / "admin.sock"; }

  // Uploads in chunks of `chunk` bytes.
  grpc::Status Upload(const std::string& name, const std::string& text,
                      v1::UploadDocumentResponse* response = nullptr, size_t chunk = 1000,
                      const std::string& title = "");

 private:
  const testing::TempDirectory directory_;
  std::unique_ptr<FakeEngine> engine_;
  Logger log_{LogLevel::kError};
  std::unique_ptr<Server> server_;
  std::shared_ptr<grpc::Channel> channel_;
};

// A request for a text prompt.
v1::GenerateRequest TextRequest(const std::string& text);
v1::StreamGenerateRequest TextStreamRequest(const std::string& text);

// All events of a stream, and its status.
struct StreamResult {
  std::vector<v1::StreamGenerateResponse> events;
  grpc::Status status;
  std::string text;
};
StreamResult ReadStream(v1::InferenceService::Stub& stub, const v1::StreamGenerateRequest& request,
                        grpc::ClientContext* context = nullptr);

// What a failed call carries.
struct ErrorDetails {
  std::string reason;
  std::string domain;
  std::map<std::string, std::string> metadata;
  std::string field;          // of BadRequest
  std::string resource_type;  // of ResourceInfo
  std::string resource_name;
  int64_t retry_ms = -1;
  std::string request_id;  // of RequestInfo
};
ErrorDetails Details(const grpc::Status& status);

// Resident memory of this process.
size_t ResidentBytes();

// Polls until `condition` holds, at most `limit`.
bool Eventually(const std::function<bool()>& condition,
                std::chrono::milliseconds limit = std::chrono::seconds(10));

// A socket connected to "127.0.0.1:PORT", or -1. The caller closes it.
int Connect(const std::string& address);

// The same with a socket that was made before.
bool Connect(const std::string& address, int descriptor);

// Connects to "127.0.0.1:PORT", sends the bytes and leaves. False where it cannot connect.
bool SendBytes(const std::string& address, const std::string& bytes);

// Body of the answer to an HTTP GET, empty on any failure.
std::string HttpGet(const std::string& address, const std::string& path);
inline std::string Scrape(const std::string& address) { return HttpGet(address, "/metrics"); }
// Every sample of the text form: "name{labels}" -> value.
std::map<std::string, double> ScrapeSamples(const std::string& address);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_TEST_SERVER_H_
