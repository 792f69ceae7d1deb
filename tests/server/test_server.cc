#include "tests/server/test_server.h"

#include <arpa/inet.h>
#include <grpcpp/create_channel.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <sstream>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "google/protobuf/util/time_util.h"
#include "google/rpc/status.pb.h"
#include "kernels/base/check.h"
#include "server/config/load_config.h"

namespace annulus::server {

TestServer::TestServer(std::vector<std::string> flags,
                       std::unique_ptr<const Authenticator> authenticator)
    : engine_(std::make_unique<FakeEngine>()) {
  flags.insert(flags.begin(), {"--listen", "127.0.0.1:0", "--metrics", "off", "--served-model-name",
                               "fake", "--admin-listen", absl::StrCat("unix:", admin_socket())});
  auto loaded = LoadConfig(flags, {});
  ANNULUS_CHECK(loaded.ok()) << loaded.status();
  auto server = authenticator == nullptr
                    ? Server::Start(loaded->config, log_)
                    : Server::Start(loaded->config, log_, std::move(authenticator));
  ANNULUS_CHECK(server.ok()) << server.status();
  server_ = *std::move(server);
  channel_ = NewChannel();
}

TestServer::~TestServer() = default;

std::string TestServer::address() const { return absl::StrCat("127.0.0.1:", server_->port()); }

std::unique_ptr<v1::AdminService::Stub> TestServer::operators() const {
  return v1::AdminService::NewStub(grpc::CreateChannel(absl::StrCat("unix:", admin_socket()),
                                                       grpc::InsecureChannelCredentials()));
}

std::string TestServer::metrics_address() const {
  return absl::StrCat("127.0.0.1:", server_->metrics_port());
}

std::shared_ptr<grpc::Channel> TestServer::NewChannel() const {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(-1);
  return grpc::CreateCustomChannel(address(), grpc::InsecureChannelCredentials(), arguments);
}

grpc::Status TestServer::Upload(const std::string& name, const std::string& text,
                                v1::UploadDocumentResponse* response, size_t chunk,
                                const std::string& title) {
  grpc::ClientContext context;
  v1::UploadDocumentResponse ignored;
  const auto stub = documents();
  const auto writer = stub->UploadDocument(&context, response == nullptr ? &ignored : response);
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name(name);
  request.mutable_header()->set_title(title);
  request.mutable_header()->set_total_bytes(static_cast<int64_t>(text.size()));
  writer->Write(request);
  for (size_t offset = 0; offset < text.size(); offset += chunk) {
    request.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
    request.mutable_chunk()->set_data(text.substr(offset, chunk));
    if (!writer->Write(request)) break;
  }
  writer->WritesDone();
  return writer->Finish();
}

v1::GenerateRequest TextRequest(const std::string& text) {
  v1::GenerateRequest request;
  request.mutable_spec()->set_text(text);
  return request;
}

v1::StreamGenerateRequest TextStreamRequest(const std::string& text) {
  v1::StreamGenerateRequest request;
  request.mutable_spec()->set_text(text);
  return request;
}

StreamResult ReadStream(v1::InferenceService::Stub& stub, const v1::StreamGenerateRequest& request,
                        grpc::ClientContext* context) {
  grpc::ClientContext own;
  StreamResult result;
  const auto reader = stub.StreamGenerate(context == nullptr ? &own : context, request);
  v1::StreamGenerateResponse response;
  while (reader->Read(&response)) {
    result.text += response.delta().text();
    result.events.push_back(response);
  }
  result.status = reader->Finish();
  return result;
}

ErrorDetails Details(const grpc::Status& status) {
  ErrorDetails details;
  google::rpc::Status wire;
  if (!wire.ParseFromString(status.error_details())) return details;
  for (const auto& any : wire.details()) {
    google::rpc::ErrorInfo info;
    google::rpc::BadRequest bad_request;
    google::rpc::ResourceInfo resource;
    google::rpc::RetryInfo retry;
    google::rpc::RequestInfo request;
    if (any.UnpackTo(&info)) {
      details.reason = info.reason();
      details.domain = info.domain();
      details.metadata.insert(info.metadata().begin(), info.metadata().end());
    } else if (any.UnpackTo(&bad_request)) {
      details.field = bad_request.field_violations(0).field();
    } else if (any.UnpackTo(&resource)) {
      details.resource_type = resource.resource_type();
      details.resource_name = resource.resource_name();
    } else if (any.UnpackTo(&request)) {
      details.request_id = request.request_id();
    } else if (any.UnpackTo(&retry)) {
      details.retry_ms =
          google::protobuf::util::TimeUtil::DurationToMilliseconds(retry.retry_delay());
    }
  }
  return details;
}

size_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  size_t total = 0, resident = 0;
  statm >> total >> resident;
  return resident * 4096;
}

bool Eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

bool Connect(const std::string& address, int descriptor) {
  const size_t colon = address.rfind(':');
  sockaddr_in target{};
  target.sin_family = AF_INET;
  target.sin_port = htons(static_cast<uint16_t>(std::stoi(address.substr(colon + 1))));
  inet_pton(AF_INET, address.substr(0, colon).c_str(), &target.sin_addr);
  return connect(descriptor, reinterpret_cast<sockaddr*>(&target), sizeof(target)) == 0;
}

int Connect(const std::string& address) {
  const int descriptor = socket(AF_INET, SOCK_STREAM, 0);
  if (Connect(address, descriptor)) return descriptor;
  close(descriptor);
  return -1;
}

bool SendBytes(const std::string& address, const std::string& bytes) {
  const int descriptor = Connect(address);
  if (descriptor < 0) return false;
  send(descriptor, bytes.data(), bytes.size(), MSG_NOSIGNAL);
  close(descriptor);
  return true;
}

std::string HttpGet(const std::string& address, const std::string& path) {
  const int descriptor = Connect(address);
  if (descriptor < 0) return "";
  const std::string request =
      absl::StrCat("GET ", path, " HTTP/1.1\r\nHost: ", address, "\r\nConnection: close\r\n\r\n");
  send(descriptor, request.data(), request.size(), MSG_NOSIGNAL);
  std::string reply;
  char buffer[4096];
  for (ssize_t n; (n = recv(descriptor, buffer, sizeof(buffer), 0)) > 0;) {
    reply.append(buffer, static_cast<size_t>(n));
  }
  close(descriptor);
  const size_t body = reply.find("\r\n\r\n");
  return body == std::string::npos ? "" : reply.substr(body + 4);
}

std::map<std::string, double> ScrapeSamples(const std::string& address) {
  std::map<std::string, double> samples;
  std::istringstream lines(Scrape(address));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line[0] == '#') continue;
    const size_t space = line.rfind(' ');
    EXPECT_NE(space, std::string::npos) << line;
    EXPECT_TRUE(samples.emplace(line.substr(0, space), std::stod(line.substr(space + 1))).second)
        << "twice: " << line;
  }
  return samples;
}

}  // namespace annulus::server
