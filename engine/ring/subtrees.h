#ifndef ANNULUS_ENGINE_RING_SUBTREES_H_
#define ANNULUS_ENGINE_RING_SUBTREES_H_

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "engine/state/step_plan.h"

namespace annulus {

// A subtree of the tree in which shards merge (kernels/ops/shards.h): leaves [first, first +
// leaves). `leaves` is a power of two.
struct Subtree {
  int32_t first = 0;
  int32_t leaves = 1;

  int32_t end() const { return first + leaves; }
  bool Meets(const Subtree& other) const { return first < other.end() && other.first < end(); }
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

// The smallest subtree that contains both.
Subtree Around(const Subtree& a, const Subtree& b);

// [ring index] The fewest subtrees that contain all pages in `entries` of that rank and none of
// another rank. This is one subtree per rank if the ring divides the shards and was placed by
// PlaceOnRing. If the pages of a shard are on several ranks, each rank with pages gets the whole
// tree; its states then merge in order of arrival: exactly, but not with the same bits as on other
// rings.
std::vector<std::vector<Subtree>> SubtreesOf(std::span<const PageEntry> entries,
                                             std::span<const int32_t> ring, int page_tokens,
                                             int shards);

// Upper bounds for the layers of a step.
struct StateCounts {
  int states = 1;      // subtrees of one rank
  int kept_slots = 1;  // states of a row kept at a time, including the result
};
// For a ring placed by PlaceOnRing. `degree` must be at most `shards`.
StateCounts StatesOfRing(int degree, int shards);
// For all rings that an engine with `ranks` ranks makes (IsUsefulDegree).
StateCounts MostStates(int ranks, int shards);

// Decides in which order an item's rows merge the states of subtrees as these arrive, keeping as
// few at a time as the order of arrival allows. States are in numbered slots; the result ends in
// slot 0. A subset of the expected subtrees never needs more slots than all of them.
class StateMerger {
 public:
  // `expected`: all subtrees that may arrive.
  explicit StateMerger(std::vector<Subtree> expected) : expected_(std::move(expected)) {}

  struct Place {
    int slot = 0;
    bool merges = false;  // merge with the state already in the slot
  };
  // Returns where to put the state of `subtree`, which must be expected. Places returned between
  // two calls of Settle are distinct.
  Place Take(const Subtree& subtree);

  // Calls merge(into, from), with slot numbers, for every merge that has become possible.
  template <class Merge>
  void Settle(const Merge& merge) {
    for (Kept& kept : kept_) kept.written = false;
    std::pair<int, int> slots;
    while (NextMerge(slots)) merge(slots.first, slots.second);
  }

  // Number of slots used so far.
  int slots() const { return slots_; }

 private:
  struct Kept {
    Subtree subtree;
    int slot;
    bool written;  // since the last Settle
  };

  bool Adjacent(const Subtree& around, const Kept* a, const Kept* b) const;
  bool NextMerge(std::pair<int, int>& slots);
  int FreeSlot() const;

  std::vector<Subtree> expected_;
  std::vector<Kept> kept_;
  int slots_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_SUBTREES_H_
