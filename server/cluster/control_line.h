#ifndef ANNULUS_SERVER_CLUSTER_CONTROL_LINE_H_
#define ANNULUS_SERVER_CLUSTER_CONTROL_LINE_H_

#include <grpcpp/alarm.h>
#include <grpcpp/support/byte_buffer.h>

#include <chrono>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "engine/workers/worker_link.h"

namespace annulus::server {

// The one method of the coordinator's port for workers: a stream of messages both ways. The
// messages are bytes to gRPC; engine/workers reads them.
inline constexpr char kControlMethod[] = "/annulus.internal.v1.Control/Join";
// The coordinator's first header, by which a worker knows that it speaks with one.
inline constexpr char kControlHeader[] = "annulus-coordinator";

// Size of one message. The largest are the plan of a step with all its rows, and its results, some
// megabytes each; gRPC refuses longer ones before it takes memory for them.
inline constexpr size_t kMostControlBytes = size_t{64} << 20;
// How long the other side may take to end the call after Close; then it is cancelled.
inline constexpr std::chrono::seconds kFarewellTime{3};

// Size of all messages that wait for the other side to take them.
inline constexpr size_t kMostQueuedBytes = 2 * kMostControlBytes;

// What both ends of a line do with gRPC's stream: one reads and writes at a time, and ends it once.
// The reactor of the call derives from it, passes on what gRPC reports, and begins what this asks
// for. It keeps itself until gRPC has reported the end; the WorkerLink shares it. Thread-safe.
class ControlLine {
 public:
  // `held`: gRPC reports the end only after LetGo, not as soon as SayEnd has done its work.
  explicit ControlLine(bool held) : held_(held) {}
  virtual ~ControlLine() = default;

  // ---- for the WorkerLink

  void Start(WorkerLinkSink& sink);
  void Send(std::string message);
  void Close(const absl::Status& why);
  // The link is being destroyed: closes it, and does not call the sink once this has returned.
  void Detach();

 protected:
  // ---- for the reactor

  // Once, before the call begins. `self`: of this object.
  void Keep(std::shared_ptr<ControlLine> self) { self_ = std::move(self); }
  void OnRead(bool ok);
  void OnWritten(bool ok);
  // gRPC is done with the call. `theirs`: how the other side ended it. May destroy the object.
  void OnEnded(const absl::Status& theirs);

 private:
  // ---- operations of gRPC, which report later. Called with the lock held.

  virtual void BeginRead(grpc::ByteBuffer& into) = 0;
  virtual void BeginWrite(const grpc::ByteBuffer& message) = 0;
  // Everything has been written: tells the other side the end. At most once.
  virtual void SayEnd(const absl::Status& why) = 0;
  // There is nothing more to read, and nothing being written. Called once. `said`: after SayEnd.
  virtual void LetGo(const absl::Status& why, bool said) = 0;
  virtual void Cancel() = 0;

  void CloseLocked(const absl::Status& why);
  void BreakOffLocked(const absl::Status& why);
  void Advance();

  const bool held_;
  std::mutex sink_mutex_;           // held while the sink is called
  WorkerLinkSink* sink_ = nullptr;  // guarded by sink_mutex_

  std::mutex mutex_;  // guards what follows
  bool reading_ = false;
  bool read_all_ = false;
  bool writing_ = false;
  bool said_end_ = false;
  bool let_go_ = false;
  std::optional<absl::Status> closed_;  // by this side
  std::deque<std::string> queue_;
  size_t queued_bytes_ = 0;

  std::shared_ptr<ControlLine> self_;  // until OnEnded
  grpc::Alarm farewell_;               // breaks the call off, after Close

  // These belong to gRPC while it reads or writes.
  grpc::ByteBuffer incoming_;
  grpc::ByteBuffer outgoing_;
};

// A link over a line.
std::unique_ptr<WorkerLink> MakeControlLink(std::shared_ptr<ControlLine> line, std::string peer);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CLUSTER_CONTROL_LINE_H_
