#ifndef ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_
#define ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_

// The bytes of one rank, taken from its backend under a hard bound.

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

class BufferPool;

// Owner of one block of a pool; movable. The block goes back when the owner ends. Uninitialised,
// aligned to kMemoryAlignment. Not thread-safe itself, but may end on any thread. The pool must
// outlive it.
class PoolBuffer {
 public:
  PoolBuffer() = default;
  PoolBuffer(PoolBuffer&& other) noexcept { *this = std::move(other); }
  PoolBuffer& operator=(PoolBuffer&& other) noexcept;
  PoolBuffer(const PoolBuffer&) = delete;
  PoolBuffer& operator=(const PoolBuffer&) = delete;
  ~PoolBuffer() { Reset(); }

  // Gives the block back now; the owner is then empty.
  void Reset();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }  // as asked for
  // Whether the host may read and write the bytes.
  bool host_accessible() const { return host_accessible_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  friend class BufferPool;

  BufferPool* pool_ = nullptr;
  std::list<MemoryBlock>::iterator block_;
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  bool host_accessible_ = false;
};

// All in bytes unless said. total = free + held, and total <= limit, always. Held bytes count
// whole blocks: requests rounded up to kMemoryAlignment.
struct BufferPoolStats {
  size_t limit = 0;
  size_t total = 0;  // taken from the backend
  size_t free = 0;
  size_t held = 0;
  std::array<size_t, kLifetimeCount> held_by_lifetime{};
  size_t largest_free = 0;      // largest block that needs nothing from the backend
  size_t high_water_held = 0;   // most ever held at once
  size_t high_water_total = 0;  // most ever taken from the backend at once
  int64_t chunks = 0;           // count of backend allocations alive
  int64_t trims = 0;            // times that Trim gave at least one chunk back
  size_t trimmed_bytes = 0;     // given back by all trims
  int64_t refusals = 0;         // Allocate calls that failed

  // 1 - largest free block / free bytes: 0 when all free bytes are one block, or none is free.
  double fragmentation_ratio() const;
};

// Cuts chunks of the backend's memory into blocks. Free blocks are kept in size buckets; the best
// fit is taken and split, and freed neighbours coalesce. Blocks of different lifetimes share a
// chunk only under pressure, so that a long-lived block does not pin short-lived ones' memory. A
// request larger than chunk_bytes gets a chunk of its own size. Thread-safe.
class BufferPool {
 public:
  struct Options {
    size_t limit_bytes = 0;        // hard bound on bytes taken from the backend
    size_t chunk_bytes = 2 << 20;  // smallest allocation asked of the backend, room permitting
    bool host_memory = false;      // take Backend::AllocateHost's instead of the device's
    std::string name;              // in messages and metrics, for example "rank0"
  };

  // `backend` must outlive the pool.
  BufferPool(Backend& backend, Options options);
  // Every PoolBuffer must have ended.
  ~BufferPool();
  BufferPool(const BufferPool&) = delete;
  BufferPool& operator=(const BufferPool&) = delete;

  // bytes = 0 gives an empty buffer. At the limit, or when the backend refuses, wholly free chunks
  // are given back first; if that does not help: RESOURCE_EXHAUSTED, or what the backend says where
  // there was room below the limit, with asked, held and limit bytes. The pool is unchanged by a
  // refusal, apart from what was trimmed.
  absl::StatusOr<PoolBuffer> Allocate(size_t bytes, Lifetime lifetime);

  // Gives chunks that hold nothing back to the backend; returns how many bytes.
  size_t Trim();

  BufferPoolStats Stats() const;
  const std::string& name() const { return options_.name; }

  // Walks every block and compares with the books: INTERNAL names the first difference. Linear in
  // the number of blocks; for tests.
  absl::Status CheckInvariants() const;

 private:
  friend class PoolBuffer;
  using BlockIterator = std::list<MemoryBlock>::iterator;

  void Release(BlockIterator block);

  // A free block of at least `bytes`: from `lifetime`'s chunks, a new chunk, a new chunk after
  // trimming, or any chunk, in this order. `refused`: what the backend said, where it was asked
  // and refused.
  std::optional<BlockIterator> Find(size_t bytes, Lifetime lifetime, absl::Status& refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<BlockIterator> AddChunk(size_t bytes, Lifetime lifetime, absl::Status& refused)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Marks the first `bytes` of a free block as held; the rest becomes a free block of its own.
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
  BufferPoolStats stats_ ABSL_GUARDED_BY(mutex_);  // largest_free is computed when asked for
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_BUFFER_POOL_H_
