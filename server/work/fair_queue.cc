#include "server/work/fair_queue.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "kernels/base/check.h"

namespace annulus::server {

bool FairQueue::Add(JobId id, const std::string& client) {
  if (waiting_ >= limits_.waiting) return false;
  const auto found = clients_.find(client);
  const size_t own = found == clients_.end() ? 0 : found->second.waiting.size();
  if (own > limits_.waiting - waiting_) return false;
  AddAdmitted(id, client);
  return true;
}

void FairQueue::AddAdmitted(JobId id, const std::string& client) {
  const auto place = clients_.try_emplace(client).first;  // Next removes clients without jobs
  const auto [job, is_new] = jobs_.emplace(id, place);
  ANNULUS_CHECK(is_new) << "job " << id << " is queued already";
  absl::Cleanup undo = [this, job] { jobs_.erase(job); };
  Client& owner = place->second;
  const bool idle = owner.waiting.empty() && owner.running == 0;
  owner.waiting.push_back(id);
  std::move(undo).Cancel();
  if (idle) owner.used = std::max(owner.used, level_);
  ++waiting_;
}

std::optional<JobId> FairQueue::Next(absl::FunctionRef<bool(JobId)> may_run) {
  Forget();
  Client* next = nullptr;
  std::deque<JobId>::iterator job;
  for (auto& [name, client] : clients_) {
    if (client.running >= limits_.running_of_client) continue;
    // On a tie, prefer the client with fewer running jobs, whose use is not counted yet.
    if (next != nullptr &&
        std::pair(client.used, client.running) >= std::pair(next->used, next->running)) {
      continue;
    }
    const auto first = std::find_if(client.waiting.begin(), client.waiting.end(), may_run);
    if (first == client.waiting.end()) continue;
    next = &client;
    job = first;
  }
  if (next == nullptr) return std::nullopt;
  level_ = std::max(level_, next->used);
  const JobId id = *job;
  next->waiting.erase(job);
  ++next->running;
  --waiting_;
  return id;
}

void FairQueue::Ended(JobId id, uint64_t used) {
  const auto found = jobs_.find(id);
  ANNULUS_CHECK(found != jobs_.end()) << "job " << id << " does not run";
  Client& client = found->second->second;
  --client.running;
  client.used += used;
  jobs_.erase(found);
}

bool FairQueue::Remove(JobId id) {
  const auto found = jobs_.find(id);
  if (found == jobs_.end()) return false;
  std::deque<JobId>& waiting = found->second->second.waiting;
  const auto place = std::find(waiting.begin(), waiting.end(), id);
  if (place == waiting.end()) return false;  // it runs
  waiting.erase(place);
  --waiting_;
  jobs_.erase(found);
  return true;
}

// Removes clients without jobs that would restart at level_ anyway; if there are no jobs at all,
// removes all clients.
void FairQueue::Forget() {
  for (auto it = clients_.begin(); it != clients_.end();) {
    const Client& client = it->second;
    const bool idle = client.waiting.empty() && client.running == 0;
    it = idle && (client.used <= level_ || jobs_.empty()) ? clients_.erase(it) : std::next(it);
  }
}

}  // namespace annulus::server
