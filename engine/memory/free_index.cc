#include "engine/memory/free_index.h"

#include <bit>
#include <tuple>

#include "kernels/base/check.h"

namespace annulus {
namespace {

// Requires bytes > 0.
int BucketOf(size_t bytes) { return std::bit_width(bytes) - 1; }

}  // namespace

bool FreeIndex::Order::operator()(const BlockIterator& a, const BlockIterator& b) const {
  return std::tuple(a->bytes, a->chunk->serial, a->offset) <
         std::tuple(b->bytes, b->chunk->serial, b->offset);
}

void FreeIndex::Insert(BlockIterator block) {
  const int bucket = BucketOf(block->bytes);
  const bool inserted = buckets_[bucket].insert(block).second;
  ANNULUS_CHECK(inserted) << "block of " << block->bytes << " bytes is already free";
  occupied_ |= uint64_t{1} << bucket;
}

void FreeIndex::Erase(BlockIterator block) {
  const int bucket = BucketOf(block->bytes);
  const size_t erased = buckets_[bucket].erase(block);
  ANNULUS_CHECK(erased == 1) << "block of " << block->bytes << " bytes is not free";
  if (buckets_[bucket].empty()) occupied_ &= ~(uint64_t{1} << bucket);
}

std::optional<FreeIndex::BlockIterator> FreeIndex::BestFit(size_t bytes) const {
  const int bucket = BucketOf(bytes);
  const auto fit = buckets_[bucket].lower_bound(bytes);
  if (fit != buckets_[bucket].end()) return *fit;
  // Every block of a higher bucket is large enough. Shifting in two steps, since by 64 is
  // undefined.
  const uint64_t higher = (occupied_ >> bucket) >> 1;
  if (higher == 0) return std::nullopt;
  return *buckets_[bucket + 1 + std::countr_zero(higher)].begin();
}

size_t FreeIndex::Largest() const {
  if (occupied_ == 0) return 0;
  return (*buckets_[BucketOf(occupied_)].rbegin())->bytes;
}

size_t FreeIndex::count() const {
  size_t count = 0;
  for (const auto& bucket : buckets_) count += bucket.size();
  return count;
}

}  // namespace annulus
