#include "bench/workers/worker_processes.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/program_id.h"
#include "engine/ring/wire/ucx_library.h"
#include "engine/workers/worker_link.h"
#include "kernels/base/status_macros.h"
#include "server/cluster/dial.h"
#include "server/cluster/worker_port.h"
#include "server/config/wire_devices.h"
#include "server/log/log.h"

namespace annulus::bench {
namespace {

constexpr char kOwnProgram[] = "/proc/self/exe";
constexpr std::chrono::seconds kKeepalive{10};
// What processes get to end by themselves once the engine has.
constexpr std::chrono::seconds kFarewell{10};

// All processes have one program, so this says only what people may want to know.
std::string Build() { return absl::StrCat("annulus-bench ", ProgramId()); }

std::string HowItEnded(const siginfo_t& info) {
  return info.si_code == CLD_EXITED ? absl::StrCat("with status ", info.si_status)
                                    : absl::StrCat("by signal ", info.si_status);
}

// The workers' port, which also tells the engine of processes that have ended: they will not dial.
class Processes final : public BenchWorkers, private WorkerSource {
 public:
  ~Processes() override {
    {
      std::lock_guard lock(mutex_);
      ends_ = true;
    }
    port_.reset();  // those that wait for an engine end, too
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait_for(lock, kFarewell, [this] { return running() == 0; })) {
        for (const Process& process : processes_) {
          if (process.runs) kill(process.pid, SIGKILL);
        }
      }
    }
    for (Process& process : processes_) process.watcher.join();
  }

  absl::Status Open(int count, std::vector<std::string> arguments) {
    ANNULUS_RETURN_IF_ERROR(LoadWire());
    server::ServerConfig config;
    config.workers_listen = "127.0.0.1:0";
    config.keepalive_time = kKeepalive;
    ANNULUS_ASSIGN_OR_RETURN(devices_, server::FindWireDevices(config));
    ANNULUS_ASSIGN_OR_RETURN(port_, server::WorkerPort::Listen(config, log_));
    arguments.insert(arguments.begin(), kOwnProgram);
    arguments.insert(arguments.end(), {"--join", absl::StrCat("127.0.0.1:", port_->port())});
    processes_.reserve(static_cast<size_t>(count));  // watchers keep their addresses
    for (int i = 0; i < count; ++i) ANNULUS_RETURN_IF_ERROR(StartOne(arguments));
    return absl::OkStatus();
  }

  EngineWorkers engine_workers() override {
    return {.source = this,
            .local_ranks = 1,
            .build = Build(),
            .wire_devices = devices_,
            .silence = std::chrono::seconds(2)};
  }

  absl::Status Check() override {
    std::lock_guard lock(mutex_);
    return early_;
  }

 private:
  struct Process {
    pid_t pid = 0;
    bool runs = true;  // guarded by mutex_
    std::thread watcher;
  };

  // ---- WorkerSource

  void Start(WorkerSourceSink& sink) override {
    {
      std::lock_guard lock(mutex_);
      sink_ = &sink;
      if (!early_.ok()) sink.OnStopped(early_);
    }
    port_->Start(sink);
  }
  void Report(const std::string& missing) override { port_->Report(missing); }
  void Stop(const absl::Status& why) override {
    {
      std::lock_guard lock(mutex_);
      sink_ = nullptr;
      ends_ = true;
    }
    port_->Stop(why);
  }

  // ---- processes

  absl::Status StartOne(const std::vector<std::string>& arguments) {
    std::vector<char*> pointers;
    for (const std::string& each : arguments) pointers.push_back(const_cast<char*>(each.c_str()));
    pointers.push_back(nullptr);
    pid_t pid = 0;
    const int error = posix_spawn(&pid, kOwnProgram, nullptr, nullptr, pointers.data(), environ);
    if (error != 0) {
      return absl::UnavailableError(absl::StrCat("a worker process cannot be started: ",
                                                 std::generic_category().message(error)));
    }
    Process& process = processes_.emplace_back();
    process.pid = pid;
    process.watcher = std::thread([this, &process] { Watch(process); });
    return absl::OkStatus();
  }

  // Until the process has ended. Its id stays its own until `runs` says so.
  void Watch(Process& process) {
    siginfo_t info{};
    waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED | WNOWAIT);
    std::lock_guard lock(mutex_);
    process.runs = false;
    waitid(P_PID, static_cast<id_t>(process.pid), &info, WEXITED);
    if (!ends_ && early_.ok()) {
      early_ = absl::UnavailableError(
          absl::StrCat("a worker process has ended early, ", HowItEnded(info)));
      if (sink_ != nullptr) sink_->OnStopped(early_);
    }
    changed_.notify_all();
  }

  int running() const {
    int count = 0;
    for (const Process& process : processes_) count += process.runs ? 1 : 0;
    return count;
  }

  const server::Logger log_{server::LogLevel::kError};
  std::string devices_;
  std::unique_ptr<server::WorkerPort> port_;
  std::vector<Process> processes_;

  std::mutex mutex_;  // guards what follows, and Process::runs
  std::condition_variable changed_;
  bool ends_ = false;  // the processes may end
  absl::Status early_;
  WorkerSourceSink* sink_ = nullptr;
};

}  // namespace

absl::Status LoadWire() { return LoadUcx().status(); }

absl::StatusOr<std::unique_ptr<BenchWorkers>> StartWorkerProcesses(
    int processes, const std::vector<std::string>& arguments) {
  auto workers = std::make_unique<Processes>();
  ANNULUS_RETURN_IF_ERROR(workers->Open(processes, arguments));
  return workers;
}

absl::Status ServeAsWorker(const std::string& coordinator, const EngineOptions& options,
                           Backend& backend, const KernelRegistry& kernels) {
  ANNULUS_RETURN_IF_ERROR(LoadWire());
  server::ServerConfig config;
  config.join = coordinator;
  WorkerOptions self = {.name = absl::StrCat("process-", getpid()), .build = Build()};
  ANNULUS_ASSIGN_OR_RETURN(self.wire_devices, server::FindWireDevices(config));
  ANNULUS_ASSIGN_OR_RETURN(const auto worker, CreateWorker(options, self, backend, kernels));
  ANNULUS_ASSIGN_OR_RETURN(const auto link, server::DialCoordinator(config));
  return worker->Serve(*link);
}

}  // namespace annulus::bench
