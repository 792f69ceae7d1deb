#ifndef ANNULUS_SERVER_WORK_CLIENT_SHARES_H_
#define ANNULUS_SERVER_WORK_CLIENT_SHARES_H_

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>

#include "absl/container/flat_hash_map.h"
#include "server/base/memory_budget.h"

namespace annulus::server {

// What each client may hold of a budget that all share, so that one of them cannot use it up.
// Thread-safe.
class ClientShares {
 public:
  // A share is a quarter of `budget`, but at least `least`, in bytes.
  ClientShares(size_t budget, size_t least);

  // The share of a client (ClientOf), which all who hold it take from.
  std::shared_ptr<MemoryBudget> Of(const std::string& client);

 private:
  const size_t share_;
  std::mutex mutex_;
  absl::flat_hash_map<std::string, std::weak_ptr<MemoryBudget>> shares_;  // while any is held
  size_t sweep_at_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_CLIENT_SHARES_H_
