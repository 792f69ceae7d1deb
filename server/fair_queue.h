#ifndef ANNULUS_SERVER_FAIR_QUEUE_H_
#define ANNULUS_SERVER_FAIR_QUEUE_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

#include "absl/functional/function_ref.h"

namespace annulus {

using JobId = uint64_t;

// Says which job of which client runs next, so that each client with work gets the same share of
// the threads however many jobs it brings: of those that may run one, the client that has used
// least comes next, and its own jobs come in their order. A client that was idle starts level with
// the others; it saves nothing up. Only names and numbers: no thread, lock or clock. (Start-time
// fair queueing: Goyal, Vin, Cheng, SIGCOMM 1996, section 2.)
class FairQueue {
 public:
  struct Limits {
    size_t waiting = 1;  // most jobs that wait
    int running_of_client = 1;
  };
  explicit FairQueue(const Limits& limits) : limits_(limits) {}

  // Queues a job. Without memory for it throws bad_alloc and changes nothing. False when the queue
  // is full, or when the client has more waiting than places are free: one client alone fills half
  // of the queue, and the rest stays for others.
  [[nodiscard]] bool Add(JobId id, const std::string& client);
  // Queues a job that was admitted before, whatever the limits say. Throws as Add.
  void AddAdmitted(JobId id, const std::string& client);

  // Takes the job that is to run now, of those that `may_run` allows. It runs until Ended. This,
  // and all below, needs no memory.
  std::optional<JobId> Next(absl::FunctionRef<bool(JobId)> may_run = [](JobId) { return true; });
  // A job that runs has stopped; it has used `used` of whatever the clients share.
  void Ended(JobId id, uint64_t used);

  // Takes a waiting job out. False when there is none of that name.
  bool Remove(JobId id);

  size_t waiting() const { return waiting_; }

 private:
  struct Client {
    std::deque<JobId> waiting;
    int running = 0;
    uint64_t used = 0;  // what counts of it: never less than idle clients start with
  };
  using Clients = std::map<std::string, Client>;

  void Forget();

  const Limits limits_;
  Clients clients_;                                    // those that still matter
  std::unordered_map<JobId, Clients::iterator> jobs_;  // waiting and running
  size_t waiting_ = 0;
  uint64_t level_ = 0;  // what the client that ran last had used: where idle ones start
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_FAIR_QUEUE_H_
