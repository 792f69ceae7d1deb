#ifndef ANNULUS_SERVER_DEVICES_H_
#define ANNULUS_SERVER_DEVICES_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "kernels/backend.h"
#include "kernels/registry.h"
#include "server/config/server_config.h"
#include "server/log.h"

namespace annulus {

// What computes.
struct Devices {
  std::unique_ptr<Backend> backend;
  KernelRegistry kernels;
  std::string gpu;  // what was found, or why there is none to use
};

// The GPUs that ranks would be on. All errors are the device's.
absl::StatusOr<std::unique_ptr<Devices>> OpenGpus(const ServerConfig& config);

// As ServerConfig::device says. FAILED_PRECONDITION, OfDevice: it cannot be had, and what to do.
absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const ServerConfig& config);

// The engine on `devices`; only where any device will do, and the GPU will not, on the processor.
absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const ServerConfig& config, const Logger& log,
                                                   std::unique_ptr<Devices>& devices);

// What the control groups around this process leave it of memory; absent: no limit can be seen.
std::optional<uint64_t> ControlGroupMemory();

// Those that --plan is for: the ones that are there or GPUs of a kind, as many as there may be
// ranks, with the memory that the configuration says. They compute nothing.
absl::StatusOr<std::unique_ptr<Devices>> PlanDevices(const ServerConfig& config);

}  // namespace annulus

#endif  // ANNULUS_SERVER_DEVICES_H_
