#include "engine/memory/buffer_pool.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "engine/memory/align.h"
#include "kernels/base/check.h"
#include "kernels/base/device_error.h"

namespace annulus {
namespace {

BufferPool::Options WholeUnits(BufferPool::Options options) {
  options.limit_bytes -= options.limit_bytes % kMemoryAlignment;
  options.chunk_bytes = AlignUp(std::min(options.chunk_bytes, options.limit_bytes));
  return options;
}

}  // namespace

double BufferPoolStats::fragmentation_ratio() const {
  if (free == 0) return 0;
  return 1 - static_cast<double>(largest_free) / static_cast<double>(free);
}

BufferPool::BufferPool(Backend& backend, Options options)
    : backend_(backend), options_(WholeUnits(std::move(options))) {
  stats_.limit = options_.limit_bytes;
}

BufferPool::~BufferPool() {
  std::lock_guard<std::mutex> lock(mutex_);
  ANNULUS_CHECK(stats_.held == 0) << "pool '" << options_.name << "' ends with " << stats_.held
                                  << " bytes held";
}

absl::StatusOr<DeviceBuffer> BufferPool::Allocate(size_t bytes, Lifetime lifetime) {
  if (bytes == 0) return DeviceBuffer();
  std::lock_guard<std::mutex> lock(mutex_);
  // A request beyond the limit could overflow when it is rounded up.
  std::optional<BlockIterator> block;
  absl::Status refused;
  if (bytes <= options_.limit_bytes) block = Find(AlignUp(bytes), lifetime, refused);
  if (!block.has_value()) {
    ++stats_.refusals;
    const std::string figures =
        absl::StrCat("memory pool '", options_.name, "': asked for ", bytes, " bytes for ",
                     LifetimeName(lifetime), ", ", stats_.held, " bytes are held, the limit is ",
                     options_.limit_bytes, " bytes (free inside the pool ", stats_.free,
                     ", largest free block ", LargestFree(), ")");
    if (!refused.ok()) return WithPrefix(absl::StrCat(figures, ": "), refused);
    return absl::ResourceExhaustedError(
        absl::StrCat(figures, "; raise the limit or release memory"));
  }
  Hold(*block, AlignUp(bytes), lifetime);
  return DeviceBuffer((*block)->chunk->memory.data() + (*block)->offset, bytes,
                      [this, held = *block](std::byte*) { Release(held); });
}

std::optional<BufferPool::BlockIterator> BufferPool::Find(size_t bytes, Lifetime lifetime,
                                                          absl::Status& refused) {
  std::optional<BlockIterator> block = free_[static_cast<size_t>(lifetime)].BestFit(bytes);
  if (!block.has_value()) block = AddChunk(bytes, lifetime, refused);
  if (!block.has_value() && TrimLocked() > 0) block = AddChunk(bytes, lifetime, refused);
  for (const FreeIndex& index : free_) {
    if (block.has_value()) break;
    block = index.BestFit(bytes);
  }
  return block;
}

std::optional<BufferPool::BlockIterator> BufferPool::AddChunk(size_t bytes, Lifetime lifetime,
                                                              absl::Status& refused) {
  const size_t room = options_.limit_bytes - stats_.total;
  if (bytes > room) return std::nullopt;
  const size_t preferred = std::min(std::max(options_.chunk_bytes, bytes), room);
  size_t size = preferred;
  const auto allocate = [this](size_t wanted) {
    return options_.host_memory ? backend_.AllocateHost(wanted) : backend_.Allocate(wanted);
  };
  absl::StatusOr<DeviceBuffer> memory = allocate(size);
  if (!memory.ok() && preferred > bytes) {
    size = bytes;
    memory = allocate(size);
  }
  if (!memory.ok()) {
    refused = memory.status();
    return std::nullopt;
  }

  MemoryChunk& chunk = chunks_.emplace_back();
  chunk.memory = *std::move(memory);
  chunk.serial = next_serial_++;
  chunk.lifetime = lifetime;
  chunk.blocks.push_back({.chunk = &chunk, .offset = 0, .bytes = size});
  FreeOf(chunk.blocks.begin()).Insert(chunk.blocks.begin());
  stats_.free += size;
  stats_.total += size;
  stats_.high_water_total = std::max(stats_.high_water_total, stats_.total);
  ++stats_.chunks;
  return chunk.blocks.begin();
}

void BufferPool::Hold(BlockIterator block, size_t bytes, Lifetime lifetime) {
  FreeIndex& index = FreeOf(block);
  index.Erase(block);
  if (block->bytes > bytes) {
    MemoryChunk& chunk = *block->chunk;
    index.Insert(chunk.blocks.insert(
        std::next(block),
        {.chunk = &chunk, .offset = block->offset + bytes, .bytes = block->bytes - bytes}));
    block->bytes = bytes;
  }
  block->held = true;
  block->lifetime = lifetime;
  stats_.free -= bytes;
  stats_.held += bytes;
  stats_.held_by_lifetime[static_cast<size_t>(lifetime)] += bytes;
  stats_.high_water_held = std::max(stats_.high_water_held, stats_.held);
}

void BufferPool::Release(BlockIterator block) {
  std::lock_guard<std::mutex> lock(mutex_);
  ANNULUS_CHECK(block->held) << "a block of pool '" << options_.name << "' was released twice";
  block->held = false;
  stats_.held -= block->bytes;
  stats_.held_by_lifetime[static_cast<size_t>(block->lifetime)] -= block->bytes;
  stats_.free += block->bytes;

  std::list<MemoryBlock>& blocks = block->chunk->blocks;
  FreeIndex& index = FreeOf(block);
  if (const auto next = std::next(block); next != blocks.end() && !next->held) {
    index.Erase(next);
    block->bytes += next->bytes;
    blocks.erase(next);
  }
  if (block != blocks.begin() && !std::prev(block)->held) {
    const auto previous = std::prev(block);
    index.Erase(previous);
    previous->bytes += block->bytes;
    blocks.erase(block);
    block = previous;
  }
  index.Insert(block);
}

size_t BufferPool::Trim() {
  std::lock_guard<std::mutex> lock(mutex_);
  return TrimLocked();
}

size_t BufferPool::TrimLocked() {
  size_t trimmed = 0;
  for (auto chunk = chunks_.begin(); chunk != chunks_.end();) {
    const auto block = chunk->blocks.begin();
    // Free neighbours coalesce, so a chunk that holds nothing is one free block.
    if (block->held || chunk->blocks.size() > 1) {
      ++chunk;
      continue;
    }
    FreeOf(block).Erase(block);
    trimmed += block->bytes;
    --stats_.chunks;
    chunk = chunks_.erase(chunk);
  }
  stats_.free -= trimmed;
  stats_.total -= trimmed;
  stats_.trimmed_bytes += trimmed;
  if (trimmed > 0) ++stats_.trims;
  return trimmed;
}

size_t BufferPool::LargestFree() const {
  size_t largest = 0;
  for (const FreeIndex& index : free_) largest = std::max(largest, index.Largest());
  return largest;
}

BufferPoolStats BufferPool::Stats() const {
  std::lock_guard<std::mutex> lock(mutex_);
  BufferPoolStats stats = stats_;
  stats.largest_free = LargestFree();
  return stats;
}

absl::Status BufferPool::CheckInvariants() const {
  std::lock_guard<std::mutex> lock(mutex_);
  size_t total = 0, free = 0, free_blocks = 0;
  std::array<size_t, kLifetimeCount> held{};
  for (const MemoryChunk& chunk : chunks_) {
    size_t offset = 0;
    bool previous_free = false;
    for (const MemoryBlock& block : chunk.blocks) {
      if (block.chunk != &chunk || block.offset != offset || block.bytes == 0) {
        return absl::InternalError(absl::StrCat("blocks do not tile their chunk at ", offset));
      }
      if (!block.held && previous_free) {
        return absl::InternalError(absl::StrCat("free neighbours did not coalesce at ", offset));
      }
      if (block.held) {
        held[static_cast<size_t>(block.lifetime)] += block.bytes;
      } else {
        free += block.bytes;
        ++free_blocks;
      }
      previous_free = !block.held;
      offset += block.bytes;
    }
    if (offset != chunk.memory.size()) return absl::InternalError("blocks do not fill their chunk");
    total += offset;
  }
  size_t indexed = 0, held_total = 0;
  for (const FreeIndex& index : free_) indexed += index.count();
  for (size_t bytes : held) held_total += bytes;
  if (indexed != free_blocks) return absl::InternalError("the index misses a free block");
  if (total != stats_.total || free != stats_.free || held_total != stats_.held ||
      held != stats_.held_by_lifetime || free + held_total != total ||
      stats_.chunks != static_cast<int64_t>(chunks_.size())) {
    return absl::InternalError(absl::StrCat("the books say total ", stats_.total, " free ",
                                            stats_.free, " held ", stats_.held, "; the blocks say ",
                                            total, " ", free, " ", held_total));
  }
  if (total > options_.limit_bytes) return absl::InternalError("the bound is passed");
  return absl::OkStatus();
}

}  // namespace annulus
