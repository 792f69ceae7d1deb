#ifndef ANNULUS_SERVER_GRPC_OTLP_CLIENT_H_
#define ANNULUS_SERVER_GRPC_OTLP_CLIENT_H_

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "annulus/internal/v1/otlp.pb.h"
#include "server/traces/span.h"

namespace annulus::server {

// Sends spans to an OpenTelemetry collector by OTLP over gRPC, without TLS: collectors run beside
// the daemon. Thread-safe.
class OtlpClient {
 public:
  // `endpoint`: HOST:PORT. Connects when the first spans are sent.
  explicit OtlpClient(const std::string& endpoint);

  // UNAVAILABLE, DEADLINE_EXCEEDED after `most`, CANCELLED, or what the collector says.
  absl::Status Send(const std::vector<Span>& spans, std::chrono::milliseconds most);
  // Ends a running Send.
  void Cancel();

 private:
  const std::shared_ptr<grpc::Channel> channel_;
  std::mutex mutex_;
  grpc::ClientContext* running_ = nullptr;  // of Send
};

// The message for a collector.
internal::v1::OtlpExportRequest OtlpMessage(const std::vector<Span>& spans);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_OTLP_CLIENT_H_
