#ifndef ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_
#define ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_

#include <array>
#include <cstdint>
#include <memory>

#include "engine/memory/page_book.h"

namespace annulus {

// Remembers which pages of prefixes were given back, so that a prompt that finds less than was kept
// before can be told why. A scope is one tenant's one way of computing (the root of its chains), so
// what one tenant's pages leave here never answers for another's.
//
// Bounded: one table of kPages fingerprints (8 bytes each) for each of the kScopes scopes that lost
// a page last. A page's place in its table follows from its hash, and a later page takes the place
// of an earlier one. So it forgets: after n later pages of the scope a page is still known with a
// probability of (1 - 1/kPages)^n, 37% after kPages. A page that never went is taken for one that
// did with a probability of 2^-52.
//
// Never throws: without memory for a table it remembers less. Not thread-safe: the coordinator's.
class EvictedPages {
 public:
  static constexpr int kScopes = 64;
  static constexpr uint64_t kPages = 4096;

  static uint64_t ScopeOf(const ContentHash& root) { return Fingerprint(root); }

  void Add(uint64_t scope, const ContentHash& page);
  bool Has(uint64_t scope, const ContentHash& page) const;

  // Bytes of the heap.
  int64_t bytes() const;

 private:
  using Table = std::array<uint64_t, kPages>;
  struct Scope {
    uint64_t name = 0;
    uint64_t used = 0;  // when a page was added last; 0: never
    std::unique_ptr<Table> pages;
  };

  static uint64_t Fingerprint(const ContentHash& hash);

  std::array<Scope, kScopes> scopes_;
  uint64_t clock_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_
