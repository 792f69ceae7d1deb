#ifndef ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_
#define ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_

// The buffer pool's records of chunks and blocks. They are kept outside the memory they describe,
// since the host may not be able to access it.

#include <cstddef>
#include <cstdint>
#include <list>

#include "absl/strings/string_view.h"
#include "kernels/base/device_buffer.h"

namespace annulus {

// The purpose of a block, which determines its lifetime.
enum class Lifetime : uint8_t {
  kWeights,    // as long as the model
  kPages,      // the KvPool's slab: as long as the rank
  kRingSlots,  // as long as a ring channel
  kWorkspace,  // scratch memory of a stream's ops: as long as the stream
  kStep,       // a step arena, or anything shorter
};
inline constexpr size_t kLifetimeCount = 5;

// "weights", "kv", "ring", "workspace" or "step": the label `kind` in metrics and reports.
absl::string_view LifetimeName(Lifetime lifetime);

struct MemoryChunk;

// Bytes [offset, offset + bytes) of a chunk; both are multiples of kMemoryAlignment.
struct MemoryBlock {
  MemoryChunk* chunk = nullptr;
  size_t offset = 0;
  size_t bytes = 0;
  bool held = false;
  Lifetime lifetime = Lifetime::kStep;  // the holder's; meaningless while free
};

// One backend allocation. Its blocks cover it completely, in ascending order of offset; two
// neighbours are never both free.
struct MemoryChunk {
  DeviceBuffer memory;
  uint64_t serial = 0;                  // orders chunks by age
  Lifetime lifetime = Lifetime::kStep;  // of the block it was first allocated for
  std::list<MemoryBlock> blocks;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MEMORY_MEMORY_BLOCK_H_
