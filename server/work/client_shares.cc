#include "server/work/client_shares.h"

#include <algorithm>

namespace annulus::server {
namespace {

constexpr size_t kSharesOfBudget = 4;
constexpr size_t kLeastShares = 64;

}  // namespace

ClientShares::ClientShares(size_t budget, size_t least)
    : share_(std::max(budget / kSharesOfBudget, least)) {}

std::shared_ptr<MemoryBudget> ClientShares::Of(const std::string& client) {
  std::lock_guard lock(mutex_);
  std::weak_ptr<MemoryBudget>& known = shares_[client];
  std::shared_ptr<MemoryBudget> share = known.lock();
  if (share != nullptr) return share;
  share = std::make_shared<MemoryBudget>(share_);
  known = share;
  // Those of clients that have left: at most as many as there are others.
  if (shares_.size() >= sweep_at_) {
    absl::erase_if(shares_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = 2 * shares_.size() + kLeastShares;
  }
  return share;
}

}  // namespace annulus::server
