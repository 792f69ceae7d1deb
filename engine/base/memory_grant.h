#ifndef ANNULUS_ENGINE_BASE_MEMORY_GRANT_H_
#define ANNULUS_ENGINE_BASE_MEMORY_GRANT_H_

#include <cstddef>

#include "absl/status/status.h"

namespace annulus {

// Asked by work that takes memory which only the work itself can foresee, step by step, such as
// rendering a template. Whoever gives the work out decides how much all of its work may take.
// For one thread.
class MemoryGrant {
 public:
  virtual ~MemoryGrant() = default;

  // Called before the work's heap grows: from now on it takes `bytes` at most, all in all. A call
  // with less than an earlier one is OK and gives nothing back. An error ends the work, which
  // returns it unchanged, with all its payloads.
  virtual absl::Status Allow(size_t bytes) = 0;

  // Allows everything, for work that no client asked for. Thread-safe.
  static MemoryGrant& Unlimited();
};

// A grant for a part of some work, beside `held` bytes that the rest of it takes.
class PartOfGrant final : public MemoryGrant {
 public:
  PartOfGrant(MemoryGrant& whole, size_t held) : whole_(whole), held_(held) {}
  absl::Status Allow(size_t bytes) override { return whole_.Allow(held_ + bytes); }

 private:
  MemoryGrant& whole_;
  const size_t held_;
};

inline MemoryGrant& MemoryGrant::Unlimited() {
  class Everything final : public MemoryGrant {
    absl::Status Allow(size_t) override { return absl::OkStatus(); }
  };
  static Everything everything;
  return everything;
}

}  // namespace annulus

#endif  // ANNULUS_ENGINE_BASE_MEMORY_GRANT_H_
