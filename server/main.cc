// annulusd: wires configuration, backend, kernels, engine and services together.

#include <google/protobuf/stubs/logging.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "engine/api.h"
#include "engine/capacity.h"
#include "kernels/base/device_error.h"
#include "kernels/base/dtype.h"
#include "kernels/base/format_bytes.h"
#include "kernels/base/status_macros.h"
#include "server/base/version.h"
#include "server/cluster/worker_port.h"
#include "server/command/doctor.h"
#include "server/command/plan_text.h"
#include "server/config/exposure.h"
#include "server/config/load_config.h"
#include "server/config/notify_address.h"
#include "server/config/options.h"
#include "server/config/value_parsers.h"
#include "server/devices.h"
#include "server/grpc/grpc_log.h"
#include "server/identity/token_hash.h"
#include "server/join.h"
#include "server/log/log.h"
#include "server/net/connection_acceptor.h"
#include "server/option_reload.h"
#include "server/process/exit_guard.h"
#include "server/process/memory_reserve.h"
#include "server/process/periodic_thread.h"
#include "server/process/service_notifier.h"
#include "server/process/signal_thread.h"
#include "server/process/thread_reserve.h"
#include "server/server.h"
#include "server/signal_target.h"

namespace annulus::server {
namespace {

constexpr int kExitMisuse = 2;
constexpr size_t kLongestToken = size_t{8} << 10;
// Longest time from the end of the grace time to the last log line of the process, even if threads
// hang.
constexpr std::chrono::milliseconds kStopLimit{2500};
// Memory of the services, their threads and buffers, beyond what a --plan process takes itself.
// Measured: 6 to 7 MiB.
constexpr size_t kServicesBytes = size_t{6} << 20;
constexpr size_t kCheckKvMemory = size_t{256} << 20;  // enough for a page of any model on any rank

// The error caused by quantising, while loading or when the directory was converted.
std::string DescribeError(const ModelInfo& model) {
  std::string text;
  if (model.weights_error > 0 || !model.conversion_error.has_value()) {
    absl::StrAppendFormat(&text, ", relative error %.5f", model.weights_error);
  }
  if (model.conversion_error.has_value()) {
    absl::StrAppendFormat(&text, ", relative error of the conversion %.5f",
                          *model.conversion_error);
  }
  return text;
}

std::string Describe(const ModelInfo& model) {
  return absl::StrCat("architecture:     ", model.architecture, "\n",        //
                      "description:      ", model.description, "\n",         //
                      "parameters:       ", model.parameters, "\n",          //
                      "layers:           ", model.layers, "\n",              //
                      "hidden size:      ", model.hidden_size, "\n",         //
                      "vocabulary:       ", model.vocabulary, "\n",          //
                      "context:          ", model.max_context, " tokens\n",  //
                      "weights:          ", DTypeName(model.weights_dtype), ", ",
                      FormatBytes(model.weights_bytes), DescribeError(model), "\n",    //
                      "activations:      ", ActivationsName(model.activations), "\n",  //
                      "keys and values:  ", DTypeName(model.kv_dtype), ", ",
                      model.kv_bytes_per_token, " bytes per token\n",  //
                      "kernels:          ", model.kernels, "\n",       //
                      "chat template:    ", model.has_chat_template ? "yes" : "no", "\n");
}

absl::Status Check(ServerConfig config, const Logger& log) {
  if (config.engine.kv_memory_bytes == 0) config.engine.kv_memory_bytes = kCheckKvMemory;
  ANNULUS_ASSIGN_OR_RETURN(auto devices, OpenDevices(config));
  ANNULUS_ASSIGN_OR_RETURN(const auto engine, OpenEngine(config, log, nullptr, devices));
  std::printf("model:            %s\n%sdevice:           %s\n", config.engine.model.c_str(),
              Describe(engine->model()).c_str(),
              devices->backend->capabilities().description.c_str());
  if (!devices->gpu.empty()) std::printf("gpu:              %s\n", devices->gpu.c_str());
  for (const std::string& warning : engine->model().warnings) {
    std::printf("warning:          %s\n", warning.c_str());
  }
  std::printf("ok\n");
  return absl::OkStatus();
}

// If the user chose no dtype, plans the most common ones; on GPUs also for 1, 2, 4 and 8 of them.
absl::Status Plan(const ServerConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const auto devices, PlanDevices(config));
  const BackendCapabilities& device = devices->backend->capabilities();
  CapacityQuestion question;
  question.options = config.engine;
  question.weights_dtypes = {config.engine.weights_dtype};
  if (!config.engine.weights_dtype) {
    question.weights_dtypes.insert(question.weights_dtypes.end(), {DType::kI8, DType::kI4G32});
  }
  question.kv_dtypes = {config.engine.kv_dtype};
  if (!config.engine.kv_dtype) {
    question.kv_dtypes.insert(question.kv_dtypes.end(), {DType::kBF16, DType::kI8});
  }
  const ServiceMemory services = {.replay = config.attach.memory,
                                  .documents = config.documents.max_memory,
                                  .prompts = config.max_prompts_memory};
  question.services_bytes = kServicesBytes + services.replay;
  question.ranks = {config.engine.ranks};
  if (config.engine.ranks == 1 && !device.host_accessible) question.ranks = {1, 2, 4, 8};
  ANNULUS_ASSIGN_OR_RETURN(const CapacityTable table,
                           PlanCapacity(question, *devices->backend, devices->kernels));
  if (table.cases.empty()) return absl::FailedPreconditionError(table.missing.front());
  const std::string machine =
      absl::StrCat(device.description, ", ", FormatBytes(device.memory_bytes));
  std::fputs(PlanText(table, machine, services).c_str(), stdout);
  return absl::OkStatus();
}

absl::Status Convert(const ServerConfig& config) {
  if (!config.engine.weights_dtype.has_value() || config.convert_out.empty()) {
    return absl::InvalidArgumentError(
        "--convert needs --model DIR or FILE.gguf, --weights-dtype DTYPE (not auto) and --out DIR");
  }
  ANNULUS_ASSIGN_OR_RETURN(
      const std::string report,
      ConvertModelDirectory(config.engine.model, *config.engine.weights_dtype, config.convert_out));
  std::printf("%swritten:          %s\n", report.c_str(), config.convert_out.c_str());
  return absl::OkStatus();
}

// Prints the hash of the token on the first line of standard input.
absl::Status HashToken() {
  std::string token;
  for (int c; (c = std::getchar()) != EOF && c != '\n' && token.size() < kLongestToken;) {
    token.push_back(static_cast<char>(c));
  }
  ANNULUS_RETURN_IF_ERROR(CheckNewToken(token));
  std::printf("%s\n", TokenHash::Of(token).text().c_str());
  return absl::OkStatus();
}

// Sets `on_gpu` to whether the daemon would compute on a GPU.
Finding ExamineGpu(const ServerConfig& config, bool& on_gpu) {
  if (config.device == DeviceChoice::kCpu) {
    return {"gpu", Finding::Verdict::kGood, "not asked for", ""};
  }
  const auto devices = OpenGpus(config);
  on_gpu = devices.ok();
  if (devices.ok()) return {"gpu", Finding::Verdict::kGood, (*devices)->gpu, ""};
  const std::string why(devices.status().message());
  if (config.device == DeviceChoice::kAuto) {
    return {"gpu", Finding::Verdict::kGood, "the CPU computes: " + why, ""};
  }
  return {"gpu", Finding::Verdict::kBad, why, "fix this, or set --device auto"};
}

// Returns 1 if a daemon with this configuration would not serve on this machine.
int Doctor(const ServerConfig& config) {
  MachineFacts facts{.group_memory = ControlGroupMemory()};
  Finding gpu = ExamineGpu(config, facts.on_gpu);
  std::vector<Finding> findings = ExamineMachine(config, facts);
  findings.push_back(std::move(gpu));
  const absl::Status exposure = CheckExposure(config);
  if (!exposure.ok()) {
    findings.push_back({"exposure", Finding::Verdict::kBad, std::string(exposure.message()),
                        "set one of these options"});
  }
  std::fputs(FindingsText(findings).c_str(), stdout);
  const bool bad = std::any_of(findings.begin(), findings.end(), [](const Finding& finding) {
    return finding.verdict == Finding::Verdict::kBad;
  });
  return bad ? 1 : 0;
}

// Describes the memory nodes on which the ranks are.
std::string DescribePlacement(const ServerConfig& config, int nodes,
                              const std::vector<RankLoad>& ranks) {
  if (!config.numa) return "not pinned: numa is off";
  if (nodes < 2) return "not pinned: there is one memory node";
  if (ranks.front().node < 0) {
    return absl::StrCat("not pinned: there are ", nodes, " memory nodes and fewer ranks");
  }
  std::string text = "ranks on memory nodes";
  for (const RankLoad& rank : ranks) absl::StrAppend(&text, " ", rank.node);
  return text;
}

// Logs what one device, or the host, will hold as long as the server runs. `others`: this program,
// the driver, and anything else that uses the device.
void LogMemory(const Logger& log, const MemoryPlan& plan) {
  const auto bytes = [](size_t count) { return FormatBytes(static_cast<uint64_t>(count)); };
  log.Info("memory", {{"of", plan.of_host ? "the host" : "a device"},
                      {"ranks", plan.ranks},
                      {"weights", bytes(plan.weights)},
                      {"kv", bytes(plan.kv)},
                      {"kv_host", bytes(plan.kv_host)},
                      {"step", bytes(plan.step)},
                      {"workspace", bytes(plan.workspace)},
                      {"slots", bytes(plan.slots)},
                      {"expert_readers", bytes(plan.expert_readers)},
                      {"evidence", bytes(plan.evidence)},
                      {"host_tiers", bytes(plan.host_tiers)},
                      {"reserve", bytes(plan.reserve)},
                      {"others", bytes(plan.total - plan.weights - plan.free)},
                      {"left", bytes(plan.free - plan.needed())},
                      {"total", bytes(plan.total)}});
}

void LogReady(const Logger& log, const ServerConfig& config, const Engine& engine,
              const Server& server, int nodes) {
  int64_t kv_memory = 0;
  const std::vector<RankLoad> ranks = engine.Load().ranks;
  for (const RankLoad& rank : ranks) kv_memory += rank.kv_bytes_total;
  log.Info("model",
           {{"name", config.served_model_name},
            {"architecture", engine.model().architecture},
            {"ranks", config.engine.ranks},
            {"kv_memory", FormatBytes(static_cast<uint64_t>(kv_memory))},
            {"context", engine.model().max_context},
            {"kernels", engine.model().kernels},
            {"attention", AssignmentText(config.engine.attention)},
            {"weights", std::string(DTypeName(engine.model().weights_dtype))},
            {"weights_error", absl::StrFormat("%.5f", engine.model().weights_error)},
            {"conversion_error", engine.model().conversion_error.has_value()
                                     ? absl::StrFormat("%.5f", *engine.model().conversion_error)
                                     : "none"}});
  for (const std::string& warning : engine.model().warnings) {
    log.Warning("model_files", {{"warning", warning}});
  }
  LogMemory(log, engine.Load().plan);
  log.Info("placement", {{"of", DescribePlacement(config, nodes, ranks)}});
  log.Info("ring", {{"transport", engine.Load().ring_transport}});
  log.Info("ready", {{"listen", config.listen},
                     {"port", server.port()},
                     {"metrics", config.metrics.empty() ? "off" : config.metrics},
                     {"http", config.http.empty() ? "off" : config.http},
                     {"http_port", server.http_port()},
                     {"metrics_port", server.metrics_port()}});
}

// Destroyed in reverse order: the engine uses the others.
struct Loaded {
  std::unique_ptr<Devices> devices;
  std::unique_ptr<WorkerPort> port;  // null without --workers-listen
  std::unique_ptr<Engine> engine;
};

absl::Status Load(const ServerConfig& config, const Logger& log, Server& server, Loaded& loaded) {
  ANNULUS_ASSIGN_OR_RETURN(loaded.devices, OpenDevices(config));
  std::optional<EngineWorkers> workers;
  if (!config.workers_listen.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(loaded.port, WorkerPort::Listen(config, log));
    workers = WorkersOf(config, *loaded.port);
  }
  log.Info("loading", {{"model", config.engine.model},
                       {"port", server.port()},
                       {"metrics_port", server.metrics_port()},
                       {"workers_port", loaded.port == nullptr ? 0 : loaded.port->port()}});
  if (loaded.port != nullptr)
    loaded.port->Show([&](const std::string& missing) { server.Await(missing); });
  ANNULUS_ASSIGN_OR_RETURN(
      loaded.engine,
      OpenEngine(config, log, workers.has_value() ? &*workers : nullptr, loaded.devices));
  const BackendCapabilities& device = loaded.devices->backend->capabilities();
  log.Info("device",
           {{"computes", device.description},
            {"devices", device.devices},
            {"gpu", loaded.devices->gpu.empty() ? "not looked for" : loaded.devices->gpu}});
  return absl::OkStatus();
}

// Keeps the server running without an engine, since a restart would find the same device. It
// reports the reason to clients and monitoring.
void StayWithoutDevice(const absl::Status& why, const Logger& log, Server& server) {
  server.CannotServe(why);  // before the log line, so that readers of the line find this state
  log.Error("no_device", {{"reason", std::string(why.message())},
                          {"remedy", "fix the reason, then restart annulusd"},
                          {"port", server.port()},
                          {"http_port", server.http_port()},
                          {"metrics_port", server.metrics_port()}});
}

// Reserves of memory and threads, refilled each second if they were used.
class Reserves {
 public:
  explicit Reserves(const Logger& log) : log_(log) {}

  // Call when all other threads have been started, before the server is ready.
  absl::Status FillThreads() {
    ANNULUS_RETURN_IF_ERROR(threads_.Fill());
    watches_threads_ = true;
    return absl::OkStatus();
  }

 private:
  void Restore() {
    if (MemoryReserve::Gone()) {
      const bool whole = memory_.Restore();
      log_.Warning("no_memory", {{"reserve", whole ? "was used and is full again" : "is used up"},
                                 {"remedy",
                                  "give the server more memory, or lower "
                                  "--max-prompts-memory or --kv-memory"}});
    }
    if (watches_threads_ && !threads_.full()) {
      const absl::Status filled = threads_.Fill();
      if (filled.ok() || !threads_said_) {
        log_.Warning("few_threads", {{"reserve", filled.ok() ? "was used and is full again"
                                                             : std::string(filled.message())},
                                     {"failures", ThreadReserve::failures()}});
      }
      threads_said_ = !filled.ok();
    }
  }

  const Logger& log_;
  MemoryReserve memory_;
  ThreadReserve threads_{ThreadReserve::ForThisMachine()};
  std::atomic<bool> watches_threads_{false};
  bool threads_said_ = false;  // used by restoring_ only, as the function above
  const PeriodicThread restoring_{std::chrono::seconds(1), [this] { Restore(); }};
};

absl::Status Serve(ServerConfig config, OptionReload& options, Logger& log) {
  // The relay uses two more sockets for each connection; HTTP may have as many connections.
  const int descriptors = config.http.empty() ? 3 : 4;
  const int connections = MakeRoomForConnections(config.max_connections, descriptors);
  if (connections < config.max_connections) {
    log.Warning("few_descriptors", {{"max_connections", connections},
                                    {"asked_for", config.max_connections},
                                    {"remedy", "raise the limit of open files (ulimit -n)"}});
    config.max_connections = connections;
  }
  SignalTarget target;
  const SignalThread signals(
      [&](int signal) {
        log.Info("signal", {{"number", signal}});
        if (target.Drain()) return;
        log.Flush(LogWriter::kLongestFarewell);
        _exit(0);
      },
      [&](int signal) {
        if (signal == SIGHUP) {
          options.Reload();
          return target.Reload();
        }
        log.Info("signal_ignored", {{"number", signal},
                                    {"remedy",
                                     "SIGTERM drains and stops the server, SIGHUP reloads options, "
                                     "tokens and certificates"}});
      });
  Reserves reserves(log);
  ExitGuard guard(log);  // outlives everything that may be slow to stop
  Loaded loaded;         // outlives the server
  ANNULUS_ASSIGN_OR_RETURN(auto server, Server::Start(config, log));
  const absl::Cleanup hush = [&] {
    if (loaded.port != nullptr) loaded.port->Show(nullptr);
  };
  ServiceNotifier notifier(ReadNotifyAddress());
  notifier.StartSigns([&] { return server->alive(); });
  for (const Exposure& exposure : FindExposures(config)) {
    log.Warning(
        "open_to_others",
        {{"address", exposure.address}, {"danger", exposure.danger}, {"remedy", exposure.remedy}});
  }
  const absl::Status status = Load(config, log, *server, loaded);
  if (!status.ok() && !IsOfDevice(status)) return status;
  ANNULUS_RETURN_IF_ERROR(reserves.FillThreads());
  // Report READY also without a device: otherwise the service manager would only restart the
  // daemon.
  const std::string words =
      status.ok() ? absl::StrCat("serves ", config.served_model_name, " on ", config.listen)
                  : absl::StrCat("cannot serve: ", status.message());
  target.Set(server.get(), &notifier, words);
  if (status.ok()) {
    server->StartServing(*loaded.engine);
    LogReady(log, config, *loaded.engine, *server, loaded.devices->backend->capabilities().nodes);
  } else {
    StayWithoutDevice(status, log, *server);
  }
  notifier.Ready(words);
  notifier.Stopping(server->WaitForDrain() + kStopLimit);
  server->WaitUntilDrained();
  guard.Arm(kStopLimit);
  server->Stop(&guard);
  target.Clear();
  notifier.EndSigns();
  server.reset();
  guard.WaitingFor([] { return "the engine and its memory"; });
  return absl::OkStatus();
}

// Prints an error to standard error. Returns the exit status.
int Report(const absl::Status& status) {
  if (status.ok()) return 0;
  std::fprintf(stderr, "annulusd: %s\n", std::string(status.message()).c_str());
  return 1;
}

// Serves. Reports through the logger instead of Report, so that the end does not wait if standard
// error hangs.
int ServeAndReport(const CommandLine& command_line, const std::vector<std::string>& arguments) {
  ServerConfig config = command_line.config;
  // Before the first of them is started.
  const absl::Status threads =
      CheckThreadRoom(ThreadsNeeded(config.engine.threads, config.engine.ranks));
  if (!threads.ok()) return Report(threads);
  if (!config.join.empty() || !config.workers_listen.empty()) {
    absl::StatusOr<std::string> devices = OpenWire(config);
    if (!devices.ok()) return Report(devices.status());
    config.wire_devices = *std::move(devices);
  }
  UseGrpcLog(config.log_level);
  Logger log(config.log_level, STDERR_FILENO, config.log_format);
  if (!config.join.empty()) {
    const absl::Status ended = Join(config, log);
    log.LastWords(absl::StrCat("annulusd: ", ended.message()));
    return 1;
  }
  OptionReload options(arguments, command_line.texts, log);
  const absl::Status status = Serve(config, options, log);
  if (status.ok()) return 0;
  log.LastWords(absl::StrCat("annulusd: ", status.message()));
  return 1;
}

int Main(const std::vector<std::string>& arguments) {
  const absl::StatusOr<CommandLine> command_line = LoadConfig(arguments, ReadEnvironment());
  if (!command_line.ok()) {
    std::fprintf(stderr, "annulusd: %s\n", std::string(command_line.status().message()).c_str());
    return kExitMisuse;
  }
  const ServerConfig& config = command_line->config;
  switch (command_line->action) {
    case Action::kManual:
      std::fputs(ManualText(kVersion).c_str(), stdout);
      return 0;
    case Action::kHelp:
      std::fputs(HelpText().c_str(), stdout);
      return 0;
    case Action::kVersion:
      std::printf("annulusd %s\n", kVersion);
      return 0;
    case Action::kPrintConfig:
      std::fputs(ConfigText(command_line->texts).c_str(), stdout);
      return 0;
    case Action::kDoctor:
      return Doctor(config);
    case Action::kHashToken:
      return Report(HashToken());
    case Action::kCheck:
      return Report(Check(config, Logger(config.log_level)));
    case Action::kPlan:
      return Report(Plan(config));
    case Action::kConvert:
      return Report(Convert(config));
    case Action::kServe:
      return ServeAndReport(*command_line, arguments);
  }
  return kExitMisuse;
}

}  // namespace
}  // namespace annulus::server

int main(int argc, char** argv) {
  signal(SIGPIPE,
         SIG_IGN);  // a closed log or connection is an error to return, not a reason to die
  signal(SIGXFSZ, SIG_IGN);                  // so is a file that may not grow
  google::protobuf::SetLogHandler(nullptr);  // it would log texts from clients
  return annulus::server::Main(std::vector<std::string>(argv + 1, argv + argc));
}
