// Launches and graphs of runtime.h over the CUDA runtime. A graph is a chain of kernel and event
// nodes; what cudaGraphExec*Set* sets holds for later runs alone (CUDA Runtime API, "Graph
// Management").
#include <cuda_runtime_api.h>

#include <cstddef>
#include <memory>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/common/grid.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {
namespace {

struct ChainGraph {
  ChainGraph() = default;
  ChainGraph(const ChainGraph&) = delete;
  ~ChainGraph() {
    if (executable != nullptr) cudaGraphExecDestroy(executable);
    if (graph != nullptr) cudaGraphDestroy(graph);
  }

  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  std::vector<cudaGraphNode_t> nodes;
  std::vector<LaunchKind> kinds;  // [node]
};

cudaStream_t QueueOf(StreamHandle stream) { return static_cast<cudaStream_t>(NativeOf(stream)); }

dim3 BlocksOf(const Grid& grid) {
  return dim3(static_cast<unsigned>(grid.x), static_cast<unsigned>(grid.y));
}

// Kernels must be told before they may have much shared memory, once for each device. They are told
// the most that the device has, whatever the launch asks for: the limit is the kernel's, so a lower
// one would also be that of another thread's launch, and of nodes that are in a graph already.
// Thread-safe.
class SharedLimits {
 public:
  // Of the calling thread's device.
  static cudaError_t Raise(const void* kernel) {
    static auto* const limits =
        new SharedLimits;  // never destroyed: threads may launch until the end
    int device = 0;
    const cudaError_t error = cudaGetDevice(&device);
    return error != cudaSuccess ? error : limits->RaiseOn(device, kernel);
  }

 private:
  cudaError_t RaiseOn(int device, const void* kernel) {
    std::lock_guard lock(mutex_);
    if (raised_.contains({device, kernel})) return cudaSuccess;
    int most = 0;
    cudaError_t error =
        cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
    if (error != cudaSuccess) return error;
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most);
    if (error == cudaSuccess) raised_.emplace(device, kernel);
    return error;
  }

  std::mutex mutex_;
  std::set<std::pair<int, const void*>> raised_ ABSL_GUARDED_BY(mutex_);
};

cudaError_t AllowShared(const void* kernel, const Grid& grid) {
  constexpr size_t kWithoutAsking = 48 << 10;
  return grid.shared_bytes <= kWithoutAsking ? cudaSuccess : SharedLimits::Raise(kernel);
}

cudaError_t EnqueueKernel(cudaStream_t queue, const void* kernel, const Grid& grid,
                          const void* arguments) {
  const cudaError_t error = AllowShared(kernel, grid);
  if (error != cudaSuccess) return error;
  void* parameters[] = {const_cast<void*>(arguments)};
  cudaLaunchAttribute overlap{};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = BlocksOf(grid);
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = grid.shared_bytes;
  config.stream = queue;
  config.attrs = &overlap;
  config.numAttrs = grid.overlaps ? 1 : 0;
  return cudaLaunchKernelExC(&config, kernel, parameters);
}

// `parameters`: a place for the address of the arguments.
cudaKernelNodeParams NodeOf(const HeldLaunch& launch, void** parameters) {
  // The driver only reads them.
  *parameters = const_cast<std::byte*>(launch.arguments.data());
  cudaKernelNodeParams node{};
  node.func = const_cast<void*>(launch.kernel);
  node.gridDim = BlocksOf(launch.grid);
  node.blockDim = dim3(static_cast<unsigned>(launch.grid.threads));
  node.sharedMemBytes = static_cast<unsigned>(launch.grid.shared_bytes);
  node.kernelParams = parameters;
  return node;
}

// Only a kernel behind a kernel can begin before that has ended.
cudaGraphEdgeData EdgeTo(const HeldLaunch& launch, bool from_kernel) {
  cudaGraphEdgeData edge{};
  if (launch.grid.overlaps && from_kernel) {
    edge.from_port = cudaGraphKernelNodePortProgrammatic;
    edge.type = cudaGraphDependencyTypeProgrammatic;
  }
  return edge;
}

cudaError_t AddNode(ChainGraph& chain, const HeldLaunch& launch) {
  cudaGraphNode_t node = nullptr;
  cudaError_t error = cudaSuccess;
  if (launch.kernel == nullptr) {
    error =
        cudaGraphAddEventRecordNode(&node, chain.graph, /*pDependencies=*/nullptr,
                                    /*numDependencies=*/0, static_cast<cudaEvent_t>(launch.event));
  } else {
    error = AllowShared(launch.kernel, launch.grid);
    if (error != cudaSuccess) return error;
    void* parameters = nullptr;
    const cudaKernelNodeParams own = NodeOf(launch, &parameters);
    error = cudaGraphAddKernelNode(&node, chain.graph, /*pDependencies=*/nullptr,
                                   /*numDependencies=*/0, &own);
  }
  if (error == cudaSuccess && !chain.nodes.empty()) {
    const cudaGraphEdgeData edge = EdgeTo(launch, chain.kinds.back().is_kernel);
    error = cudaGraphAddDependencies(chain.graph, &chain.nodes.back(), &node, &edge, 1);
  }
  if (error != cudaSuccess) return error;
  chain.nodes.push_back(node);
  chain.kinds.push_back(KindOf(launch));
  return cudaSuccess;
}

// Refusals are statuses here; no launch must report them again.
absl::Status GraphStatus(cudaError_t error, absl::string_view what) {
  if (error != cudaSuccess) cudaGetLastError();
  return StatusOf(error, what);
}

}  // namespace

int LaunchKernel(StreamHandle stream, const void* kernel, const Grid& grid, const void* arguments,
                 size_t bytes) {
  if (grid.x == 0 || grid.y == 0) return cudaSuccess;
  if (stream != nullptr && stream->held != nullptr) {
    stream->held->Add(kernel, grid, arguments, bytes);
    return cudaSuccess;
  }
  const cudaError_t error = EnqueueKernel(QueueOf(stream), kernel, grid, arguments);
  if (error != cudaSuccess) cudaGetLastError();  // no later launch must report it
  return error;
}

absl::Status EnqueueHeld(StreamHandle stream, const HeldLaunch& launch) {
  if (launch.kernel == nullptr) return RecordEvent(stream, launch.event);
  return GraphStatus(
      EnqueueKernel(QueueOf(stream), launch.kernel, launch.grid, launch.arguments.data()),
      "a launch that was held back");
}

absl::StatusOr<GraphHandle> BuildGraph(int ordinal, std::span<const HeldLaunch> launches) {
  const std::string what = absl::StrCat("making a graph of ", launches.size(), " launches");
  ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal));
  auto chain = std::make_unique<ChainGraph>();
  ANNULUS_RETURN_IF_ERROR(GraphStatus(cudaGraphCreate(&chain->graph, 0), what));
  chain->nodes.reserve(launches.size());
  for (const HeldLaunch& launch : launches) {
    ANNULUS_RETURN_IF_ERROR(GraphStatus(AddNode(*chain, launch), what));
  }
  ANNULUS_RETURN_IF_ERROR(
      GraphStatus(cudaGraphInstantiate(&chain->executable, chain->graph, 0), what));
  return static_cast<GraphHandle>(chain.release());
}

absl::Status SetInGraph(GraphHandle graph, size_t index, const HeldLaunch& launch) {
  const auto& chain = *static_cast<const ChainGraph*>(graph);
  if (index >= chain.nodes.size() || chain.kinds[index] != KindOf(launch)) {
    return absl::InvalidArgumentError(
        absl::StrCat("a graph of ", chain.nodes.size(), " launches has no such place ", index));
  }
  constexpr char kWhat[] = "changing a launch of a graph";
  cudaGraphNode_t const node = chain.nodes[index];
  if (launch.kernel == nullptr) {
    return GraphStatus(cudaGraphExecEventRecordNodeSetEvent(chain.executable, node,
                                                            static_cast<cudaEvent_t>(launch.event)),
                       kWhat);
  }
  ANNULUS_RETURN_IF_ERROR(GraphStatus(AllowShared(launch.kernel, launch.grid), kWhat));
  void* parameters = nullptr;
  const cudaKernelNodeParams own = NodeOf(launch, &parameters);
  return GraphStatus(cudaGraphExecKernelNodeSetParams(chain.executable, node, &own), kWhat);
}

absl::Status RunGraph(StreamHandle stream, GraphHandle graph) {
  const auto& chain = *static_cast<const ChainGraph*>(graph);
  return GraphStatus(cudaGraphLaunch(chain.executable, QueueOf(stream)), "launching a graph");
}

void CloseGraph(GraphHandle graph) { delete static_cast<ChainGraph*>(graph); }

}  // namespace annulus::cuda
