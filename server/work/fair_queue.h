#ifndef ANNULUS_SERVER_WORK_FAIR_QUEUE_H_
#define ANNULUS_SERVER_WORK_FAIR_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"

namespace annulus::server {

using JobId = uint64_t;

// Decides which job runs next, so that all clients with work get equal shares of the threads,
// however many jobs each has. The next job is the oldest one of the client that has used least. A
// client that was idle starts level with the others; it does not save up a claim. Contains only
// names and numbers: no thread, lock or clock. (Start-time fair queueing: Goyal, Vin, Cheng,
// SIGCOMM 1996, section 2.)
class FairQueue {
 public:
  struct Limits {
    size_t waiting = 1;         // the most jobs in the queue
    int running_of_client = 1;  // the most running jobs of one client
  };
  explicit FairQueue(const Limits& limits) : limits_(limits) {}

  // Queues a job. Returns false if the queue is full, or if the client has more jobs waiting than
  // there are free places; so one client alone can fill half of the queue. Throws bad_alloc, and
  // changes nothing, if there is no memory.
  [[nodiscard]] bool Add(JobId id, const std::string& client);
  // Queues a job that was admitted before, regardless of the limits. Throws like Add.
  void AddAdmitted(JobId id, const std::string& client);

  // Takes the job to run next, among those for which `may_run` is true. It counts as running until
  // Ended. This function and those below allocate no memory.
  std::optional<JobId> Next(absl::FunctionRef<bool(JobId)> may_run = [](JobId) { return true; });
  // A running job has stopped after using `used` units of the shared resource.
  void Ended(JobId id, uint64_t used);

  // Removes a waiting job. Returns false if there is no waiting job with that id.
  bool Remove(JobId id);

  size_t waiting() const { return waiting_; }

 private:
  struct Client {
    std::deque<JobId> waiting;
    int running = 0;
    uint64_t used = 0;  // units used; raised to level_ when the client stops being idle
  };
  using Clients = std::map<std::string, Client>;

  void Forget();

  const Limits limits_;
  Clients clients_;                                    // clients with jobs, or above level_
  std::unordered_map<JobId, Clients::iterator> jobs_;  // waiting and running
  size_t waiting_ = 0;
  uint64_t level_ = 0;  // what the client chosen last had used; idle clients start here
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_FAIR_QUEUE_H_
