#ifndef ANNULUS_ENGINE_MEMORY_STEP_ARENA_H_
#define ANNULUS_ENGINE_MEMORY_STEP_ARENA_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/memory/align.h"
#include "engine/memory/buffer_pool.h"

namespace annulus {

// Memory for the activations and scratch data of one step on one rank: a bump allocator over one
// buffer of a pool, emptied at the start of each step. Since a step's needs are planned, an
// overflow is an error in the plan and returned as a Status. Under AddressSanitizer, unallocated
// bytes are inaccessible. Not thread-safe.
class StepArena {
 public:
  // A point to rewind to; valid until the arena is rewound below it.
  struct Position {
    size_t used = 0;
  };

  // `host_accessible`: see BufferPool::host_accessible.
  StepArena(DeviceBuffer buffer, bool host_accessible);
  ~StepArena();
  StepArena(const StepArena&) = delete;
  StepArena& operator=(const StepArena&) = delete;

  // The bytes that Take<T>(count) uses, for planning. Requires that count * sizeof(T) fits into
  // size_t.
  template <typename T>
  static constexpr size_t BytesFor(size_t count) {
    return AlignUp(count * sizeof(T));
  }

  // Allocates `count` uninitialised values, aligned to kMemoryAlignment, valid until Reset or a
  // Rewind below them. RESOURCE_EXHAUSTED, with count, used and capacity bytes, if they do not fit.
  template <typename T>
  absl::StatusOr<std::span<T>> Take(size_t count) {
    static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
    static_assert(alignof(T) <= kMemoryAlignment);
    // Free bytes are a multiple of the alignment, so what fits still fits when it is rounded up.
    if (count > (capacity_ - used_) / sizeof(T)) return Full(count, sizeof(T));
    return std::span<T>(reinterpret_cast<T*>(TakeBytes(count * sizeof(T))), count);
  }

  // Empties the arena.
  void Reset() { Rewind({0}); }
  Position Mark() const { return {used_}; }
  // Frees everything taken since Mark returned `position`.
  void Rewind(Position position);

  size_t capacity() const { return capacity_; }
  size_t used() const { return used_; }
  size_t high_water() const { return high_water_; }  // most used at any time

 private:
  std::byte* TakeBytes(size_t bytes);  // must fit
  absl::Status Full(size_t count, size_t value_bytes) const;

  DeviceBuffer buffer_;
  const bool host_accessible_;
  const size_t capacity_;  // a multiple of kMemoryAlignment
  size_t used_ = 0;
  size_t high_water_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_STEP_ARENA_H_
