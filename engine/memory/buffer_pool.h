#ifndef ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_
#define ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_

// The memory of one rank, allocated from its backend within a hard limit.

#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/memory/free_index.h"
#include "engine/memory/memory_block.h"
#include "kernels/backend.h"

namespace annulus {

// In bytes unless stated otherwise. Always total = free + held and total <= limit. Held bytes count
// whole blocks: sizes rounded up to kMemoryAlignment.
struct BufferPoolStats {
  size_t limit = 0;
  size_t total = 0;  // allocated from the backend
  size_t free = 0;
  size_t held = 0;
  std::array<size_t, kLifetimeCount> held_by_lifetime{};
  size_t largest_free = 0;      // largest block available without a backend allocation
  size_t high_water_held = 0;   // most held at any time
  size_t high_water_total = 0;  // most allocated from the backend at any time
  int64_t chunks = 0;           // number of current backend allocations
  int64_t trims = 0;            // how often Trim returned at least one chunk
  size_t trimmed_bytes = 0;     // returned by all trims
  int64_t refusals = 0;         // number of failed Allocate calls

  // 1 - largest free block / free bytes. 0 if all free bytes form one block, or none are free.
  double fragmentation_ratio() const;
};

// Divides chunks of the backend's memory into blocks. Free blocks are indexed by size; an
// allocation splits the best fit, and freed neighbours coalesce. Blocks of different lifetimes
// share a chunk only under pressure, so that a long-lived block does not keep a chunk of
// short-lived ones allocated. A request larger than chunk_bytes gets a chunk of its own size.
// Thread-safe.
class BufferPool {
 public:
  struct Options {
    size_t limit_bytes = 0;        // hard limit on bytes allocated from the backend
    size_t chunk_bytes = 2 << 20;  // smallest backend allocation, unless less is left
    bool host_memory = false;      // allocate by Backend::AllocateHost
    std::string name;              // shown in messages and metrics, for example "rank0"
  };

  // `backend` must outlive the pool.
  BufferPool(Backend& backend, Options options);
  // Every buffer must have been destroyed.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // Returns a buffer that gives its block back when it is destroyed, on any thread, before the
  // pool. The memory is uninitialised and aligned to kMemoryAlignment. Returns an empty buffer if
  // bytes = 0. If the limit is reached or the backend fails, returns
  // empty chunks to the backend and tries again. If that does not help, returns RESOURCE_EXHAUSTED,
  // or the backend's error if the limit would have allowed the allocation, with the requested, held
  // and limit bytes. A failed call changes nothing else.
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes, Lifetime lifetime);

  // Returns empty chunks to the backend. Returns the number of bytes.
  size_t Trim();

  BufferPoolStats Stats() const;
  const std::string& name() const { return options_.name; }
  // Whether the host may read and write the bytes.
  bool host_accessible() const {
    return options_.host_memory || backend_.capabilities().host_accessible;
  }

  // Compares every block with the pool's counters; INTERNAL describes the first difference. Linear
  // in the number of blocks; for tests.
  absl::Status CheckInvariants() const;

 private:
  using BlockIterator = std::list<MemoryBlock>::iterator;

  void Release(BlockIterator block);

  // Finds a free block of at least `bytes`, trying in this order: chunks of `lifetime`, a new
  // chunk, a new chunk after trimming, any chunk. `refused`: the backend's error, if it refused a
  // chunk.
  std::optional<BlockIterator> Find(size_t bytes, Lifetime lifetime, absl::Status& refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<BlockIterator> AddChunk(size_t bytes, Lifetime lifetime, absl::Status& refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks the first `bytes` of a free block as held and splits off the rest.
  void Hold(BlockIterator block, size_t bytes, Lifetime lifetime)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t TrimLocked() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  size_t LargestFree() const ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  FreeIndex& FreeOf(BlockIterator block) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return free_[static_cast<size_t>(block->chunk->lifetime)];
  }

  Backend& backend_;
  const Options options_;

  mutable std::mutex mutex_;
  std::list<MemoryChunk> chunks_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_serial_ ABSL_GUARDED_BY(mutex_) = 0;
  // Free blocks by the lifetime of their chunk.
  std::array<FreeIndex, kLifetimeCount> free_ ABSL_GUARDED_BY(mutex_);
  BufferPoolStats stats_ ABSL_GUARDED_BY(mutex_);  // except largest_free, which Stats computes
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_
