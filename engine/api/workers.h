#ifndef ANNULUS_ENGINE_API_WORKERS_H_
#define ANNULUS_ENGINE_API_WORKERS_H_

// Rings whose ranks are in several processes: a coordinator, which has the engine, and workers,
// which host ranks for it.

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace annulus {

class WorkerLink;    // engine/workers/worker_link.h
class WorkerSource;  // likewise

// What an engine needs to have ranks at workers.
struct EngineWorkers {
  // Null: all ranks are in this process. Must outlive the engine.
  WorkerSource* source = nullptr;
  int local_ranks = 1;  // in this process, the ring's first: less than EngineOptions::ranks
  std::string build;    // of the program, for people; all processes must have the same
  // Network devices for what ranks exchange, with commas ("lo", "eth0,eth1"); empty: all.
  std::string wire_devices = {};
  // A worker that has said nothing for this long is lost: 100 ms to 24 h. So is one whose step
  // makes no progress for this long and EngineOptions::exchange_timeout.
  std::chrono::milliseconds silence{};
  // How long requests wait for a worker in place of one that is lost, before they end with
  // UNAVAILABLE. The ring goes on waiting.
  std::chrono::milliseconds replacement_timeout{};
  // A request starts only if it and all that runs fit on the ring without so many of its ranks; one
  // that would not fit there alone is refused. 0: no room is kept. Less than EngineOptions::ranks,
  // and at most the ranks that are not local: those of this process are not lost alone.
  int tolerated_ranks = 0;
};

// What a worker says of itself beside its EngineOptions.
struct WorkerOptions {
  std::string name;               // for people; no two workers of a ring have the same
  std::string build;              // as EngineWorkers
  std::string wire_devices = {};  // likewise
  // Told if a rank does not end though its coordinator has left: Serve then waits without a bound.
  // The process should end in this call. Null: nobody is told.
  std::function<void(const absl::Status&)> on_stuck = nullptr;
};

// A rank at a worker.
struct HostedRank {
  int rank = 0;                                 // of the ring
  std::map<std::string, int64_t> memory_bytes;  // purpose ("kv", "step", ..) -> bytes held
};

// What a worker does, at one moment.
struct WorkerStatus {
  bool connected = false;         // a coordinator is at the other end of its link
  uint64_t epoch = 0;             // of the ring that its ranks are in; 0: in none
  int64_t steps = 0;              // that its ranks have ended since the start, also with an error
  double waited_seconds = 0;      // with ranks in a ring and no step to run, since the start
  std::vector<HostedRank> ranks;  // those that have their memory
};

// A worker as its coordinator sees it.
struct WorkerLoad {
  std::string name;
  std::string peer;  // where it dialled from, "10.0.0.7:51034"
  int first_rank = 0;
  int ranks = 1;  // from first_rank on
  bool lost = false;
  double silent_seconds = 0;  // since it last said anything
  // How long its ranks have waited for others with nothing to compute, since the start, all ranks
  // together.
  double exposed_seconds = 0;
};

// The workers of an engine's ring.
struct RingLoad {
  uint64_t epoch = 0;               // of the ring; 0: all ranks are in one process
  std::vector<WorkerLoad> workers;  // by their first rank
};

// A process that hosts EngineOptions::ranks ranks of an engine elsewhere. Its model is loaded.
class Worker {
 public:
  virtual ~Worker() = default;

  // Hosts ranks for the coordinator at the other end of the link, which must not be started, until
  // the link is closed by either side. OK if the coordinator closed it with OK; else why it ended:
  // FAILED_PRECONDITION if the coordinator refused this worker, RESOURCE_EXHAUSTED if there is not
  // enough memory. May be called again with another link, by one thread at a time.
  virtual absl::Status Serve(WorkerLink& link) = 0;

  // Thread-safe.
  virtual WorkerStatus Status() const = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_WORKERS_H_
