#ifndef ANNULUS_ENGINE_MEMORY_PAGE_OWNER_H_
#define ANNULUS_ENGINE_MEMORY_PAGE_OWNER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <ostream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Identifies a holder of pages. Ids are unique within a kind only: request 1 and pin 1 are two
// owners.
struct PageOwner {
  enum class Kind : uint8_t {
    kNone,     // no owner: a page that was never taken
    kRequest,  // a request; `id` is its RequestId
    kPin,      // pages kept beyond requests: PageBook::OpenPin
    kPlan,     // a plan answer, while it looks for room
    kTier,     // pages that are copied to or from a tier; `id` is the copy's ticket
    kCheck,    // a sequence that computes a restored page again
  };

  Kind kind = Kind::kNone;
  uint64_t id = 0;

  // "request 7", for error messages.
  std::string ToString() const {
    constexpr absl::string_view kNames[] = {"nobody", "request", "pin", "plan", "tier", "check"};
    const absl::string_view name = kNames[static_cast<size_t>(kind)];
    return kind == Kind::kNone ? std::string(name) : absl::StrCat(name, " ", id);
  }

  friend bool operator==(const PageOwner&, const PageOwner&) = default;
  friend auto operator<=>(const PageOwner&, const PageOwner&) = default;
  friend std::ostream& operator<<(std::ostream& out, const PageOwner& owner) {
    return out << owner.ToString();
  }
};

inline PageOwner OwnerOfRequest(uint64_t id) { return {PageOwner::Kind::kRequest, id}; }

struct PageOwnerHash {
  size_t operator()(const PageOwner& owner) const {
    // Ids are counted up from 1, so no two owners give the same number.
    return std::hash<uint64_t>()(owner.id << 3 | static_cast<uint64_t>(owner.kind));
  }
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_PAGE_OWNER_H_
