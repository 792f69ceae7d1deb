#ifndef ANNULUS_SERVER_SERVER_H_
#define ANNULUS_SERVER_SERVER_H_

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/config/server_config.h"
#include "server/identity/authenticator.h"
#include "server/log/log.h"
#include "server/process/exit_guard.h"

namespace annulus::server {

// The daemon without its engine: gRPC services, health, reflection, metrics and documents.
// Thread-safe.
class Server {
 public:
  // Listens at once: for gRPC, for metrics and on the admin socket, as configured. Until
  // StartServing, health is NOT_SERVING and calls get UNAVAILABLE. INVALID_ARGUMENT or NOT_FOUND if
  // a token or TLS file is bad; UNAVAILABLE if an address cannot be used; FAILED_PRECONDITION as
  // for AdminSocket::Open and DocumentFolder::Open. `log` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config,
                                                       const Logger& log);
  // The same with another authenticator for gRPC calls; null: the one for the token files.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerConfig& config, const Logger& log,
      std::unique_ptr<const Authenticator> authenticator);
  virtual ~Server() = default;

  // First takes in the documents of --documents, which may take long; RequestDrain ends that early.
  // `engine` must outlive the server.
  virtual void StartServing(Engine& engine) = 0;
  // False if only a restart helps (see Pulse).
  virtual bool alive() const = 0;

  // While the engine is being made: what it still waits for, for people; empty: for nothing. Calls
  // and GetServerInfo say it, and a log line.
  virtual void Await(const std::string& what) = 0;

  // Call this instead of StartServing if there will be no engine. Health stays NOT_SERVING, calls
  // get UNAVAILABLE with the message of `why`, and metrics show the state "unhealthy" and all ranks
  // down.
  virtual void CannotServe(absl::Status why) = 0;

  // Makes the server read the token and certificate files again soon, as it also does by itself
  // when they change. May be called on a signal-handling thread (not in a handler). A file that
  // cannot be read or is malformed is logged and its previous content stays in use. Afterwards
  // `done` is called on a thread of the server; never if the server stops first.
  virtual void RequestReload(std::function<void()> done = [] {}) = 0;

  // Starts a drain: from now on new work is refused, and admitted work may continue for `grace`
  // (nullopt: the configured time). Later calls have no effect.
  virtual void RequestDrain(std::optional<std::chrono::milliseconds> grace) = 0;

  // Blocks until a drain is requested. Returns how long admitted work may continue.
  virtual std::chrono::milliseconds WaitForDrain() = 0;

  // Blocks until a drain is requested and either all admitted work is done or its grace time is
  // over.
  virtual void WaitUntilDrained() = 0;

  // Ends the remaining calls with UNAVAILABLE and waits for all threads that work for them. Takes a
  // second or two if clients do not read or work is slow to end, and forever if some work never
  // ends. `guard`, which may be null, is told what it waits for. The destructor does the same.
  virtual void Stop(ExitGuard* guard) = 0;

  virtual int port() const = 0;
  virtual int http_port() const = 0;     // 0: no HTTP
  virtual int metrics_port() const = 0;  // 0: no metrics
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_SERVER_H_
