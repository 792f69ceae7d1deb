#ifndef ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_
#define ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_

#include <array>
#include <cstdint>
#include <memory>

#include "engine/memory/page_book.h"

namespace annulus {

// Remembers which pages of prefixes were evicted, so that a request that finds less than was once
// cached can be told why. Pages are recorded by scope: one tenant under one identity of keys and
// values (the root of its hash chains). So one tenant's evictions never affect what another is
// told.
//
// Bounded: for each of the kScopes scopes that most recently lost a page, a table of kPages
// fingerprints of 8 bytes. A page's hash determines its slot, and a later page overwrites an
// earlier one. After n later pages of the scope, a page is still known with probability (1 -
// 1/kPages)^n: 37% after kPages. A page that was never evicted is mistaken for one with probability
// 2^-52.
//
// Never throws: if there is no memory for a table, it remembers less. Not thread-safe: used by the
// coordinator's thread.
class EvictedPages {
 public:
  static constexpr int kScopes = 64;
  static constexpr uint64_t kPages = 4096;

  static uint64_t ScopeOf(const ContentHash& root) { return Fingerprint(root); }

  void Add(uint64_t scope, const ContentHash& page);
  bool Has(uint64_t scope, const ContentHash& page) const;

  // Heap bytes.
  int64_t bytes() const;

 private:
  using Table = std::array<uint64_t, kPages>;
  struct Scope {
    uint64_t name = 0;
    uint64_t used = 0;  // when a page was last added; 0: never
    std::unique_ptr<Table> pages;
  };

  static uint64_t Fingerprint(const ContentHash& hash);

  std::array<Scope, kScopes> scopes_;
  uint64_t clock_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_EVICTED_PAGES_H_
