#include "kernels/cpu/cpu_backend.h"

#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "kernels/cpu/host/host_limits.h"
#include "kernels/cpu/host/memory_nodes.h"

namespace annulus {
namespace {

constexpr size_t kAlignment = 64;
// From here on a block is mapped by itself instead of taken from the heap.
constexpr size_t kMappedBytes = size_t{256} << 10;

absl::Status OutOfMemory(size_t bytes, const std::string& why) {
  return absl::ResourceExhaustedError(absl::StrCat("cannot allocate ", bytes, " bytes: ", why));
}

// How large blocks are mapped.
struct Mapping {
  HugePages huge_pages = HugePages::kOff;
  HugePageSupport support;
  NodeWish wish;
};

class CpuBackend final : public Backend {
 public:
  // Threads stay on `processors`; anywhere where there are none.
  CpuBackend(BackendCapabilities capabilities, Mapping mapping, Processors processors,
             int shared_threads)
      : capabilities_(std::move(capabilities)),
        mapping_(std::move(mapping)),
        processors_(std::move(processors)),
        shared_threads_(shared_threads) {
    if (shared_threads > 1) group_ = std::make_shared<ThreadGroup>(shared_threads);
  }

  // Adds the views of OnNode, one of each, with as many shared threads as its processors' part.
  void AddNodes(const std::vector<MemoryNode>& nodes) {
    size_t processors = 0;
    for (const MemoryNode& node : nodes) processors += node.processors.size();
    for (const MemoryNode& node : nodes) {
      const auto shared = static_cast<int>(
          (shared_threads_ * node.processors.size() + processors - 1) / processors);
      Mapping mapping = mapping_;
      mapping.wish = {NodeWish::Kind::kPreferred, {node.number}};
      nodes_.push_back(
          std::make_unique<CpuBackend>(capabilities_, std::move(mapping), node.processors, shared));
    }
  }

  const BackendCapabilities& capabilities() const override { return capabilities_; }

  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override {
    if (bytes == 0) return DeviceBuffer();
    if (bytes > capabilities_.memory_bytes) {
      return OutOfMemory(bytes, absl::StrCat("this machine lets the process use ",
                                             capabilities_.memory_bytes, " bytes"));
    }
    if (bytes >= kMappedBytes) {
      return MapHostMemory(bytes, mapping_.huge_pages, mapping_.support, mapping_.wish);
    }
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    void* data = std::aligned_alloc(kAlignment, rounded);
    if (data == nullptr) return OutOfMemory(bytes, "the heap is exhausted");
    return DeviceBuffer(static_cast<std::byte*>(data), bytes,
                        [](std::byte* block) { std::free(block); });
  }

  absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) override {
    return CpuStream::Create(threads, processors_, group_);
  }

  Backend& OnNode(int node) override {
    ANNULUS_CHECK(node >= 0 && node < capabilities_.nodes)
        << "node " << node << " of " << capabilities_.nodes;
    return nodes_.empty() ? *this : *nodes_[node];
  }

  absl::Status Copy(Stream&, void* destination, const void* source, size_t bytes) override {
    if (bytes > 0) std::memmove(destination, source, bytes);
    return absl::OkStatus();
  }

 private:
  const BackendCapabilities capabilities_;
  const Mapping mapping_;
  const Processors processors_;
  const int shared_threads_;
  std::shared_ptr<ThreadGroup> group_;              // null where none are shared
  std::vector<std::unique_ptr<CpuBackend>> nodes_;  // none where there is only one
};

}  // namespace

absl::StatusOr<std::unique_ptr<Backend>> CreateCpuBackend(const CpuBackendOptions& options) {
  HostLimits limits = ReadHostLimits(options.root);
  if (limits.memory_bytes == 0) {
    return absl::InternalError("the system does not report its memory size");
  }
  const int shared = options.shared_threads > 0 ? options.shared_threads : limits.threads;
  Mapping mapping;
  mapping.support = ReadHugePageSupport(options.root);
  ANNULUS_ASSIGN_OR_RETURN(mapping.huge_pages,
                           ChooseHugePages(options.huge_pages, mapping.support));
  std::vector<MemoryNode> nodes;
  if (options.use_nodes) nodes = ReadMemoryNodes(options.root);
  BackendCapabilities capabilities;
  capabilities.name = "cpu";
  capabilities.description = std::move(limits.processor);
  capabilities.memory_bytes = limits.memory_bytes;
  capabilities.threads = limits.threads;
  capabilities.host_accessible = true;
  if (nodes.size() < 2) {
    return std::make_unique<CpuBackend>(std::move(capabilities), std::move(mapping), Processors(),
                                        shared);
  }
  capabilities.nodes = static_cast<int>(nodes.size());
  mapping.wish.kind = NodeWish::Kind::kInterleaved;
  for (const MemoryNode& node : nodes) mapping.wish.nodes.push_back(node.number);
  auto backend = std::make_unique<CpuBackend>(std::move(capabilities), std::move(mapping),
                                              Processors(), shared);
  backend->AddNodes(nodes);
  return backend;
}

}  // namespace annulus
