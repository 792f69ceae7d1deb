#include "kernels/cuda/pinned_pool.h"

#include "kernels/base/status_macros.h"

namespace annulus::cuda {

PinnedPool::~PinnedPool() {
  for (const auto& [bytes, blocks] : kept_) {
    for (std::byte* const block : blocks) waits_->FreePinned(ordinal_, block);
  }
}

absl::StatusOr<DeviceBuffer> PinnedPool::Allocate(size_t bytes) {
  if (waits_->is_lost()) return waits_->lost();
  const size_t rounded = PinnedSize(bytes);
  std::byte* block = nullptr;
  {
    std::lock_guard lock(mutex_);
    std::vector<std::byte*>& blocks = kept_[rounded];
    if (!blocks.empty()) {
      block = blocks.back();
      blocks.pop_back();
      kept_bytes_ -= rounded;
    }
  }
  if (block == nullptr) {
    ANNULUS_ASSIGN_OR_RETURN(block, waits_->AllocatePinned(ordinal_, rounded));
  }
  return DeviceBuffer(block, bytes, [pool = shared_from_this(), rounded](std::byte* data) {
    pool->TakeBack(data, rounded);
  });
}

void PinnedPool::TakeBack(std::byte* block, size_t bytes) {
  {
    std::lock_guard lock(mutex_);
    if (kept_bytes_ + bytes <= kMostKept) {
      kept_[bytes].push_back(block);
      kept_bytes_ += bytes;
      return;
    }
  }
  waits_->FreePinned(ordinal_, block);
}

}  // namespace annulus::cuda
