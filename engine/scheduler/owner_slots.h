#ifndef ANNULUS_ENGINE_SCHEDULER_OWNER_SLOTS_H_
#define ANNULUS_ENGINE_SCHEDULER_OWNER_SLOTS_H_

#include <string>
#include <unordered_map>

namespace annulus {

// Slots for requests, such as those that run or those that wait. The last eighth of them, rounded
// down, is reserved: no owner (ShareName::owner) may have more than seven eighths; requests without
// one are not limited. All methods take constant time. Not thread-safe.
class OwnerSlots {
 public:
  // `most`: number of slots.
  explicit OwnerSlots(int most) : most_(most) {}

  // Records that a request of this owner has a slot, free or not. Changes nothing if it throws.
  void Take(const std::string& owner);
  // Records that a request for which Take was called has its slot no more.
  void Give(const std::string& owner) noexcept;
  // Whether one more request of this owner may have a slot.
  bool Has(const std::string& owner) const;

  int most() const { return most_; }
  int most_of_owner() const { return most_ - most_ / 8; }
  int taken() const { return taken_; }

 private:
  const int most_;
  int taken_ = 0;
  std::unordered_map<std::string, int> by_owner_;  // above 0
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SCHEDULER_OWNER_SLOTS_H_
