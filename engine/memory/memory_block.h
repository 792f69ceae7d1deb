#ifndef ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_
#define ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_

// The buffer pool's books: chunks of backend memory cut into blocks. Nothing is stored inside the
// memory itself, which the host may be unable to reach.

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/strings/string_view.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// What a block is for, and so how long it lives.
enum class Lifetime : uint8_t {
  kWeights,    // as long as the model
  kPages,      // the KvPool's slab: as long as the rank
  kRingSlots,  // as long as a ring channel
  kWorkspace,  // of a stream's ops: as long as the stream
  kStep,       // a step arena, or anything shorter
};
inline constexpr size_t kLifetimeCount = 5;

// "weights", "kv", "ring", "workspace", "step": the `kind` of metrics and reports.
absl::string_view LifetimeName(Lifetime lifetime);

struct MemoryChunk;

// Bytes [offset, offset + bytes) of a chunk; both are multiples of kMemoryAlignment.
struct MemoryBlock {
  MemoryChunk* chunk = nullptr;
  size_t offset = 0;
  size_t bytes = 0;
  bool held = false;
  Lifetime lifetime = Lifetime::kStep;  // of the holder; meaningless while free
};

// One allocation of the backend. Its blocks cover it exactly, in ascending order of offset, and no
// two neighbours are both free.
struct MemoryChunk {
  DeviceBuffer memory;
  uint64_t serial = 0;                  // orders chunks by age
  Lifetime lifetime = Lifetime::kStep;  // that it was taken for
  std::list<MemoryBlock> blocks;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_
