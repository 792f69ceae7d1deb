#ifndef ANNULUS_ENGINE_BASE_MEMORY_GRANT_H_
#define ANNULUS_ENGINE_BASE_MEMORY_GRANT_H_

#include <cstddef>

#include "absl/status/status.h"

namespace annulus {

// Lets work ask for memory step by step, if its need shows only while it runs, as in rendering a
// template. The owner of the work implements this and limits what all of its work may take. Used by
// one thread.
class MemoryGrant {
 public:
  virtual ~MemoryGrant() = default;

  // The work calls this before its heap grows: from now on it may take `bytes` in total. A call
  // with less than an earlier one is OK and gives nothing back. After an error the work must end,
  // and return the error unchanged, with all its payloads.
  virtual absl::Status Allow(size_t bytes) = 0;

  // Allows everything, for work that no client asked for. Thread-safe.
  static MemoryGrant& Unlimited();
};

// A grant for a part of some work: adds `held`, the bytes that the rest of it takes.
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
