// Launches and graphs of kernels/cuda/runtime.h: a graph keeps its own copies of arguments, and
// runs with those that it has when it is given to the stream.
#include <array>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/common/cluster.h"
#include "kernels/cuda/common/launch.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/runtime.h"
#include "tests/support/cuda/cluster_runner.h"
#include "tests/support/cuda/emulated_clusters.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/cuda/emulated_memory.h"
#include "tests/support/cuda/emulated_streams.h"

namespace annulus::cuda {
namespace {

// Arguments as kernels may read them.
class Arguments {
 public:
  Arguments(const void* bytes, size_t size)
      : lines_((size + kArgumentAlignment - 1) / kArgumentAlignment) {
    if (size > 0) std::memcpy(lines_.data(), bytes, size);
  }
  const void* data() const { return lines_.data(); }

 private:
  struct alignas(kArgumentAlignment) Line {
    std::byte bytes[kArgumentAlignment];
  };
  std::vector<Line> lines_;
};

// A kernel that a device has been given. Reads its arguments as they were then.
class KernelRun {
 public:
  KernelRun(int ordinal, const Grid& grid, const void* kernel, const void* arguments, size_t bytes)
      : ordinal_(ordinal),
        grid_(grid),
        cluster_(ClusterOf(kernel)),
        kernel_(reinterpret_cast<HostKernel>(const_cast<void*>(kernel))),
        arguments_(arguments, bytes),
        bytes_(bytes) {}

  void RunEarly() {
    InMemory([this] { Runner().RunEarly(); });
  }
  void Run() {
    InMemory([this] { Runner().RunAll(); });
    runner_.reset();  // many threads' stacks
  }

 private:
  // What was there at the launch may have been freed since.
  void InMemory(absl::FunctionRef<void()> run) {
    EmulatedDevice& device = EmulatedDevice::Get();
    const int other = grid_.other_device;
    CheckPointers({static_cast<const std::byte*>(arguments_.data()), bytes_}, ordinal_, other);
    const GuardedMemory::Access access(&device.memories[static_cast<size_t>(ordinal_)]);
    const GuardedMemory::Access reached(other < 0 ? nullptr
                                                  : &device.memories[static_cast<size_t>(other)]);
    run();
  }
  ClusterRunner& Runner() {
    if (!runner_.has_value()) runner_.emplace(grid_, cluster_, body_);
    return *runner_;
  }

  const int ordinal_;
  const Grid grid_;
  const int cluster_;
  const HostKernel kernel_;
  const Arguments arguments_;
  const size_t bytes_;
  const std::function<void()> body_ = [this] { kernel_(arguments_.data()); };
  std::optional<ClusterRunner> runner_;
};

struct EmulatedGraph {
  int ordinal = 0;
  std::vector<HeldLaunch> launches;
};

// Also those that are left open because their device hangs.
struct OpenGraphs {
  std::mutex mutex;
  std::set<EmulatedGraph*> graphs;

  static OpenGraphs& Get() {
    static auto* const graphs = new OpenGraphs;  // never destroyed, as KnownBlocks
    return *graphs;
  }
};

// What a device or its driver refuses of any launch.
void CheckLaunch(const Grid& grid, int cluster) {
  const EmulatedDevice& device = EmulatedDevice::Get();
  ANNULUS_CHECK(grid.x > 0 && grid.x < int64_t{1} << 31 && grid.y > 0 && grid.y < 65536)
      << "a grid of " << grid.x << " by " << grid.y << " blocks";
  ANNULUS_CHECK(grid.threads > 0 && grid.threads <= 1024) << grid.threads << " threads per block";
  const size_t most = SharedBytes(device.major, device.minor);
  ANNULUS_CHECK(grid.shared_bytes <= most)
      << grid.shared_bytes << " bytes of shared memory where a block may have " << most
      << ", at compute capability " << device.major << "." << device.minor;
  ANNULUS_CHECK(cluster == 1 || device.major >= 9)
      << "clusters of blocks at compute capability " << device.major << "." << device.minor;
  ANNULUS_CHECK(grid.x % cluster == 0) << grid.x << " blocks in clusters of " << cluster;
  ANNULUS_CHECK(!grid.overlaps || device.major >= 9)
      << "kernels that overlap at compute capability " << device.major << "." << device.minor;
}

// When the stream's turn has come.
void EnqueueKernel(StreamHandle stream, const void* kernel, const Grid& grid, const void* arguments,
                   size_t bytes) {
  const int ordinal = EmulatedStreams::Get().DeviceOf(stream);
  ANNULUS_CHECK(CurrentDevice() == ordinal) << "a kernel for a stream of device " << ordinal
                                            << " while the thread's is " << CurrentDevice();
  const int other = grid.other_device;
  ANNULUS_CHECK(other < 0 || IsReachEnabled(ordinal, other))
      << "device " << ordinal << " was not let reach device " << other;
  CheckLaunch(grid, ClusterOf(kernel));
  CheckPointers({static_cast<const std::byte*>(arguments), bytes}, ordinal, other);
  const auto run = std::make_shared<KernelRun>(ordinal, grid, kernel, arguments, bytes);
  EmulatedStreams::Early early;
  if (grid.overlaps) early = [run] { run->RunEarly(); };
  EmulatedStreams::Get().EnqueueKernel(
      stream,
      [run, other] {
        if (other >= 0) {
          std::this_thread::sleep_for(
              std::chrono::microseconds(EmulatedDevice::Get().between_microseconds));
        }
        run->Run();
        return true;
      },
      std::move(early));
}

}  // namespace

int LaunchKernel(StreamHandle stream, const void* kernel, const Grid& grid, const void* arguments,
                 size_t bytes) {
  if (grid.x == 0 || grid.y == 0) return kSuccess;
  if (stream != nullptr && stream->held != nullptr) {
    stream->held->Add(kernel, grid, arguments, bytes);
    return kSuccess;
  }
  ++EmulatedDevice::Get().launches;
  EnqueueKernel(stream, kernel, grid, arguments, bytes);
  return kSuccess;
}

absl::Status EnqueueHeld(StreamHandle stream, const HeldLaunch& launch) {
  if (launch.kernel == nullptr) return RecordEvent(stream, launch.event);
  ++EmulatedDevice::Get().launches;
  EnqueueKernel(stream, launch.kernel, launch.grid, launch.arguments.data(),
                launch.arguments.size());
  return absl::OkStatus();
}

absl::StatusOr<GraphHandle> BuildGraph(int ordinal, std::span<const HeldLaunch> launches) {
  EmulatedDevice& device = EmulatedDevice::Get();
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  ANNULUS_RETURN_IF_ERROR(StatusOf(
      device.graph_build_error, absl::StrCat("making a graph of ", launches.size(), " launches")));
  ++device.graphs;
  auto* const graph = new EmulatedGraph{ordinal, {launches.begin(), launches.end()}};
  std::lock_guard lock(OpenGraphs::Get().mutex);
  OpenGraphs::Get().graphs.insert(graph);
  return static_cast<GraphHandle>(graph);
}

absl::Status SetInGraph(GraphHandle handle, size_t index, const HeldLaunch& launch) {
  auto& graph = *static_cast<EmulatedGraph*>(handle);
  if (index >= graph.launches.size() || KindOf(graph.launches[index]) != KindOf(launch)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a graph of ", graph.launches.size(), " launches has no such place ", index));
  }
  ANNULUS_RETURN_IF_ERROR(
      StatusOf(EmulatedDevice::Get().graph_set_error, "changing a launch of a graph"));
  graph.launches[index] = launch;
  return absl::OkStatus();
}

absl::Status RunGraph(StreamHandle stream, GraphHandle handle) {
  EmulatedDevice& device = EmulatedDevice::Get();
  const auto& graph = *static_cast<const EmulatedGraph*>(handle);
  ANNULUS_CHECK(EmulatedStreams::Get().DeviceOf(stream) == graph.ordinal)
      << "a graph of device " << graph.ordinal;
  ANNULUS_CHECK(CurrentDevice() == graph.ordinal) << "the thread's device is " << CurrentDevice();
  ANNULUS_RETURN_IF_ERROR(StatusOf(device.graph_run_error, "launching a graph"));
  ++device.graph_runs;
  for (const HeldLaunch& launch : graph.launches) {
    if (launch.kernel == nullptr) {
      ANNULUS_RETURN_IF_ERROR(RecordEvent(stream, launch.event));
    } else {
      EnqueueKernel(stream, launch.kernel, launch.grid, launch.arguments.data(),
                    launch.arguments.size());
    }
  }
  return absl::OkStatus();
}

void CloseGraph(GraphHandle graph) {
  if (graph == nullptr) return;
  --EmulatedDevice::Get().graphs;
  auto* const own = static_cast<EmulatedGraph*>(graph);
  {
    std::lock_guard lock(OpenGraphs::Get().mutex);
    OpenGraphs::Get().graphs.erase(own);
  }
  delete own;
}

}  // namespace annulus::cuda
