#ifndef ANNULUS_KERNELS_CUDA_REPLAY_H_
#define ANNULUS_KERNELS_CUDA_REPLAY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "kernels/backend.h"
#include "kernels/cuda/common/launch_log.h"

namespace annulus::cuda {

// The reasons why launches cannot go out as one graph.
enum class GraphCut : uint8_t { kWait, kEvent, kCopy, kMemory, kLibrary };

// The graphs of one stream. The launches held between two cuts are a piece. Piece n of a step is
// compared with piece n of the step before: if both have the same sequence of launches (KindOf),
// only differing arguments, grids or kernels are updated in the existing graph. So similar steps
// cost one launch per piece and little else. Used by the stream's thread, except for counts().
class Replay {
 public:
  // Shorter pieces are launched one by one, because launching a graph has a cost of its own.
  static constexpr size_t kFewestInGraph = 4;

  explicit Replay(int ordinal) : ordinal_(ordinal) {}

  LaunchLog& log() { return log_; }

  // Starts a step: the next piece is its first. No graph may be running.
  void Begin();
  // Hands what is held to the stream, which holds nothing back meanwhile. Nothing stays held, even
  // after an error.
  absl::Status HandOver(StreamHandle stream);
  // Ends a step: everything held since Begin has gone out.
  void End();
  void CountCut(GraphCut cut);
  // Abandons the graphs until the process ends: the device was lost while one may be running.
  void Leave();

  // Thread-safe.
  GraphCounts counts() const;

 private:
  struct Close {
    void operator()(GraphHandle graph) const;
  };
  struct Piece {
    std::unique_ptr<void, Close> graph;
    std::vector<HeldLaunch> launches;  // the graph's launches
  };

  absl::Status Adjust(Piece& piece, std::span<const HeldLaunch> held);
  absl::Status Run(StreamHandle stream, Piece& piece, std::span<const HeldLaunch> held);
  static absl::Status RunSingly(StreamHandle stream, std::span<const HeldLaunch> held);
  void Count(int64_t GraphCounts::*which, size_t number = 1);

  const int ordinal_;
  LaunchLog log_;
  std::vector<Piece> pieces_;  // as many as the longest step had
  size_t next_ = 0;
  bool singly_ = false;  // some piece of this step was launched one by one
  mutable std::mutex mutex_;
  GraphCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_REPLAY_H_
