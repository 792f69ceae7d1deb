#include "engine/coordinator/snapshot_board.h"

#include <algorithm>
#include <utility>

#include "engine/scheduler/parking.h"

namespace annulus {

void SnapshotBoard::Publish(const Ledger& ledger, const Serving& serving, int checks, bool healthy,
                            bool busy, SteadyTime now) {
  EngineSnapshot next;
  const EngineState& state = ledger.state();
  // Page checks run like requests, but belong to no client.
  next.running = static_cast<int>(state.running.size()) - checks;
  next.waiting = static_cast<int>(ledger.waiting().size());
  next.healthy = healthy;
  next.last_turn = now;
  next.busy = busy;
  next.stall_budget_seconds = serving.stall_seconds();
  next.smallest_chunk_seconds = serving.smallest_chunk_seconds();
  int64_t used = 0;
  int64_t reserved = 0;
  int64_t total = 0;
  const PageBook& book = ledger.book();
  for (int rank = 0; rank < book.ranks(); ++rank) {
    next.pages.push_back(book.counts(rank));
    next.pages_most.push_back(book.high_water(rank));
    used += next.pages[rank].in_use();
    reserved += next.pages[rank].reserved;
    total += next.pages[rank].total();
  }
  request_bytes_most_ = std::max(request_bytes_most_, ledger.bytes());
  next.request_bytes_most = request_bytes_most_;
  metrics_.requests_running.Set(next.running);
  metrics_.requests_parked.Set(static_cast<double>(state.running.size()) - CountActive(state));
  metrics_.requests_waiting.Set(next.waiting);
  metrics_.kv_cache_usage.Set(total > 0 ? static_cast<double>(used) / total : 0);
  metrics_.kv_cache_reserved.Set(total > 0 ? static_cast<double>(reserved) / total : 0);
  std::lock_guard lock(mutex_);
  last_ = std::move(next);
}

EngineSnapshot SnapshotBoard::Last() const {
  std::lock_guard lock(mutex_);
  return last_;
}

}  // namespace annulus
