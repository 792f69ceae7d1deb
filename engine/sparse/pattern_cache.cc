#include "engine/sparse/pattern_cache.h"

#include <utility>

namespace annulus {

// A list that is being built has no pattern yet; its builder holds `building`.
struct PatternCache::Entry {
  std::mutex building;
  std::shared_ptr<const BlockPattern> pattern;  // guarded by `building`
  size_t bytes = 0;                             // guarded by the cache's mutex; 0: not counted yet
  std::list<Key>::iterator place;               // in used_, guarded by the cache's mutex
};

PatternCache::~PatternCache() = default;

std::shared_ptr<const BlockPattern> PatternCache::Get(const AttentionPolicy& policy,
                                                      const PatternShape& shape) {
  const Key key{PolicyText(policy), shape.head_groups, shape.first_block, shape.blocks};
  std::shared_ptr<Entry> entry;
  {
    std::lock_guard lock(mutex_);
    auto [found, added] = entries_.try_emplace(key);
    if (added) {
      ++counters_.misses;
      found->second = std::make_shared<Entry>();
      found->second->place = used_.insert(used_.begin(), key);
    } else {
      ++counters_.hits;
      used_.splice(used_.begin(), used_, found->second->place);
    }
    entry = found->second;
  }
  std::lock_guard building(entry->building);
  if (entry->pattern != nullptr) return entry->pattern;
  entry->pattern = std::make_shared<const BlockPattern>(BuildBlockPattern(policy, shape));
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  if (found != entries_.end() && found->second == entry) {
    entry->bytes = entry->pattern->bytes();
    counters_.bytes += entry->bytes;
    Forget();
  }
  return entry->pattern;
}

void PatternCache::Forget() {
  while (counters_.bytes > max_bytes_ && !used_.empty()) {
    const auto found = entries_.find(used_.back());
    counters_.bytes -= found->second->bytes;
    ++counters_.evictions;
    entries_.erase(found);
    used_.pop_back();
  }
}

PatternCache::Counters PatternCache::counters() const {
  std::lock_guard lock(mutex_);
  return counters_;
}

}  // namespace annulus
