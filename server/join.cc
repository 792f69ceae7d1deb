#include "server/join.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/program_id.h"
#include "engine/ring/wire/ucx_library.h"
#include "engine/workers/worker_link.h"
#include "kernels/base/status_macros.h"
#include "server/base/version.h"
#include "server/cluster/dial.h"
#include "server/config/notify_address.h"
#include "server/config/wire_devices.h"
#include "server/devices.h"
#include "server/process/service_notifier.h"
#include "server/process/signal_thread.h"
#include "server/worker_http.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A restart helps, unlike after errors of options and models (2 and 1).
constexpr int kExitStuck = 3;
constexpr milliseconds kFirstPause{100};
constexpr milliseconds kLongestPause{3'000};
// A ring that lasted this long was no failed attempt.
constexpr milliseconds kGoodWhile{10'000};

// All processes of a ring must be of one build.
std::string Build() { return absl::StrCat(kVersion, " (", ProgramId(), ")"); }

std::string NameOf(const ServerConfig& config) {
  if (!config.worker_name.empty()) return config.worker_name;
  std::array<char, 256> host{};
  if (gethostname(host.data(), host.size() - 1) != 0) return absl::StrCat("worker-", getpid());
  return absl::StrCat(host.data(), "-", getpid());
}

bool MaySucceedLater(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         absl::IsCancelled(status);
}

// Dials and serves until an error that stays.
absl::Status ServeForever(const ServerConfig& config, const Logger& log, Worker& worker) {
  milliseconds pause = kFirstPause;
  std::string said;   // why the last attempts failed
  bool away = false;  // the last thing said is that there is no coordinator
  for (;;) {
    auto link = DialCoordinator(config);
    if (link.ok()) {
      if (std::exchange(away, false) || said.empty()) {
        log.Info("connected", {{"coordinator", config.join}, {"ranks", config.local_ranks}});
      }
      const auto begun = steady_clock::now();
      const absl::Status ended = worker.Serve(**link);
      link->reset();
      if (!ended.ok() && !MaySucceedLater(ended)) return ended;
      const std::string reason = ended.ok() ? "it stops" : std::string(ended.message());
      if (std::exchange(said, reason) != reason) {
        log.Warning("left", {{"coordinator", config.join}, {"reason", reason}});
      }
      if (steady_clock::now() - begun > kGoodWhile) {
        pause = kFirstPause;
        said.clear();
      }
    } else if (!MaySucceedLater(link.status())) {
      return link.status();
    } else {
      const std::string reason(link.status().message());
      if (std::exchange(said, reason) != reason) {
        away = true;
        log.Warning("no_coordinator",
                    {{"reason", reason}, {"advice", "this worker dials until it answers"}});
      }
    }
    std::this_thread::sleep_for(pause);
    pause = std::min(2 * pause, kLongestPause);
  }
}

}  // namespace

absl::StatusOr<std::string> OpenWire(const ServerConfig& config) {
  ANNULUS_RETURN_IF_ERROR(LoadUcx().status());
  return FindWireDevices(config);
}

EngineWorkers WorkersOf(const ServerConfig& config, WorkerSource& source) {
  return {.source = &source,
          .local_ranks = config.local_ranks,
          .build = Build(),
          .wire_devices = config.wire_devices,
          .silence = config.worker_silence,
          .replacement_timeout = config.replacement_timeout,
          .tolerated_ranks = config.tolerated_ranks};
}

absl::Status Join(const ServerConfig& config, const Logger& log) {
  const SignalThread signals(
      [&](int signal) {
        log.Info("signal", {{"number", signal}});
        log.Flush(LogWriter::kLongestFarewell);
        _exit(0);
      },
      [&](int signal) {
        log.Info("signal_ignored", {{"number", signal}, {"remedy", "SIGTERM stops the worker"}});
      });
  ServiceNotifier notifier(ReadNotifyAddress());
  notifier.StartSigns([] { return true; });
  std::unique_ptr<Devices> devices;
  std::unique_ptr<Worker> worker;  // the endpoint tells of it
  std::unique_ptr<WorkerHttp> http;
  if (!config.metrics.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(http, WorkerHttp::Start(config, log));
  }
  ANNULUS_ASSIGN_OR_RETURN(devices, OpenDevices(config));
  log.Info("loading",
           {{"model", config.engine.model}, {"metrics_port", http == nullptr ? 0 : http->port()}});
  EngineOptions options = config.engine;
  options.ranks = config.local_ranks;
  // The rank's thread cannot be ended alone; whoever watches the process starts it again.
  const auto end_process = [&log](const absl::Status& why) {
    log.LastWords(absl::StrCat("annulusd: ", why.message()));
    log.Flush(LogWriter::kLongestFarewell);
    _exit(kExitStuck);
  };
  const WorkerOptions self = {.name = NameOf(config),
                              .build = Build(),
                              .wire_devices = config.wire_devices,
                              .on_stuck = end_process};
  ANNULUS_ASSIGN_OR_RETURN(worker,
                           CreateWorker(options, self, *devices->backend, devices->kernels));
  if (http != nullptr) http->Show(*worker);
  log.Info("worker", {{"name", self.name}, {"coordinator", config.join}});
  notifier.Ready(absl::StrCat("worker of ", config.join));
  return ServeForever(config, log, *worker);
}

}  // namespace annulus::server
