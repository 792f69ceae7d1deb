#include "engine/grammar/compiler/machine_cache.h"

#include <algorithm>
#include <utility>

namespace annulus {

std::list<MachineCache::Entry>::iterator MachineCache::FindLocked(
    const TenantId& tenant, const OutputConstraint& constraint) {
  return std::find_if(entries_.begin(), entries_.end(), [&](const Entry& entry) {
    return entry.tenant == tenant && entry.constraint == constraint;
  });
}

std::shared_ptr<const Machine> MachineCache::Find(const TenantId& tenant,
                                                  const OutputConstraint& constraint) {
  std::lock_guard lock(mutex_);
  const auto found = FindLocked(tenant, constraint);
  if (found == entries_.end()) return nullptr;
  entries_.splice(entries_.begin(), entries_, found);
  return found->machine;
}

void MachineCache::Keep(const TenantId& tenant, const OutputConstraint& constraint,
                        std::shared_ptr<const Machine> machine) {
  size_t bytes = sizeof(Entry) + MachineBytes(*machine) + constraint.text.capacity();
  for (const std::string& choice : constraint.choices) bytes += sizeof(choice) + choice.capacity();
  if (constraint.answer.has_value()) bytes += constraint.answer->tools.capacity();
  if (bytes > max_bytes_ / 4) return;
  std::lock_guard lock(mutex_);
  if (FindLocked(tenant, constraint) != entries_.end()) return;  // another call was faster
  entries_.push_front({tenant, constraint, std::move(machine), bytes});
  bytes_ += bytes;
  while (bytes_ > max_bytes_ || entries_.size() > kMostEntries) {
    bytes_ -= entries_.back().bytes;
    entries_.pop_back();
  }
}

size_t MachineCache::bytes() const {
  std::lock_guard lock(mutex_);
  return bytes_;
}

}  // namespace annulus
