#ifndef ANNULUS_SERVER_WORK_LIFECYCLE_H_
#define ANNULUS_SERVER_WORK_LIFECYCLE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus::server {

// The phases, in order: loading, then serving or failed, then draining. Never goes back.
enum class Phase : uint8_t { kLoading, kServing, kFailed, kDraining };

// Work that a drain may have to end.
class Abortable {
 public:
  virtual ~Abortable() = default;
  // Makes the work end soon, with `status`. Called with a lock held: must not block, and must not
  // call Leave before it returns.
  virtual void Abort(absl::Status status) = 0;
};

// The phase of the server, its running work, and the engine once there is one. Thread-safe.
class Lifecycle {
 public:
  // loading -> serving, unless a drain has begun. `engine` must outlive every call.
  void StartServing(Engine& engine);

  // loading -> failed: there will be no engine. Calls that need one get UNAVAILABLE with the
  // message of `why`.
  void CannotServe(absl::Status why);

  // What is still to come before the engine is there, or can go on, for people; empty: while
  // loading, the model; later, nothing.
  void SetAwaited(std::string what);
  // What SetAwaited was told last.
  std::string awaited() const;

  Phase phase() const;

  // For calls that only read: the engine, or UNAVAILABLE if there is none.
  absl::StatusOr<Engine*> engine() const;

  // For calls that change something: the same, but also UNAVAILABLE while draining.
  absl::StatusOr<Engine*> engine_for_changes() const;

  // For calls that begin a generation: like engine_for_changes. On OK, `work` is active until
  // Leave.
  absl::StatusOr<Engine*> Enter(Abortable& work);
  void Leave(Abortable& work);
  int active() const;

  // Registers other work that a drain waits for, until Leave. Allowed in any phase.
  void Follow(Abortable& work);
  // Registers work for which a drain does not wait, because nobody could use its result any more.
  // AbortAll ends it.
  void FollowUntilDrain(Abortable& work);

  // Starts a drain. `grace`, if set, overrides the default given to WaitForDrain. Later calls have
  // no effect.
  void RequestDrain(std::optional<std::chrono::milliseconds> grace);

  // Blocks until a drain is requested. Returns how long admitted work may continue.
  std::chrono::milliseconds WaitForDrain(std::chrono::milliseconds default_grace);

  // Blocks until no work is active or registered by Follow, at most for `limit`. Returns whether
  // there is none.
  bool WaitIdle(std::chrono::milliseconds limit);
  // The same, but also waits for the work of FollowUntilDrain.
  bool WaitEmpty(std::chrono::milliseconds limit);

  // Aborts all registered work, and all work that Follow or FollowUntilDrain registers later.
  void AbortAll(const absl::Status& status);

 private:
  // The error that says why there is no engine. mutex_ must be held.
  absl::Status NoEngine() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kLoading;
  absl::Status why_none_;  // why there will be no engine; OK: it is still being loaded
  std::string awaited_;
  Engine* engine_ = nullptr;
  std::optional<std::chrono::milliseconds> grace_;
  std::unordered_set<Abortable*> active_;
  std::unordered_set<Abortable*> followed_;
  std::unordered_set<Abortable*> until_drain_;
  absl::Status cut_off_;  // not OK once AbortAll was called: its status
};

// UNAVAILABLE: the server is about to stop and takes no new work.
absl::Status DrainingError();

// UNAVAILABLE: the work had begun, but did not end within the drain's grace time.
absl::Status CutOffError();

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_LIFECYCLE_H_
