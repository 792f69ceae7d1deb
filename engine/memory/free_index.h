#ifndef ANNULUS_ENGINE_MEMORY_FREE_INDEX_H_
#define ANNULUS_ENGINE_MEMORY_FREE_INDEX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <set>

#include "engine/memory/memory_block.h"

namespace annulus {

// Free blocks by size. Bucket b has sizes [2^b, 2^(b+1)), ordered by (size, chunk age, offset); a
// bit mask marks non-empty buckets. So the best fit is found in logarithmic time, and ties go to
// the oldest chunk, which lets younger chunks become empty. Not thread-safe.
class FreeIndex {
 public:
  using BlockIterator = std::list<MemoryBlock>::iterator;

  void Insert(BlockIterator block);
  // The block must be in the index, unchanged since Insert.
  void Erase(BlockIterator block);
  // Returns the smallest block of at least `bytes` (> 0) without removing it.
  std::optional<BlockIterator> BestFit(size_t bytes) const;
  // Bytes of the largest block; 0 when there is none.
  size_t Largest() const;
  size_t count() const;

 private:
  struct Order {
    bool operator()(const BlockIterator& a, const BlockIterator& b) const;
    using is_transparent = void;
    bool operator()(const BlockIterator& a, size_t bytes) const { return a->bytes < bytes; }
  };

  std::array<std::set<BlockIterator, Order>, 64> buckets_;
  uint64_t occupied_ = 0;  // bit b: bucket b is not empty
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_FREE_INDEX_H_
