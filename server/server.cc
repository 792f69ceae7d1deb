#include "server/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/config/admin_address.h"
#include "server/documents/load_documents.h"
#include "server/generation/service_context.h"
#include "server/grpc/admin_service.h"
#include "server/grpc/document_service.h"
#include "server/grpc/grpc_listener.h"
#include "server/grpc/health_board.h"
#include "server/grpc/inference_service.h"
#include "server/grpc/model_service.h"
#include "server/grpc/trace_export.h"
#include "server/http/api_service.h"
#include "server/http/operator_http.h"
#include "server/identity/credentials.h"
#include "server/identity/file_watch.h"
#include "server/metrics/memory_report.h"
#include "server/metrics/ring_metrics.h"
#include "server/metrics/server_state.h"
#include "server/net/admin_socket.h"
#include "server/process/heap_trimmer.h"
#include "server/process/periodic_thread.h"
#include "server/process/process_metrics.h"
#include "server/process/pulse.h"
#include "server/traces/span_queue.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kHousekeepingInterval{200};
constexpr milliseconds kAbortGrace{1000};     // for aborted calls to send their last status
constexpr milliseconds kShutdownGrace{1000};  // for remaining calls, such as health watches
// Long jobs use at most half of the processors, which leaves the rest to the engine and short jobs.
WorkPool::Options PoolOptions() {
  const int processors = static_cast<int>(std::thread::hardware_concurrency());
  WorkPool::Options options;
  options.short_jobs = std::max(4, processors);
  options.long_jobs = std::max(1, processors / 2);
  options.begun = std::max(32, options.long_jobs);
  options.max_waiting = 1024;
  return options;
}

class ServerImpl final : public Server {
 public:
  ServerImpl(const ServerConfig& config, const Logger& log, FileWatch watch,
             std::unique_ptr<Credentials> credentials, std::shared_ptr<TlsFiles> tls,
             std::unique_ptr<const Authenticator> authenticator,
             std::unique_ptr<DocumentFolder> folder)
      : config_(config),
        log_(log),
        credentials_(std::move(credentials)),
        tls_(std::move(tls)),
        authenticator_(std::move(authenticator)),
        documents_(config.documents, std::move(folder)),
        pool_(PoolOptions()),
        watch_(std::move(watch)) {
    documents_.SetTenants(credentials_->document_tenants());
  }

  ~ServerImpl() override { EndAll(milliseconds(0)); }

  absl::Status Listen();

  void StartServing(Engine& engine) override {
    LoadKeptDocuments(engine);
    lifecycle_.StartServing(engine);
    ShowHealth();
  }

  void Await(const std::string& what) override {
    lifecycle_.SetAwaited(what);
    if (what.empty()) return log_.Info("ring_complete");
    log_.Info("ring_waits", {{"for", what}});
  }

  void CannotServe(absl::Status why) override { lifecycle_.CannotServe(std::move(why)); }

  bool alive() const override { return pulse_.alive(steady_clock::now()); }

  milliseconds WaitForDrain() override { return lifecycle_.WaitForDrain(config_.grace_time); }

  void RequestReload(std::function<void()> done) override {
    std::lock_guard lock(reload_mutex_);
    reload_done_.push_back(std::move(done));
  }

  void RequestDrain(std::optional<milliseconds> grace) override {
    load_ended_.Cancel();
    lifecycle_.RequestDrain(grace);
  }

  void WaitUntilDrained() override;
  void Stop(ExitGuard* guard) override;

  int port() const override { return port_; }
  int http_port() const override { return api_http_ ? api_http_->port() : 0; }
  int metrics_port() const override { return operator_http_ ? operator_http_->port() : 0; }

 private:
  absl::Status ListenForAdmins();
  void LoadKeptDocuments(const Engine& engine);
  std::vector<MetricFamily> CollectMetrics() const;
  std::optional<EngineLoad> ShowHealth();
  void Housekeep();
  void WarnOfStalls(const EngineLoad& load);
  void WarnOfTiers(const EngineLoad& load);
  void WarnOfDocuments();
  bool WarnOfStuckCalls(SteadyTime now);
  void ReloadIfAsked();
  void Reload();
  void EndAll(milliseconds grace);
  std::string AtWork() const;

  const ServerConfig config_;
  const Logger& log_;
  const std::unique_ptr<Credentials> credentials_;
  const std::shared_ptr<TlsFiles> tls_;  // null without TLS
  const std::unique_ptr<const Authenticator> authenticator_;
  const std::shared_ptr<PeerBook> peers_ = std::make_shared<PeerBook>();
  const AdminGate admin_gate_{*credentials_};
  Lifecycle lifecycle_;
  DocumentStore documents_;
  CancelFlag load_ended_;                         // a drain ends the loading of documents
  std::atomic<int64_t> document_errors_said_{0};  // of the folder of documents
  ServerMetrics metrics_;
  DeliveryThread delivery_;
  WorkPool pool_;
  UnreadAnswers unread_;
  AttachTable attach_{config_.attach};
  const std::unique_ptr<TraceExport> traces_ = TraceExport::Make(config_.otlp_endpoint, log_);
  SpanQueue* const spans_ = traces_ != nullptr ? &traces_->spans() : nullptr;
  ServiceContext context_{
      config_,    log_,        *authenticator_,
      *peers_,    admin_gate_, lifecycle_,
      documents_, metrics_,    pool_,
      delivery_,  unread_,     std::make_shared<MemoryBudget>(config_.max_prompts_memory),
      attach_,    spans_};
  InferenceService inference_{context_};
  DocumentService document_service_{context_};
  ModelService models_{context_};
  AdminService admin_{context_};
  const std::unique_ptr<const Authenticator> operators_ = Authenticator::ForAdminSocket();
  ServiceContext operator_context_{
      config_,  log_,  *operators_, *peers_, admin_gate_,      lifecycle_, documents_,
      metrics_, pool_, delivery_,   unread_, context_.prompts, attach_,    spans_};
  AdminService operator_admin_{operator_context_};
  ApiService api_{context_};
  GrpcListener grpc_;
  std::unique_ptr<AdminSocket> admin_socket_;  // null if there is none
  GrpcListener admin_grpc_;                    // listens on admin_socket_
  HealthBoard health_;
  int port_ = 0;
  Pulse pulse_{steady_clock::now()};
  struct TierSaid {
    int64_t mismatches = 0;
    bool off = false;
    bool obstacle = false;
  };
  std::map<TierKind, TierSaid> tiers_said_;  // of the housekeeping thread, as the next
  bool stalls_said_ = false;
  bool stuck_said_ = false;
  HeapTrimmer trimmer_;  // used by the housekeeping thread only
  FileWatch watch_;      // used by the housekeeping thread only
  std::mutex reload_mutex_;
  std::vector<std::function<void()>> reload_done_;  // `done` of each pending RequestReload
  std::unique_ptr<HttpResponder> operator_http_;
  std::unique_ptr<HttpListener> api_http_;  // null without --http
  std::unique_ptr<PeriodicThread> housekeeping_;
};

absl::Status ServerImpl::Listen() {
  if (!config_.metrics.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(
        operator_http_,
        StartOperatorHttp(config_, *credentials_, tls_,
                          {[this] { return CollectMetrics(); }, [this] { return alive(); },
                           [this] { return StateOf(lifecycle_); }}));
  }
  ANNULUS_ASSIGN_OR_RETURN(
      grpc_, StartGrpc(config_, {&inference_, &document_service_, &models_, &admin_}, tls_, peers_,
                       [this](CutOff why, const std::string& client) {
                         metrics_.CountCutOff(why);
                         log_.FromClient(LogLevel::kInfo, "connection_cut_off",
                                         {{"peer", client}, {"reason", CutOffReason(why)}});
                       }));
  port_ = grpc_.acceptor->port();
  if (!config_.http.empty()) {
    auto streams =
        tls_ != nullptr ? std::make_unique<TlsStreams>(tls_, TlsStreams::For::kOperators) : nullptr;
    ANNULUS_ASSIGN_OR_RETURN(api_http_, StartApiHttp(context_, api_, std::move(streams)));
  }
  ANNULUS_RETURN_IF_ERROR(ListenForAdmins());
  ShowHealth();  // so that the health service knows every name from the start
  housekeeping_ = std::make_unique<PeriodicThread>(kHousekeepingInterval, [this] {
    Housekeep();
    ReloadIfAsked();
    const auto engine = lifecycle_.engine();
    const SteadyTime now = steady_clock::now();
    // A ring that waits for a worker needs no restart.
    const bool sick = engine.ok() && !(*engine)->Load().healthy && lifecycle_.awaited().empty();
    pulse_.Beat(now, sick, WarnOfStuckCalls(now));
    trimmer_.Tick(steady_clock::now());
  });
  return absl::OkStatus();
}

// With --admin-listen auto, a socket that cannot be opened is only a warning. With an explicit path
// it is an error.
absl::Status ServerImpl::ListenForAdmins() {
  if (config_.admin_listen.empty()) return absl::OkStatus();
  const bool automatic = config_.admin_listen == "auto";
  auto socket = AdminSocket::Open(automatic ? AutomaticAdminSocket(ReadRuntimeFolders(), port_)
                                            : config_.admin_listen);
  if (!socket.ok() && automatic) {
    log_.Warning("no_admin_socket", {{"reason", std::string(socket.status().message())}});
    return absl::OkStatus();
  }
  ANNULUS_RETURN_IF_ERROR(socket.status());
  admin_socket_ = *std::move(socket);
  ANNULUS_ASSIGN_OR_RETURN(
      admin_grpc_, StartTrustedGrpc(config_, operator_admin_, admin_socket_->TakeAcceptor()));
  log_.Info("admin_listening", {{"socket", absl::StrCat("unix:", admin_socket_->path())}});
  return absl::OkStatus();
}

std::vector<MetricFamily> ServerImpl::CollectMetrics() const {
  std::vector<MetricFamily> families = metrics_.Collect(lifecycle_, documents_);
  families.push_back(LostLogLines(log_));
  families.push_back(CertificateEnds(tls_.get()));
  families.push_back(ReplayMemory(attach_.bytes()));
  families.push_back(QuotaRefusals(*context_.quotas));
  if (lifecycle_.phase() == Phase::kFailed) {
    families.push_back(RanksDown(config_.engine.ranks));
  }
  const auto append = [&](std::vector<MetricFamily> more) {
    std::move(more.begin(), more.end(), std::back_inserter(families));
  };
  append(ProcessMetrics());
  append(DocumentFolderMetrics(documents_.folder()));
  append(SpanMetrics(spans_));
  const auto engine = lifecycle_.engine();
  if (!config_.workers_listen.empty()) {
    append(
        RingMetrics(engine.ok() ? (*engine)->Load() : EngineLoad(), !lifecycle_.awaited().empty()));
  }
  if (!engine.ok()) return families;
  EngineReport report = (*engine)->Report();
  append(MemoryMetrics(report.load, context_.held_most()));
  report.metrics.push_back(CacheConfigInfo(config_, (*engine)->model(), report.load));
  AddModelName(config_.served_model_name, report.metrics);
  append(std::move(report.metrics));
  return families;
}

// Returns what it read of the engine; nothing: there is none.
std::optional<EngineLoad> ServerImpl::ShowHealth() {
  std::optional<EngineLoad> load;
  const auto read = [&]() -> HealthBoard::Health {
    if (const auto engine = lifecycle_.engine(); engine.ok()) load = (*engine)->Load();
    const bool healthy = load.has_value() && load->healthy;
    return {.ready = healthy && lifecycle_.phase() == Phase::kServing, .alive = alive()};
  };
  health_.Show(read, *grpc_.server->GetHealthCheckService());
  return load;
}

void ServerImpl::Housekeep() {
  log_.SayWhatWasSuppressed();
  if (const std::optional<EngineLoad> load = ShowHealth(); load.has_value()) {
    WarnOfStalls(*load);
    WarnOfTiers(*load);
    WarnOfDocuments();
  }
  if (traces_ != nullptr) traces_->WarnIfFailing();
  const SteadyTime now = steady_clock::now();
  document_service_.CutOffSlow(now, config_.upload_timeout);
  attach_.Expire(now);
  // The engine ends a request whose client does not read for slow_reader_timeout. The client then
  // has the same time again to read the error.
  unread_.CutOffSince(now - 2 * config_.engine.slow_reader_timeout, now);
}

// Warns once if the model is too slow for the stall budget even without load.
void ServerImpl::WarnOfStalls(const EngineLoad& load) {
  if (stalls_said_ || load.stall_budget_seconds <= 0) return;
  if (load.smallest_chunk_seconds <= load.stall_budget_seconds) return;
  stalls_said_ = true;
  log_.Warning("stall_budget_not_kept",
               {{"stall_budget_seconds", absl::StrCat(load.stall_budget_seconds)},
                {"smallest_chunk_seconds", absl::StrCat(load.smallest_chunk_seconds)},
                {"advice",
                 "while a prompt is processed, running answers wait longer than --stall-budget; "
                 "raise it, or use a smaller --page-tokens or more --threads"}});
}

void ServerImpl::ReloadIfAsked() {
  std::vector<std::function<void()>> done;
  {
    std::lock_guard lock(reload_mutex_);
    done.swap(reload_done_);
  }
  if (watch_.Changed() || !done.empty()) Reload();
  for (const auto& call : done) call();
}

// Reads the token and certificate files again. If one cannot be read, its previous content stays in
// use.
void ServerImpl::Reload() {
  // Try all files, so that a broken one does not prevent the others from taking effect.
  absl::Status status = credentials_->Reload();
  documents_.SetTenants(credentials_->document_tenants());
  if (tls_ != nullptr) status.Update(tls_->Reload());
  metrics_.SetReloadFailed(!status.ok());
  if (status.ok()) return log_.Info("reloaded");
  log_.Error("reload_failed",
             {{"reason", std::string(status.message())},
              {"remedy", "fix the file and send SIGHUP again; its earlier content stays in use"}});
}

// Returns whether calls are stuck, and logs it the first time.
bool ServerImpl::WarnOfStuckCalls(SteadyTime now) {
  const bool stuck = unread_.HasStuck(now);
  if (stuck && !std::exchange(stuck_said_, true)) {
    log_.Error("calls_stuck",
               {{"danger", "calls of disconnected clients do not end; the liveness probe fails"},
                {"remedy", "restart annulusd; allow it more threads (annulusd --doctor)"}});
  }
  return stuck;
}

void ServerImpl::WarnOfTiers(const EngineLoad& load) {
  for (const TierLoad& tier : load.tiers) {
    const bool host = tier.kind == TierKind::kHost;
    const std::string event = host ? "kv_host" : "kv_disk";
    TierSaid& said = tiers_said_[tier.kind];
    if (tier.mismatches > said.mismatches) {
      said.mismatches = tier.mismatches;
      log_.Warning(
          event + "_mismatch",
          {{"pages", absl::StrCat(tier.mismatches)},
           {"advice",
            host ? "these pages of --kv-host had correct checksums but differ from the recomputed "
                   "ones; they were dropped, and the prompts were recomputed; test the memory of "
                   "this machine"
                 : "these pages of --kv-disk had correct checksums but differ from the recomputed "
                   "ones; they were dropped, and the prompts were recomputed; test the memory and "
                   "the disk of this machine, and check who can write to the folder"}});
    }
    if (!tier.obstacle.empty() && !std::exchange(said.obstacle, true)) {
      log_.Warning(event + "_obstacle",
                   {{"folder", tier.obstacle},
                    {"advice",
                     "the daemon stores a page in a file of this name, but there is a folder of "
                     "this name; remove the folder, or the page is recomputed each time"}});
    }
    // Once, because a tier that is turned off stays off.
    if (said.off || tier.off.empty()) continue;
    said.off = true;
    log_.Warning(
        event + "_off",
        {{"reason", tier.off},
         {"advice",
          host ? "the daemon continues without --kv-host; give it more memory and restart it"
               : "the daemon continues without --kv-disk; repair the disk or lower --kv-disk-size, "
                 "then restart it"}});
  }
}

// Takes in what an earlier process has kept. Until it ends, calls find the server loading.
void ServerImpl::LoadKeptDocuments(const Engine& engine) {
  if (documents_.folder() == nullptr) return;
  const SteadyTime begun = steady_clock::now();
  const LoadedDocuments loaded = LoadDocuments(
      documents_, engine, context_.quotas, load_ended_,
      [&](const std::string& path, const absl::Status& why) {
        log_.FromClient(LogLevel::kWarning, "document_lost",
                        {{"file", path},
                         {"reason", std::string(why.message())},
                         {"advice",
                          "the file stays as it is; restore it from a backup, or remove it; if "
                          "there is no room, raise --max-documents or --max-documents-memory"}});
      });
  document_errors_said_ = documents_.folder()->stats().errors;
  const std::chrono::duration<double> took = steady_clock::now() - begun;
  log_.Info("documents_loaded", {{"documents", loaded.documents},
                                 {"bytes", loaded.bytes},
                                 {"tokens", loaded.tokens},
                                 {"lost", loaded.lost},
                                 {"replaced", loaded.older},
                                 {"seconds", took.count()}});
}

void ServerImpl::WarnOfDocuments() {
  if (documents_.folder() == nullptr) return;
  const DocumentFolder::Stats stats = documents_.folder()->stats();
  if (document_errors_said_.exchange(stats.errors) == stats.errors) return;
  log_.FromClient(LogLevel::kWarning, "documents_disk",
                  {{"errors", stats.errors},
                   {"latest", stats.last_error},
                   {"advice",
                    "only the documents of these calls are affected; if the disk of --documents is "
                    "full, delete documents or give it more room; if it fails, test it"}});
}

void ServerImpl::WaitUntilDrained() {
  const milliseconds grace = WaitForDrain();
  ShowHealth();
  log_.Info("draining", {{"active", lifecycle_.active()},
                         {"grace_seconds", absl::StrCat(grace.count() / 1000.0)}});
  if (!lifecycle_.WaitIdle(grace)) {
    log_.Warning("grace_time_over", {{"cut_off", lifecycle_.active()}});
  }
}

void ServerImpl::Stop(ExitGuard* guard) {
  if (guard != nullptr) guard->WaitingFor([this] { return AtWork(); });
  lifecycle_.AbortAll(CutOffError());
  pool_.CancelAll();
  lifecycle_.WaitEmpty(kAbortGrace);
  EndAll(kShutdownGrace);
  if (guard != nullptr) guard->WaitingFor([] { return "the server's memory"; });
  log_.Info("drained");
}

// No-op the second time.
void ServerImpl::EndAll(milliseconds grace) {
  housekeeping_.reset();
  api_http_.reset();
  for (GrpcListener* const listener : {&grpc_, &admin_grpc_}) {
    if (listener->server != nullptr) listener->Shutdown(grace);
    listener->server.reset();  // waits for the last callbacks
  }
  pool_.Stop();  // before members are destroyed that its jobs use
}

std::string ServerImpl::AtWork() const {
  return absl::StrCat(lifecycle_.active(),
                      " generations; jobs: ", absl::StrJoin(pool_.Begun(), " "));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Server>> Server::Start(const ServerConfig& config,
                                                      const Logger& log) {
  return Start(config, log, nullptr);
}

absl::StatusOr<std::unique_ptr<Server>> Server::Start(
    const ServerConfig& config, const Logger& log,
    std::unique_ptr<const Authenticator> authenticator) {
  // Create the watch before reading the files, so that a file replaced in between is read again.
  FileWatch watch({config.auth_token_file, config.admin_token_file, config.tokens_file,
                   config.tls_certificate, config.tls_key, config.tls_client_ca});
  ANNULUS_ASSIGN_OR_RETURN(auto credentials, Credentials::Open(config));
  ANNULUS_ASSIGN_OR_RETURN(auto tls, TlsFiles::Open(config));
  if (authenticator == nullptr) authenticator = Authenticator::For(*credentials);
  std::unique_ptr<DocumentFolder> folder;
  if (!config.documents.folder.empty()) {
    auto opened = DocumentFolder::Open(config.documents.folder,
                                       {.limit_bytes = config.documents.folder_bytes});
    if (!opened.ok()) {
      return absl::Status(opened.status().code(),
                          absl::StrCat("--documents: ", opened.status().message()));
    }
    folder = *std::move(opened);
  }
  auto server =
      std::make_unique<ServerImpl>(config, log, std::move(watch), std::move(credentials),
                                   std::move(tls), std::move(authenticator), std::move(folder));
  ANNULUS_RETURN_IF_ERROR(server->Listen());
  return server;
}

}  // namespace annulus::server
