#include "engine/scheduler/running_slots.h"

namespace annulus {
namespace {

// Empty: not tied to a client, so it is not limited.
std::string OwnerOf(const ShareName& share) {
  if (share.owner_level() == 0) return "tenant " + share.tenant;
  return share.client.empty() ? std::string() : "client " + share.client;
}

}  // namespace

void RunningSlots::Take(const ShareName& share) {
  ++taken_;
  ++by_owner_[OwnerOf(share)];
}

bool RunningSlots::Has(const ShareName& share) const {
  if (taken_ >= most_) return false;
  const int kept = most_ / 8;
  if (taken_ < most_ - kept) return true;
  const std::string owner = OwnerOf(share);
  const auto own = by_owner_.find(owner);
  return owner.empty() || own == by_owner_.end() || own->second < most_ - kept;
}

}  // namespace annulus
