#include "engine/scheduler/owner_slots.h"

namespace annulus {

void OwnerSlots::Take(const std::string& owner) {
  ++by_owner_[owner];
  ++taken_;
}

void OwnerSlots::Give(const std::string& owner) noexcept {
  const auto own = by_owner_.find(owner);
  if (--own->second == 0) by_owner_.erase(own);
  --taken_;
}

bool OwnerSlots::Has(const std::string& owner) const {
  if (taken_ >= most_) return false;
  if (owner.empty() || taken_ < most_of_owner()) return true;
  const auto own = by_owner_.find(owner);
  return own == by_owner_.end() || own->second < most_of_owner();
}

}  // namespace annulus
