#include "server/grpc/health_board.h"

#include <array>

#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"

namespace annulus::server {

void HealthBoard::Show(absl::FunctionRef<Health()> read,
                       grpc::HealthCheckServiceInterface& service) {
  static constexpr std::array<const char*, 6> kReadyNames = {
      "",
      "readiness",
      v1::InferenceService::service_full_name(),
      v1::DocumentService::service_full_name(),
      v1::ModelService::service_full_name(),
      v1::AdminService::service_full_name()};
  std::lock_guard lock(mutex_);
  const auto [ready, alive] = read();
  if (ready_ != ready) {
    for (const char* name : kReadyNames) service.SetServingStatus(name, ready);
    ready_ = ready;
  }
  if (alive_ != alive) {
    service.SetServingStatus("liveness", alive);
    alive_ = alive;
  }
}

}  // namespace annulus::server
