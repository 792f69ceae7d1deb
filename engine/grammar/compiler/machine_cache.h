#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_CACHE_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_CACHE_H_

#include <cstddef>
#include <list>
#include <memory>
#include <mutex>
#include <string>

#include "engine/api/output.h"
#include "engine/base/tenant_id.h"
#include "engine/grammar/machine.h"

namespace annulus {

// Compiled constraints by their content, the least recently used of which leave when they take more
// than the limit. Each tenant finds its own alone: how long a call takes tells nobody what others
// ask. Thread-safe.
class MachineCache {
 public:
  static constexpr size_t kDefaultBytes = size_t{16} << 20;
  static constexpr size_t kMostEntries = 256;

  explicit MachineCache(size_t max_bytes = kDefaultBytes) : max_bytes_(max_bytes) {}

  // Null if it is not there.
  std::shared_ptr<const Machine> Find(const TenantId& tenant, const OutputConstraint& constraint);

  // Keeps the machine. Not if it alone takes more than a quarter of the limit.
  void Keep(const TenantId& tenant, const OutputConstraint& constraint,
            std::shared_ptr<const Machine> machine);

  size_t bytes() const;

 private:
  struct Entry {
    TenantId tenant;
    OutputConstraint constraint;
    std::shared_ptr<const Machine> machine;
    size_t bytes = 0;
  };

  std::list<Entry>::iterator FindLocked(const TenantId& tenant, const OutputConstraint& constraint);

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::list<Entry> entries_;  // the latest first
  size_t bytes_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_MACHINE_CACHE_H_
