#ifndef ANNULUS_SERVER_LIFECYCLE_H_
#define ANNULUS_SERVER_LIFECYCLE_H_

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <unordered_set>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api.h"

namespace annulus {

// loading -> serving or failed -> draining, never back.
enum class Phase : uint8_t { kLoading, kServing, kFailed, kDraining };

// Admitted work that a drain may have to end.
class Abortable {
 public:
  virtual ~Abortable() = default;
  // Ends the work soon, with `status`. Must not call Leave before it returns, nor block.
  virtual void Abort(absl::Status status) = 0;
};

// What the server is doing, which work is under way, and the engine once there is one. Thread-safe.
class Lifecycle {
 public:
  // loading -> serving, unless a drain has begun. `engine` must outlive every call.
  void StartServing(Engine& engine);

  // loading -> failed: there will be no engine, and calls that need one are UNAVAILABLE and say
  // `why`.
  void CannotServe(absl::Status why);

  Phase phase() const;

  // For calls that only read: the engine, or UNAVAILABLE while there is none.
  absl::StatusOr<Engine*> engine() const;

  // For calls that change something: also UNAVAILABLE while draining.
  absl::StatusOr<Engine*> engine_for_changes() const;

  // For calls that begin work: as engine_for_changes. After OK, `work` is counted until Leave.
  absl::StatusOr<Engine*> Enter(Abortable& work);
  void Leave(Abortable& work);
  int active() const;

  // For other work that a drain waits for, in any phase: until Leave.
  void Follow(Abortable& work);
  // For work that a drain ends at once: nobody could use what it makes.
  void FollowUntilDrain(Abortable& work);

  // Starts a drain; `grace` overrides the default given to WaitForDrain. Only the first call
  // counts.
  void RequestDrain(std::optional<std::chrono::milliseconds> grace);

  // Blocks until a drain is requested; returns how long admitted work may go on.
  std::chrono::milliseconds WaitForDrain(std::chrono::milliseconds default_grace);

  // Blocks until nothing is active or followed, at most `limit`. True when nothing is.
  bool WaitIdle(std::chrono::milliseconds limit);
  // The same, and nothing is followed until the drain either.
  bool WaitEmpty(std::chrono::milliseconds limit);

  // Aborts all that is active or followed, now or later.
  void AbortAll(const absl::Status& status);

 private:
  // Why there is no engine. mutex_ is held.
  absl::Status NoEngine() const;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Phase phase_ = Phase::kLoading;
  absl::Status why_none_;  // OK: the engine is still being made
  Engine* engine_ = nullptr;
  std::optional<std::chrono::milliseconds> grace_;
  std::unordered_set<Abortable*> active_;
  std::unordered_set<Abortable*> followed_;
  std::unordered_set<Abortable*> until_drain_;
  absl::Status cut_off_;  // not OK: what has not ended is aborted with it
};

// UNAVAILABLE: the server is about to stop and takes no new work.
absl::Status DrainingError();

// UNAVAILABLE: the work had begun, and the drain's time ended before it did.
absl::Status CutOffError();

}  // namespace annulus

#endif  // ANNULUS_SERVER_LIFECYCLE_H_
