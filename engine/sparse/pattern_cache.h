#ifndef ANNULUS_ENGINE_SPARSE_PATTERN_CACHE_H_
#define ANNULUS_ENGINE_SPARSE_PATTERN_CACHE_H_

#include <cstddef>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>

#include "engine/sparse/block_pattern.h"

namespace annulus {

// Cache of block lists by policy and shape, shared by all layers and sequences with equal ones.
// Keeps at most `max_bytes` and evicts the least recently used lists; a list larger than that is
// built and evicted at once, after all others. Thread-safe: if several threads need the same list,
// one builds it; threads that need other lists are not blocked.
class PatternCache {
 public:
  explicit PatternCache(size_t max_bytes) : max_bytes_(max_bytes) {}
  ~PatternCache();
  PatternCache(const PatternCache&) = delete;
  PatternCache& operator=(const PatternCache&) = delete;

  std::shared_ptr<const BlockPattern> Get(const AttentionPolicy& policy, const PatternShape& shape);

  struct Counters {
    uint64_t hits = 0;
    uint64_t misses = 0;
    uint64_t evictions = 0;
    size_t bytes = 0;  // of cached lists
  };
  Counters counters() const;

 private:
  using Key = std::tuple<std::string, int, int32_t, int32_t>;
  struct Entry;
  void Forget();

  const size_t max_bytes_;
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  std::list<Key> used_;  // most recently used first
  Counters counters_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_PATTERN_CACHE_H_
