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
#include "server/log/log.h"

namespace annulus::server {

// The backend and kernels that compute.
struct Devices {
  std::unique_ptr<Backend> backend;
  KernelRegistry kernels;
  std::string gpu;  // the GPUs found, or why none is used; empty if none was looked for
};

// Opens the GPUs for the ranks. All errors satisfy IsOfDevice.
absl::StatusOr<std::unique_ptr<Devices>> OpenGpus(const ServerConfig& config);

// Opens the devices that ServerConfig::device selects. `auto` falls back to the CPU, on which rings
// of several processes always compute. If `cuda` is
// asked for and no GPU can be used, the error satisfies IsOfDevice and says what to do. Errors of
// CreateCpuBackend if the CPU is chosen.
absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const ServerConfig& config);

// Creates the engine on `devices`, with the workers unless they are null. If the device is `auto`
// and the GPU cannot serve the model, logs why, replaces `devices` by the CPU and creates the
// engine there.
absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const ServerConfig& config, const Logger& log,
                                                   const EngineWorkers* workers,
                                                   std::unique_ptr<Devices>& devices);

// Memory that the control groups allow this process, in bytes; nullopt: no visible limit.
std::optional<uint64_t> ControlGroupMemory();

// Returns devices for --plan; nothing can be computed on them. They are those of this machine or,
// if `config` names a kind of GPU, GPUs of that kind. There is a GPU for each of the most ranks
// that an engine may have (64). config.planned_memory_bytes, unless 0, replaces each one's memory.
absl::StatusOr<std::unique_ptr<Devices>> PlanDevices(const ServerConfig& config);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DEVICES_H_
