#ifndef ANNULUS_ENGINE_COORDINATOR_ADMISSION_CACHE_LOOKUP_H_
#define ANNULUS_ENGINE_COORDINATOR_ADMISSION_CACHE_LOOKUP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/result.h"
#include "engine/coordinator/ledger.h"
#include "engine/memory/prefix_index.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/request.h"

namespace annulus {

// Which beginnings of a request's prompt are cached in memory, and why no more of it can be reused.
// Made when the request begins.
class CacheLookup {
 public:
  // Looks the prompt up. `policy`: the request's; null: dense. Marks what it finds as used.
  CacheLookup(const Request& request, const AttentionAssignment* policy, Ledger& ledger);

  // Returns the cached beginnings that the request may use; if it ignores the cache, only what
  // it computed itself before it was set back.
  std::vector<PrefixReuse::Found> TakeFound() { return std::move(found_); }

  // Why the request, which was looked up under `policy`, reuses no more than `cached` tokens.
  // Nothing if there was no more, or if more was cached but on ranks that are too busy or too full.
  std::optional<CacheMiss> WhyNoMore(const Request& request, const AttentionAssignment* policy,
                                     int32_t cached, const Ledger& ledger) const;

 private:
  std::vector<PrefixReuse::Found> found_;
  PrefixIndex::Nearest nearest_;
  int64_t longest_ = 0;   // tokens of the longest one found, even if ignored
  bool ignored_ = false;  // the request ignores the cache, and memory or the tier has a beginning
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_COORDINATOR_ADMISSION_CACHE_LOOKUP_H_
