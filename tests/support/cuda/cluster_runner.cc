// Clusters, and the host meaning of kernels/cuda/common/cluster.h and overlap.h.
#include "tests/support/cuda/cluster_runner.h"

#include <algorithm>
#include <map>
#include <mutex>

#include "kernels/base/check.h"
#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/overlap.h"
#include "tests/support/cuda/emulated_clusters.h"

namespace annulus::cuda {
namespace {

thread_local bool in_kernel = false;

// Lives while the calling thread runs a kernel.
class InKernel {
 public:
  InKernel() {
    ANNULUS_CHECK(!in_kernel) << "a launch inside of a kernel";
    in_kernel = true;
  }
  ~InKernel() { in_kernel = false; }
  InKernel(const InKernel&) = delete;
};

// The kernels that run in clusters, and the blocks of each.
struct ClusterKernels {
  std::mutex mutex;
  std::map<const void*, int> sizes;

  static ClusterKernels& Get() {
    static auto* const kernels =
        new ClusterKernels;  // never destroyed: streams may run until the end
    return *kernels;
  }
};

}  // namespace

ClusterRunner::ClusterRunner(const Grid& grid, int size, absl::FunctionRef<void()> kernel)
    : grid_(grid) {
  ANNULUS_CHECK(size >= 1 && size <= kMostClusterBlocks) << "a cluster of " << size << " blocks";
  ANNULUS_CHECK(grid.x % size == 0) << grid.x << " blocks in clusters of " << size;
  for (int rank = 0; rank < size; ++rank) {
    blocks_.push_back(std::make_unique<BlockRunner>(grid, kernel, *this));
  }
}

ClusterRunner::~ClusterRunner() { ANNULUS_CHECK(!early_) << "a kernel that began and was dropped"; }

void ClusterRunner::RunEarly() {
  ANNULUS_CHECK(!early_) << "a kernel that begins twice";
  const InKernel inside;
  early_ = true;
  Begin(0, 0);
  while (RunBlocks(/*backwards=*/false) || RunEngine()) {
  }
}

void ClusterRunner::RunAll() {
  const InKernel inside;
  earlier_done_ = true;
  for (int64_t y = 0; y < grid_.y; ++y) {
    for (int64_t x = 0; x < grid_.x; x += size()) {
      if (!early_) Begin(x, y);
      early_ = false;
      Finish((x / size() + y) % 2 != 0);
    }
  }
}

void ClusterRunner::Begin(int64_t x, int64_t y) {
  for (int rank = 0; rank < size(); ++rank) blocks_[rank]->Begin(x + rank, y);
}

// Each block until none of its threads can go on; whether any did.
bool ClusterRunner::RunBlocks(bool backwards) {
  bool moved = false;
  for (int i = 0; i < size(); ++i) {
    moved |= blocks_[backwards ? size() - 1 - i : i]->RunWarps();
  }
  return moved;
}

bool ClusterRunner::AllEnded() const {
  return std::all_of(blocks_.begin(), blocks_.end(),
                     [](const auto& block) { return block->ended(); });
}

void ClusterRunner::Finish(bool backwards) {
  while (!AllEnded()) {
    if (RunBlocks(backwards) || AllEnded() || RunEngine()) continue;
    for (const auto& block : blocks_) {
      if (!block->ended()) block->FailWaiting();
    }
  }
  for (const auto& block : blocks_) block->End();
}

// One copy of one block's engine; whether there was one.
bool ClusterRunner::RunEngine() {
  for (const auto& block : blocks_) {
    if (block->RunEngine()) return true;
  }
  return false;
}

void ClusterRunner::Barrier(BlockRunner& block) {
  const uint64_t meeting = meetings_;
  if (++arrived_ == int64_t{grid_.threads} * size()) {
    arrived_ = 0;
    ++meetings_;
  }
  block.WaitUntil("a barrier of a cluster", [&] { return meetings_ != meeting; });
}

const BlockRunner& ClusterRunner::BlockAt(int rank) const {
  ANNULUS_CHECK(rank >= 0 && rank < size()) << "block " << rank << " of a cluster of " << size();
  ANNULUS_CHECK(!blocks_[rank]->ended()) << "block " << rank << " of the cluster has ended";
  return *blocks_[rank];
}

int RunGrid(const Grid& grid, absl::FunctionRef<void()> kernel) {
  return RunClusters(grid, 1, kernel);
}

int RunClusters(const Grid& grid, int cluster, absl::FunctionRef<void()> kernel) {
  if (grid.x == 0 || grid.y == 0) return 0;
  ClusterRunner(grid, cluster, kernel).RunAll();
  return 0;
}

bool DeclareCluster(const void* kernel, int cluster) {
  std::lock_guard lock(ClusterKernels::Get().mutex);
  ClusterKernels::Get().sizes[kernel] = cluster;
  return true;
}

int ClusterOf(const void* kernel) {
  std::lock_guard lock(ClusterKernels::Get().mutex);
  const auto found = ClusterKernels::Get().sizes.find(kernel);
  return found == ClusterKernels::Get().sizes.end() ? 1 : found->second;
}

int ClusterRank() {
  const BlockRunner& block = BlockRunner::Current();
  return static_cast<int>(block.block_x() % block.cluster().size());
}

void SyncCluster() {
  BlockRunner& block = BlockRunner::Current();
  block.WarpCollective("SyncCluster", nullptr, [](void* const*) {});
  block.cluster().Barrier(block);
}

void WaitForEarlier() { BlockRunner::Current().WaitForEarlier(); }

std::byte* AddressInBlock(const void* shared, int rank) {
  const BlockRunner& block = BlockRunner::Current();
  block.CheckShared(shared, 1, 1, "an address for another block");
  return block.cluster().BlockAt(rank).shared() +
         (static_cast<const std::byte*>(shared) - block.shared());
}

}  // namespace annulus::cuda
