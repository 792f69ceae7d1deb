#ifndef ANNULUS_KERNELS_BACKEND_H_
#define ANNULUS_KERNELS_BACKEND_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/base/device_buffer.h"
#include "kernels/device_link.h"
#include "kernels/ops/workspace.h"

namespace annulus {

struct BackendCapabilities {
  std::string name;         // "cpu"
  std::string description;  // the processor's name, as its vendor gives it
  size_t memory_bytes = 0;  // all memory of the device
  // Bytes of memory_bytes that planning must leave unused: the driver allocates them lazily for
  // kernel code, graphs and its own objects.
  size_t reserved_bytes = 0;
  int threads = 1;  // hardware threads of the host available to this process
  int nodes = 1;    // memory nodes that ranks can be placed on: see Backend::OnNode
  int devices = 1;  // devices with their own memory: see Backend::OnDevice
  // How many rows to run together through products with wide intermediate results, such as an MLP.
  // On a CPU, few enough that the intermediate results are still in cache when the next product
  // reads them; on a GPU, enough to fill the device.
  int64_t wide_rows = 512;
  // Whether the host can read and write memory from Allocate.
  bool host_accessible = true;
};

// What became of the launches that a stream held back (Stream::BeginGraph), counted since the
// stream was created. A piece is what is held between two cuts.
struct GraphCounts {
  int64_t whole = 0;      // steps launched as one graph
  int64_t in_pieces = 0;  // steps split into several pieces, or with a piece launched one by one
  int64_t built = 0;      // graphs built: the piece was new, or its sequence of launches changed
  int64_t replayed = 0;   // launches that ran as part of a graph
  int64_t updated = 0;    // of these, launches updated: they differed from the last step's
  int64_t single = 0;     // launches enqueued one by one, because their piece was short
  // Cuts by cause. A cut hands over the launches held so far, because other work must come after
  // them.
  int64_t cut_by_wait = 0;    // the host waited for the stream
  int64_t cut_by_event = 0;   // the stream recorded or awaited an event
  int64_t cut_by_copy = 0;    // a copy
  int64_t cut_by_memory = 0;  // the stream's workspace was too small and had to grow
  // Work enqueued by a library, such as cuBLAS.
  int64_t cut_by_library = 0;

  int64_t cuts() const {
    return cut_by_wait + cut_by_event + cut_by_copy + cut_by_memory + cut_by_library;
  }
};

// The launches that a stream holds back until Launch. If destroyed without Launch, it drops them.
// Must be destroyed before its stream, and is used on the same thread.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Hands everything still held to the device and stops holding back. Call it once.
  // RESOURCE_EXHAUSTED if the device has no memory for the graph; otherwise errors of the held ops.
  // After an error some of the work may have been done.
  virtual absl::Status Launch() { return absl::OkStatus(); }
};

// An ordered queue of work on one device, owned by one rank. An op either finishes before it
// returns (CPU) or is enqueued (GPU); Synchronize waits for everything enqueued. Not thread-safe:
// one thread at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual absl::Status Synchronize() = 0;

  // Records `event`, which belongs to this stream's device, after everything enqueued so far. The
  // default does nothing: the work has already been done.
  virtual absl::Status Record(Event& /*event*/) { return absl::OkStatus(); }
  // Makes everything enqueued from now on wait for `event`, as it was last recorded. The event may
  // belong to another device.
  virtual absl::Status Await(const Event& /*event*/) { return absl::OkStatus(); }

  // Like Record, for an event that is used only with SecondsBetween and that nobody awaits. It may
  // be held back like an op, so it does not cut a graph.
  virtual absl::Status Mark(Event& event) { return Record(event); }

  // Until the returned graph's Launch, ops may be held back and then handed to the device together,
  // which costs less than launching them one by one. Meant for steps of many short ops that
  // resemble the step before: the graph of that step is kept, and if only arguments changed, only
  // those are updated.
  //
  // The order of work does not change. Anything that must come after a held op (Synchronize,
  // Record, Await, a copy, a library's work) first hands over what is held so far, and is counted
  // as a cut. BeginGraph waits for all earlier work. A stream can have one graph at a time. The
  // default holds nothing back.
  virtual absl::StatusOr<std::unique_ptr<StepGraph>> BeginGraph() {
    return std::make_unique<StepGraph>();
  }
  // Thread-safe.
  virtual GraphCounts graph_counts() const { return {}; }

  // A hint: the next product will read these ranges, in this order (at most kMostRanges are used).
  // Idle threads may prefetch the start of their shares. The ranges may be freed in the meantime.
  // The default does nothing.
  static constexpr size_t kMostRanges = 3;
  virtual void WillRead(std::span<const std::span<const std::byte>> /*ranges*/) {}

  // Binds the calling thread, which must be the one that will use the stream, to the same
  // processors as the stream's own threads. The default does nothing.
  virtual void BindCaller() {}

  // Gives the stream's ops `memory` as their workspace: planned.total() bytes of this stream's
  // device, aligned to 256, which must outlive the stream. Call it once, before the first op. It
  // also pins planned.uploads bytes of host memory; errors as for AllocateHost. An op that needs
  // more than planned allocates memory of its own, which the stream keeps. If the device has none
  // left, that op fails with RESOURCE_EXHAUSTED; ops that stay within the plan still work. The
  // default ignores the memory.
  virtual absl::Status UseWorkspace(std::byte* /*memory*/, const WorkspaceBytes& /*planned*/) {
    return absl::OkStatus();
  }
  // Bytes of workspace that the stream holds: given by UseWorkspace or allocated by ops so far.
  // Thread-safe.
  virtual size_t workspace_bytes() const { return 0; }
};

// One kind of device. Thread-safe. If memory runs out, functions return RESOURCE_EXHAUSTED with the
// number of bytes they asked for.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendCapabilities& capabilities() const = 0;

  // Allocates uninitialised memory aligned to at least 64 bytes. bytes = 0 gives an empty buffer.
  virtual absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) = 0;

  // Bytes that the device could allocate now in total; other processes may take some at any time.
  // The default does not know what others hold and returns all memory.
  virtual absl::StatusOr<size_t> FreeMemory() { return capabilities().memory_bytes; }

  // The workspace a stream needs (Stream::UseWorkspace) so that no op within the bounds `most`
  // allocates device memory. The default is none: ops then allocate on the host's heap as needed,
  // and keep it.
  virtual WorkspaceBytes PlanWorkspace(const WorkShape& /*most*/) const { return {}; }

  // Allocates host memory that ops of this device can read and write too; a device with its own
  // memory reaches it over the link. Copies between it and the device need no staging buffer.
  // Aligned and uninitialised like Allocate. The default is the heap, for devices that share the
  // host's memory.
  virtual absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes);

  // Creates a stream whose ops use up to `threads` >= 1 threads, including the calling one.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) = 0;

  // The same device seen from one memory node, 0 <= node < capabilities().nodes. Memory comes from
  // that node if the system allows it, and threads of streams stay on it. Lives as long as this
  // backend.
  virtual Backend& OnNode(int /*node*/) { return *this; }

  // One of several devices of the same kind, 0 <= device < capabilities().devices. All other calls
  // on this backend go to device 0. Lives as long as this backend. A device's memory can be reached
  // only by its own ops and streams; memory from AllocateHost can be reached by all.
  virtual Backend& OnDevice(int /*device*/) { return *this; }

  // Creates an event of this device. `timed` allows SecondsBetween.
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent(bool timed);
  // Seconds between two timed events that were recorded in this order in one stream. Both must have
  // been reached.
  virtual absl::StatusOr<double> SecondsBetween(const Event& /*from*/, const Event& /*to*/) {
    return 0.0;
  }

  // Blocks until an event of this device, as it was last recorded, has been reached. Returns at
  // once if it was never recorded. The default returns at once.
  virtual absl::Status WaitFor(const Event& /*event*/) { return absl::OkStatus(); }

  // Opens a link that copies from the memory of `from`, another device of the same kind, to this
  // device's. FAILED_PRECONDITION, with what to do, if the devices cannot be linked that way.
  virtual absl::StatusOr<std::unique_ptr<DeviceLink>> OpenLink(Backend& from, LinkKind kind);
  // Creates the members of a group of `ranks`, rank r on device r. FAILED_PRECONDITION if a library
  // is missing or there are fewer devices than ranks; DEADLINE_EXCEEDED if the members do not find
  // each other within `timeout`.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenGroup(
      int ranks, std::chrono::milliseconds timeout);

  // Copies between any combination of host and device memory, in the stream's order.
  virtual absl::Status Copy(Stream& stream, void* destination, const void* source,
                            size_t bytes) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BACKEND_H_
