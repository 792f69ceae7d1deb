#include "server/grpc/otlp_client.h"

#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/impl/codegen/proto_utils.h>

#include <future>
#include <utility>
#include <variant>

#include "server/base/version.h"

namespace annulus::server {
namespace {

namespace wire = internal::v1;
using ExportStub = grpc::TemplatedGenericStub<wire::OtlpExportRequest, wire::OtlpExportResponse>;

constexpr char kExport[] = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
constexpr int kInternal = 1, kServer = 2;  // opentelemetry.proto.trace.v1.Span.SpanKind
constexpr int kError = 2;                  // opentelemetry.proto.trace.v1.Status.StatusCode

uint64_t NanosSince1970(Span::Time time) {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(time.time_since_epoch()).count());
}

void SetText(absl::string_view key, absl::string_view text, wire::OtlpAttribute& attribute) {
  attribute.set_key(std::string(key));
  attribute.mutable_value()->set_string_value(std::string(text));
}

void Encode(const Span& span, wire::OtlpSpan& message) {
  message.set_trace_id(span.trace);
  message.set_span_id(span.id);
  message.set_parent_span_id(span.parent);
  message.set_name(span.name);
  message.set_kind(span.is_call ? kServer : kInternal);
  message.set_start_time_unix_nano(NanosSince1970(span.begin));
  message.set_end_time_unix_nano(NanosSince1970(span.end));
  for (const auto& [key, value] : span.attributes) {
    wire::OtlpAttribute& attribute = *message.add_attributes();
    if (const auto* const text = std::get_if<std::string>(&value)) {
      SetText(key, *text, attribute);
    } else {
      attribute.set_key(std::string(key));
      attribute.mutable_value()->set_int_value(std::get<int64_t>(value));
    }
  }
  if (span.error.empty()) return;
  message.mutable_status()->set_code(kError);
  message.mutable_status()->set_message(span.error);
}

}  // namespace

wire::OtlpExportRequest OtlpMessage(const std::vector<Span>& spans) {
  wire::OtlpExportRequest message;
  wire::OtlpResourceSpans& resource = *message.add_resource_spans();
  SetText("service.name", "annulusd", *resource.mutable_resource()->add_attributes());
  SetText("service.version", kVersion, *resource.mutable_resource()->add_attributes());
  wire::OtlpScopeSpans& scope = *resource.add_scope_spans();
  scope.mutable_scope()->set_name("annulus");
  scope.mutable_scope()->set_version(kVersion);
  for (const Span& span : spans) Encode(span, *scope.add_spans());
  return message;
}

OtlpClient::OtlpClient(const std::string& endpoint)
    : channel_(grpc::CreateChannel(endpoint, grpc::InsecureChannelCredentials())) {}

absl::Status OtlpClient::Send(const std::vector<Span>& spans, std::chrono::milliseconds most) {
  const wire::OtlpExportRequest request = OtlpMessage(spans);
  wire::OtlpExportResponse response;
  grpc::ClientContext call;
  call.set_deadline(std::chrono::system_clock::now() + most);
  ExportStub stub(channel_);
  std::promise<grpc::Status> ended;
  {
    std::lock_guard lock(mutex_);
    running_ = &call;
  }
  stub.UnaryCall(&call, kExport, grpc::StubOptions(), &request, &response,
                 [&](grpc::Status status) { ended.set_value(std::move(status)); });
  const grpc::Status status = ended.get_future().get();
  std::lock_guard lock(mutex_);
  running_ = nullptr;
  return {static_cast<absl::StatusCode>(status.error_code()), status.error_message()};
}

void OtlpClient::Cancel() {
  std::lock_guard lock(mutex_);
  if (running_ != nullptr) running_->TryCancel();
}

}  // namespace annulus::server
