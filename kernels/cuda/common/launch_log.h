#ifndef ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_LOG_H_
#define ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_LOG_H_

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/base/check.h"
#include "kernels/cuda/common/grid.h"
#include "kernels/cuda/common/stream_handle.h"

namespace annulus::cuda {

// A launch, or the recording of an event, that is held back from the device.
struct HeldLaunch {
  const void* kernel = nullptr;  // as LaunchKernel takes it; null: `event` is recorded
  EventHandle event = nullptr;
  Grid grid;
  std::vector<std::byte> arguments;

  bool operator==(const HeldLaunch&) const = default;
};

// What a graph cannot change of a launch that it has: it is the node's kind, and its edge from the
// node before.
struct LaunchKind {
  bool is_kernel;
  bool overlaps;

  bool operator==(const LaunchKind&) const = default;
};
inline LaunchKind KindOf(const HeldLaunch& launch) {
  return {launch.kernel != nullptr, launch.grid.overlaps};
}

// Held launches, in order. Keeps its memory when cleared. Not thread-safe.
class LaunchLog {
 public:
  void Add(const void* kernel, const Grid& grid, const void* arguments, size_t bytes) {
    HeldLaunch& launch = Next();
    launch.kernel = kernel;
    launch.event = nullptr;
    launch.grid = grid;
    const auto* const begin = static_cast<const std::byte*>(arguments);
    launch.arguments.assign(begin, begin + bytes);
  }
  void AddEvent(EventHandle event) {
    HeldLaunch& launch = Next();
    launch.kernel = nullptr;
    launch.event = event;
    launch.grid = {};
    launch.arguments.clear();
  }
  void Clear() { count_ = 0; }

  std::span<const HeldLaunch> held() const { return {launches_.data(), count_}; }
  bool empty() const { return count_ == 0; }

 private:
  HeldLaunch& Next() {
    if (count_ == launches_.size()) launches_.emplace_back();
    return launches_[count_++];
  }

  std::vector<HeldLaunch> launches_;  // of which the first count_ are held
  size_t count_ = 0;
};

// CUDA's handle of a stream, for work other than launches. Such work must not overtake held
// launches, so nothing may be held.
inline void* NativeOf(StreamHandle stream) {
  if (stream == nullptr) return nullptr;
  ANNULUS_CHECK(stream->held == nullptr || stream->held->empty())
      << "work that would overtake launches which the stream holds back";
  return stream->native;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_COMMON_LAUNCH_LOG_H_
