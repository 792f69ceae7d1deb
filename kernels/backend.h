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
  std::string description;  // the processor as its vendor names it
  size_t memory_bytes = 0;  // all memory of the device
  // Of them, what must stay free for its driver, which takes memory for code that is first run, for
  // graphs and for much of what it makes.
  size_t reserved_bytes = 0;
  int threads = 1;  // hardware threads of the host that this process may use
  int nodes = 1;    // memory nodes to place ranks on: see Backend::OnNode
  int devices = 1;  // devices with a memory of their own: see Backend::OnDevice
  // Rows that products with wide results between them, as those of an MLP, should take together: so
  // few that caches still hold the one's results when the next reads them, where that is what
  // counts, and so many that the device is full.
  int64_t wide_rows = 512;
  bool host_accessible = true;
};

// What became of the launches that a stream held back: see Stream::BeginGraph. All are since the
// stream was made.
struct GraphCounts {
  int64_t whole = 0;      // graphs that were begun and went out as one
  int64_t in_pieces = 0;  // that something cut: as several, the short ones launch by launch
  int64_t built = 0;      // pieces that differed from the last time's by more than arguments
  int64_t replayed = 0;   // launches that went out in graphs
  int64_t updated = 0;    // of these, those whose arguments differed from the last time's
  int64_t single = 0;     // launches that went out one by one
  // What cut: each time launches had to go out because something was to take its place behind them.
  int64_t cut_by_wait = 0;    // the host waited for them
  int64_t cut_by_event = 0;   // an event that others await, or one that was awaited
  int64_t cut_by_copy = 0;    // a copy
  int64_t cut_by_memory = 0;  // the stream's own memory was too small, and is larger now
  int64_t cut_by_library = 0;

  int64_t cuts() const {
    return cut_by_wait + cut_by_event + cut_by_copy + cut_by_memory + cut_by_library;
  }
};

// Launches that a stream holds back until Launch. Dropped where it ends before. Ends before its
// stream, and is used by the same thread.
class StepGraph {
 public:
  virtual ~StepGraph() = default;
  // Hands all that is still held to the device, and ends the holding. Once. RESOURCE_EXHAUSTED
  // where the device has no memory for the graph; other errors as of the ops that it holds. After
  // an error some of the work may have been done.
  virtual absl::Status Launch() { return absl::OkStatus(); }
};

// An ordered queue of work on one device, owned by one rank. An op either finishes before it
// returns (CPU) or is enqueued (GPU); Synchronize waits for all of it. Not thread-safe: one thread
// at a time.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual absl::Status Synchronize() = 0;

  // Sets the event, one of this stream's device, behind everything enqueued so far. Without an
  // override: everything has been done.
  virtual absl::Status Record(Event& /*event*/) { return absl::OkStatus(); }
  // What is enqueued from now on begins once the event, as it was last recorded, has been reached.
  // It may be another device's.
  virtual absl::Status Await(const Event& /*event*/) { return absl::OkStatus(); }

  // Record of an event that nobody awaits, but SecondsBetween is asked about: held back like ops.
  virtual absl::Status Mark(Event& event) { return Record(event); }

  // Until the graph's Launch ops may be held back, so that the device gets them together, which
  // costs less than one by one: for steps of many short ops, much like the step before. What was
  // kept of that one is compared with, and where nothing but arguments changed, they alone are
  // told. The order of work is what it would be otherwise: whatever must come behind an op that is
  // held (Synchronize, Record, Await, a copy, a library's work) hands over what is held up to
  // there, and is counted as a cut. Waits for all earlier work first. Only while no other graph of
  // the stream lives. Without an override: ops run as always.
  virtual absl::StatusOr<std::unique_ptr<StepGraph>> BeginGraph() {
    return std::make_unique<StepGraph>();
  }
  // Any thread may ask.
  virtual GraphCounts graph_counts() const { return {}; }

  // A hint: the next product will read these ranges (at most kMostRanges count), one after the
  // other. Threads that wait meanwhile may bring the beginnings of their shares closer. Whether the
  // ranges are still there then does not matter. Without an override: nothing.
  static constexpr size_t kMostRanges = 3;
  virtual void WillRead(std::span<const std::span<const std::byte>> /*ranges*/) {}

  // Keeps the calling thread, which is the one that will use the stream, where the stream's own
  // threads are.
  virtual void BindCaller() {}

  // Gives ops the memory, planned.total() bytes of this stream's device aligned to 256, to work in
  // from now on; it outlives the stream. Once, before the first op. Pins planned.uploads bytes of
  // the host: errors as of AllocateHost. An op that needs more than was planned takes memory of its
  // own, which the stream keeps: where the device has none left, that op is RESOURCE_EXHAUSTED, and
  // those that need no more than was planned still work. Without an override: nothing was planned.
  virtual absl::Status UseWorkspace(std::byte* /*memory*/, const WorkspaceBytes& /*planned*/) {
    return absl::OkStatus();
  }
  // Workspace in bytes that ops have been given or have taken so far and that the stream keeps. Any
  // thread may ask.
  virtual size_t workspace_bytes() const { return 0; }
};

// One kind of device. Thread-safe. Memory errors are RESOURCE_EXHAUSTED with the bytes asked for.
class Backend {
 public:
  virtual ~Backend() = default;
  virtual const BackendCapabilities& capabilities() const = 0;

  // Uninitialised memory aligned to at least 64 bytes. bytes = 0 gives an empty buffer.
  virtual absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) = 0;

  // Bytes that the device could give now, all allocations together; others may take some of them at
  // any time. Without an override, nobody says what others hold: all.
  virtual absl::StatusOr<size_t> FreeMemory() { return capabilities().memory_bytes; }

  // What a stream needs so that no op up to `most` takes memory of the device: for
  // Stream::UseWorkspace. Without an override nothing: ops work in the host's heap, which they take
  // as they need it and keep.
  virtual WorkspaceBytes PlanWorkspace(const WorkShape& /*most*/) const { return {}; }

  // Memory of the host that ops of this device read and write too, over the link where the device
  // has its own; aligned and uninitialised as above. Copies between it and the device need no
  // detour. Without an override: the heap, for a device whose memory is the host's.
  virtual absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes);

  // `threads` >= 1: how many threads the stream's ops may use, the calling one included.
  virtual absl::StatusOr<std::unique_ptr<Stream>> CreateStream(int threads) = 0;

  // The same device as one of its memory nodes sees it, 0 <= node < capabilities().nodes: memory is
  // taken there where the system can, and streams' threads stay there. Lives as long as this
  // backend.
  virtual Backend& OnNode(int /*node*/) { return *this; }

  // One of several devices of one kind, 0 <= device < capabilities().devices; everything else that
  // is asked of this backend is asked of device 0. Lives as long as this backend. Memory of one is
  // within reach of its own ops and streams only; that of AllocateHost is within reach of all.
  virtual Backend& OnDevice(int /*device*/) { return *this; }

  // An event of this device. `timed`: SecondsBetween may ask about it.
  virtual absl::StatusOr<std::unique_ptr<Event>> CreateEvent(bool timed);
  // Seconds from one timed event to another that was recorded later in the same stream; both have
  // been reached.
  virtual absl::StatusOr<double> SecondsBetween(const Event& /*from*/, const Event& /*to*/) {
    return 0.0;
  }

  // Waits until an event of this device has been reached, as it was last recorded; where it never
  // was, not at all. Without an override: it has been.
  virtual absl::Status WaitFor(const Event& /*event*/) { return absl::OkStatus(); }

  // A link that copies from memory of `from`, another device of the same kind, to this device's.
  // FAILED_PRECONDITION, with what to do, where there can be none of that kind.
  virtual absl::StatusOr<std::unique_ptr<DeviceLink>> OpenLink(Backend& from, LinkKind kind);
  // The members of a group of `ranks`, rank r on device r. FAILED_PRECONDITION where a library is
  // missing or there are fewer devices than ranks; DEADLINE_EXCEEDED where they do not find each
  // other in time.
  virtual absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenGroup(
      int ranks, std::chrono::milliseconds timeout);

  // Copies between any two of host and device memory, in the stream's order.
  virtual absl::Status Copy(Stream& stream, void* destination, const void* source,
                            size_t bytes) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BACKEND_H_
