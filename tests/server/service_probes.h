#ifndef ANNULUS_TESTS_SERVER_SERVICE_PROBES_H_
#define ANNULUS_TESTS_SERVER_SERVICE_PROBES_H_

// grpc.health.v1 and grpc.reflection.v1alpha as a client sees them. Debian ships neither's
// messages, so they are read field by field.

#include <string>
#include <vector>

#include "tests/server/raw_call.h"

namespace annulus::server {

// Values 0 to 3 are those of grpc.health.v1.HealthCheckResponse.ServingStatus.
enum class HealthStatus {
  kUnknown = 0,
  kServing = 1,
  kNotServing = 2,
  kUnknownService = 3,
  kFailed
};

HealthStatus CheckHealth(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);

class HealthWatch {
 public:
  HealthWatch(const std::shared_ptr<grpc::Channel>& channel, const std::string& service);
  HealthStatus Next();  // blocks until the server sends one

 private:
  RawCall call_;
};

std::vector<std::string> ReflectedServices(const std::shared_ptr<grpc::Channel>& channel);

}  // namespace annulus::server

#endif  // ANNULUS_TESTS_SERVER_SERVICE_PROBES_H_
