#ifndef ANNULUS_ENGINE_COORDINATOR_SNAPSHOT_BOARD_H_
#define ANNULUS_ENGINE_COORDINATOR_SNAPSHOT_BOARD_H_

#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/base/steady_time.h"
#include "engine/coordinator/ledger.h"
#include "engine/coordinator/serving.h"
#include "engine/memory/page_book.h"
#include "engine/metrics/engine_metrics.h"

namespace annulus {

// The state of an engine after the last turn of its loop, or at the start of the step that runs.
struct EngineSnapshot {
  int running = 0;  // includes parked requests, but not checks of restored pages
  int waiting = 0;
  bool healthy = true;              // whether the ranks can run steps
  SteadyTime last_turn{};           // when this snapshot was taken
  bool busy = false;                // a step runs, or ran in the last turn
  std::vector<PageCounts> pages;    // [rank]
  std::vector<int64_t> pages_most;  // [rank] most pages that were not free at one time
  double stall_budget_seconds = 0;
  double smallest_chunk_seconds = 0;  // see StepPacer
  // Most heap bytes ever taken by requests, cached prefixes and the tier's bookkeeping.
  int64_t request_bytes_most = 0;
};

// Shows the state of the loop to other threads, and in the metrics. Thread-safe, except Publish,
// which only the coordinator's thread may call.
class SnapshotBoard {
 public:
  // `metrics` must outlive the board.
  explicit SnapshotBoard(EngineMetrics& metrics) : metrics_(metrics) {}

  // Takes a snapshot. `checks`: how many checks of restored pages run.
  void Publish(const Ledger& ledger, const Serving& serving, int checks, bool healthy, bool busy,
               SteadyTime now);
  EngineSnapshot Last() const;

 private:
  EngineMetrics& metrics_;
  int64_t request_bytes_most_ = 0;
  mutable std::mutex mutex_;
  EngineSnapshot last_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_SNAPSHOT_BOARD_H_
