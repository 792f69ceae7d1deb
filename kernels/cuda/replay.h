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

// What keeps launches from going out as one graph.
enum class GraphCut : uint8_t { kWait, kEvent, kCopy, kMemory, kLibrary };

// The graphs of one stream. What is held between two cuts is a piece; piece n of a step is compared
// with piece n of the step before, and where only arguments, grids or kernels of as many launches
// differ, these are set in its graph. So steps that are alike cost one launch per piece and nothing
// else. Used by the stream's thread, but for counts().
class Replay {
 public:
  // Shorter pieces go out launch by launch: a graph has a price of its own.
  static constexpr size_t kFewestInGraph = 4;

  explicit Replay(int ordinal) : ordinal_(ordinal) {}

  LaunchLog& log() { return log_; }

  // The first piece comes next. No graph runs.
  void Begin();
  // Hands what is held to the stream, which holds nothing back meanwhile. Nothing stays held, also
  // after an error.
  absl::Status HandOver(StreamHandle stream);
  // What was held since Begin has all gone out.
  void End();
  void CountCut(GraphCut cut);
  // Leaves the graphs to the end of the process: the device is lost while one may run.
  void Leave();

  // Any thread may ask.
  GraphCounts counts() const;

 private:
  struct Close {
    void operator()(GraphHandle graph) const;
  };
  struct Piece {
    std::unique_ptr<void, Close> graph;
    std::vector<HeldLaunch> launches;  // that it does when it runs
  };

  absl::Status Adjust(Piece& piece, std::span<const HeldLaunch> held);
  absl::Status Run(StreamHandle stream, Piece& piece, std::span<const HeldLaunch> held);
  static absl::Status RunSingly(StreamHandle stream, std::span<const HeldLaunch> held);
  void Count(int64_t GraphCounts::*which, size_t number = 1);

  const int ordinal_;
  LaunchLog log_;
  std::vector<Piece> pieces_;  // as many as the longest step had
  size_t next_ = 0;
  bool singly_ = false;  // some piece of this step went out launch by launch
  mutable std::mutex mutex_;
  GraphCounts counts_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_REPLAY_H_
