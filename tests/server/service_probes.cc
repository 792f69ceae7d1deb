#include "tests/server/service_probes.h"

#include <google/protobuf/unknown_field_set.h>

namespace annulus::server {
namespace {

using google::protobuf::UnknownFieldSet;

std::string OneString(int field, const std::string& text) {
  UnknownFieldSet fields;
  *fields.AddLengthDelimited(field) = text;
  std::string bytes;
  fields.SerializeToString(&bytes);
  return bytes;
}

HealthStatus ReadStatus(const std::string& bytes) {
  UnknownFieldSet fields;
  if (!fields.ParseFromString(bytes)) return HealthStatus::kFailed;
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() == 1) return static_cast<HealthStatus>(fields.field(i).varint());
  }
  return HealthStatus::kUnknown;
}

}  // namespace

HealthStatus CheckHealth(const std::shared_ptr<grpc::Channel>& channel,
                         const std::string& service) {
  std::string answer;
  const grpc::Status status =
      CallRaw(channel, "/grpc.health.v1.Health/Check", OneString(1, service), &answer);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return HealthStatus::kUnknownService;
  return status.ok() ? ReadStatus(answer) : HealthStatus::kFailed;
}

HealthWatch::HealthWatch(const std::shared_ptr<grpc::Channel>& channel, const std::string& service)
    : call_(channel, "/grpc.health.v1.Health/Watch") {
  call_.Write(OneString(1, service));
  call_.WritesDone();
}

HealthStatus HealthWatch::Next() {
  const auto message = call_.Read();
  return message ? ReadStatus(*message) : HealthStatus::kFailed;
}

std::vector<std::string> ReflectedServices(const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kListServices = 7;          // of ServerReflectionRequest
  constexpr int kListServicesResponse = 6;  // of ServerReflectionResponse
  RawCall call(channel, "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo");
  call.Write(OneString(kListServices, "*"));
  const auto message = call.Read();
  call.WritesDone();
  std::vector<std::string> names;
  UnknownFieldSet response;
  if (!message || !response.ParseFromString(*message)) return names;
  for (int i = 0; i < response.field_count(); ++i) {
    if (response.field(i).number() != kListServicesResponse) continue;
    UnknownFieldSet list;
    list.ParseFromString(response.field(i).length_delimited());
    for (int j = 0; j < list.field_count(); ++j) {
      UnknownFieldSet service;
      service.ParseFromString(list.field(j).length_delimited());
      names.push_back(service.field(0).length_delimited());
    }
  }
  return names;
}

}  // namespace annulus::server
