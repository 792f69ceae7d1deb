#include "server/devices.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/device_error.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/host/control_groups.h"
#include "kernels/cpu/host/host_limits.h"
#include "kernels/cpu/register.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/planned_backend.h"

namespace annulus::server {
namespace {

constexpr int kMostRanks = 64;

HugePages ToHugePages(HugePagesChoice choice) {
  switch (choice) {
    case HugePagesChoice::kAuto:
      break;
    case HugePagesChoice::kOff:
      return HugePages::kOff;
    case HugePagesChoice::kTransparent:
      return HugePages::kTransparent;
    case HugePagesChoice::kExplicit:
      return HugePages::kExplicit;
  }
  return HugePages::kAuto;
}

absl::StatusOr<std::unique_ptr<Devices>> OpenCpu(const ServerConfig& config) {
  auto devices = std::make_unique<Devices>();
  ANNULUS_ASSIGN_OR_RETURN(devices->backend,
                           CreateCpuBackend({.huge_pages = ToHugePages(config.huge_pages),
                                             .use_nodes = config.numa,
                                             .shared_threads = config.engine.threads}));
  RegisterCpuKernels(devices->kernels);
  return devices;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Devices>> OpenGpus(const ServerConfig& config) {
  // Longer than the exchange timeout, so that a silent peer is reported as such, before the wait
  // for the GPU that depends on it times out.
  auto backend = CreateCudaBackends(config.engine.span().local,
                                    {.longest_wait = config.engine.exchange_timeout * 3 / 2});
  if (!backend.ok()) return OfDevice(backend.status());
  auto devices = std::make_unique<Devices>();
  devices->backend = *std::move(backend);
  RegisterCudaKernels(devices->kernels);
  devices->gpu = devices->backend->capabilities().description;
  return devices;
}

absl::StatusOr<std::unique_ptr<Devices>> OpenDevices(const ServerConfig& config) {
  const bool in_several_processes = !config.join.empty() || !config.workers_listen.empty();
  if (config.device == DeviceChoice::kCpu || in_several_processes) return OpenCpu(config);
  absl::StatusOr<std::unique_ptr<Devices>> gpu = OpenGpus(config);
  if (gpu.ok()) return gpu;
  if (config.device == DeviceChoice::kCuda) {
    return WithPrefix("device: cuda was asked for, and ", gpu.status());
  }
  ANNULUS_ASSIGN_OR_RETURN(auto devices, OpenCpu(config));
  devices->gpu = std::string(gpu.status().message());
  return devices;
}

absl::StatusOr<std::unique_ptr<Engine>> OpenEngine(const ServerConfig& config, const Logger& log,
                                                   const EngineWorkers* workers,
                                                   std::unique_ptr<Devices>& devices) {
  EngineOptions options = config.engine;
  options.host_memory_bytes = ReadHostLimits().memory_bytes;
  if (workers != nullptr) {
    return CreateEngine(options, *workers, *devices->backend, devices->kernels);
  }
  auto engine = CreateEngine(options, *devices->backend, devices->kernels);
  const bool stay =
      config.device != DeviceChoice::kAuto || devices->backend->capabilities().host_accessible;
  if (engine.ok() || stay) return engine;
  std::string gpu = absl::StrCat(devices->gpu, " is not used: ", engine.status().message());
  log.Warning("gpu_not_used", {{"reason", gpu}});
  ANNULUS_ASSIGN_OR_RETURN(devices, OpenCpu(config));
  devices->gpu = std::move(gpu);
  return CreateEngine(options, *devices->backend, devices->kernels);
}

absl::StatusOr<std::unique_ptr<Devices>> PlanDevices(const ServerConfig& config) {
  auto planned = std::make_unique<Devices>();
  if (config.device == DeviceChoice::kNamed) {
    ANNULUS_ASSIGN_OR_RETURN(
        planned->backend,
        PlanCudaBackends(config.planned_gpu, config.planned_memory_bytes, kMostRanks));
    RegisterCudaKernels(planned->kernels);
    return planned;
  }
  ANNULUS_ASSIGN_OR_RETURN(std::shared_ptr<Devices> there, OpenDevices(config));
  BackendCapabilities capabilities = there->backend->capabilities();
  if (config.planned_memory_bytes > 0) capabilities.memory_bytes = config.planned_memory_bytes;
  if (!capabilities.host_accessible) capabilities.devices = kMostRanks;
  const bool of_host = capabilities.host_accessible;
  planned->gpu = there->gpu;
  planned->backend = MakePlannedBackend(std::move(capabilities), [there](const WorkShape& most) {
    return there->backend->PlanWorkspace(most);
  });
  of_host ? RegisterCpuKernels(planned->kernels) : RegisterCudaKernels(planned->kernels);
  return planned;
}

std::optional<uint64_t> ControlGroupMemory() { return ReadControlGroups().memory_bytes; }

}  // namespace annulus::server
