#ifndef ANNULUS_SERVER_SERVER_H_
#define ANNULUS_SERVER_SERVER_H_

#include <grpcpp/server.h>

#include <chrono>
#include <functional>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "engine/api.h"
#include "server/authenticator.h"
#include "server/config/server_config.h"
#include "server/exit_guard.h"
#include "server/log.h"

namespace annulus {

// The daemon but for its engine: gRPC services, health, reflection, metrics, documents.
// Thread-safe.
class Server {
 public:
  // Listens on both addresses at once. Until StartServing, health is NOT_SERVING and calls are
  // UNAVAILABLE. INVALID_ARGUMENT, NOT_FOUND: a bad token or TLS file; UNAVAILABLE: an address that
  // cannot be had. `log` must outlive the server.
  static absl::StatusOr<std::unique_ptr<Server>> Start(const ServerConfig& config,
                                                       const Logger& log);
  // The same with another way to tell who calls; null: as the token files say.
  static absl::StatusOr<std::unique_ptr<Server>> Start(
      const ServerConfig& config, const Logger& log,
      std::unique_ptr<const Authenticator> authenticator);
  virtual ~Server() = default;

  // `engine` must outlive the server.
  virtual void StartServing(Engine& engine) = 0;
  virtual bool loading() const = 0;
  // False when only a restart helps (see Pulse).
  virtual bool alive() const = 0;

  // Instead of StartServing: health stays NOT_SERVING, calls are UNAVAILABLE and say `why`, and
  // metrics show the state "unhealthy" and all ranks down.
  virtual void CannotServe(absl::Status why) = 0;

  // Reads files of tokens and certificates again, soon, as it does by itself when they change; also
  // on a thread that handles signals. A file that cannot be read, or says nonsense, is logged and
  // changes nothing. `done` is called afterwards, on a thread of the server; never if the server
  // stops first.
  virtual void RequestReload(std::function<void()> done = [] {}) = 0;

  // New work is refused from now on; admitted work goes on for `grace` (absent: the configured
  // time). Only the first call counts.
  virtual void RequestDrain(std::optional<std::chrono::milliseconds> grace) = 0;

  // Blocks until a drain was requested. Returns the grace of admitted work.
  virtual std::chrono::milliseconds WaitForDrain() = 0;

  // Blocks until a drain was requested and all admitted work is done, or its grace is over.
  virtual void WaitUntilDrained() = 0;

  // Ends the calls that are left, UNAVAILABLE, and waits for all threads that work for them. Takes
  // a second or two where clients do not read or work does not end when it is told to, and for ever
  // where it never does: `guard`, which may be null, learns what it waits for. The destructor does
  // the same.
  virtual void Stop(ExitGuard* guard) = 0;

  virtual int port() const = 0;
  virtual int metrics_port() const = 0;  // 0: no metrics
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_SERVER_H_
