#ifndef ANNULUS_TESTS_SUPPORT_CUDA_CLUSTER_RUNNER_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_CLUSTER_RUNNER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "kernels/cuda/common/grid.h"
#include "tests/support/cuda/block_runner.h"

namespace annulus::cuda {

// Runs the clusters of a grid, one after the other, and the blocks of a cluster by turns: each
// until none of its threads can go on. A cluster of one block is a block of any other kernel. Every
// second cluster has its blocks take turns backwards. Of a kernel that overlaps, the first cluster
// may begin before what is in front of the kernel (RunEarly).
//
// What real hardware would let pass by luck ends the process with a message: grids that are no
// multiple of the cluster, a cluster's barrier that not all of its threads reach, and addresses in
// a block that has ended. The shared memory of a block that has ended is NaN again, for those who
// took the address before.
class ClusterRunner {
 public:
  ClusterRunner(const Grid& grid, int size, absl::FunctionRef<void()> kernel);
  ~ClusterRunner();
  ClusterRunner(const ClusterRunner&) = delete;

  // Runs the first cluster until no thread can go on: those that wait for earlier kernels stay.
  // Once at most, and RunAll must follow before this object ends.
  void RunEarly();
  // Runs everything, or what RunEarly has left. All that was enqueued before has been done.
  void RunAll();
  // Whether it has.
  bool earlier_done() const { return earlier_done_; }

  int size() const { return static_cast<int>(blocks_.size()); }
  // Waits for all threads of the cluster. Called by each of them.
  void Barrier(BlockRunner& block);
  // A block of the cluster, which must not have ended.
  const BlockRunner& BlockAt(int rank) const;

 private:
  void Begin(int64_t x, int64_t y);
  bool RunBlocks(bool backwards);
  bool AllEnded() const;
  void Finish(bool backwards);
  bool RunEngine();

  const Grid grid_;
  bool early_ = false;  // the first cluster has begun
  bool earlier_done_ = false;
  std::vector<std::unique_ptr<BlockRunner>> blocks_;
  int64_t arrived_ = 0;    // at the barrier
  uint64_t meetings_ = 0;  // that have ended
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_CLUSTER_RUNNER_H_
