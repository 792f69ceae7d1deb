#ifndef ANNULUS_ENGINE_WORKERS_WORKER_LINK_H_
#define ANNULUS_ENGINE_WORKERS_WORKER_LINK_H_

#include <memory>
#include <string>

#include "absl/status/status.h"

namespace annulus {

// What a link tells the one who uses it. Calls come one at a time, on threads of the link, never
// within a call of the link's own methods, and must not block.
class WorkerLinkSink {
 public:
  virtual ~WorkerLinkSink() = default;

  // A whole message of the other side, in the order sent. Its bytes are not trusted.
  virtual void OnMessage(std::string message) = 0;

  // The link is closed, and nothing follows. Called exactly once. OK: the other side closed it with
  // OK. Otherwise the status with which either side closed it, or UNAVAILABLE if the connection
  // broke.
  virtual void OnClosed(const absl::Status& why) = 0;
};

// One end of the line between a coordinator and one worker: an ordered two-way stream of whole
// messages, each a ToWorker or FromWorker of proto/annulus/internal/v1/control.proto. Thread-safe.
// Whoever makes the link has checked who the other side is.
class WorkerLink {
 public:
  // Closes it with OK, unless Close was called before: what that said still reaches the other side.
  // Afterwards the sink is not called: there may be no OnClosed. Not to be called by the sink.
  virtual ~WorkerLink() = default;

  // Reports to `sink` from now on, which must outlive the link. Called once, before everything
  // else. Messages that came before are kept for it.
  virtual void Start(WorkerLinkSink& sink) = 0;

  // Sends a message; never blocks. Once the link is closed it is dropped. A link whose other side
  // does not take what was sent may close itself with RESOURCE_EXHAUSTED.
  virtual void Send(std::string message) = 0;

  // Closes the link once everything that was sent before has left; never blocks. OnClosed follows
  // within seconds, even if the other side does nothing. The other side
  // learns the status, if the connection stands: of a coordinator, its code and message; of a
  // worker, whether it is OK. The first call counts.
  virtual void Close(const absl::Status& why) = 0;

  // Where the other side is, for people: "10.0.0.7:51034".
  virtual std::string peer() const = 0;
};

// Who takes the links of workers that dial. Calls come on any thread and must not block.
class WorkerSourceSink {
 public:
  virtual ~WorkerSourceSink() = default;

  virtual void OnWorker(std::unique_ptr<WorkerLink> link) = 0;

  // No workers will come any more: the program stops, or cannot listen. At most once.
  virtual void OnStopped(const absl::Status& why) = 0;
};

// Where a coordinator's workers come from. Thread-safe.
class WorkerSource {
 public:
  virtual ~WorkerSource() = default;

  // Hands every worker to `sink` from now on, and those who wait already. Called once.
  virtual void Start(WorkerSourceSink& sink) = 0;

  // What the ring still waits for, for people: "2 of 4 ranks are missing". Empty: for nothing.
  virtual void Report(const std::string& missing) = 0;

  // Ends all calls of the sink, and waits until they have returned. Not to be called by the sink.
  // Workers that dial afterwards are refused with `why`.
  virtual void Stop(const absl::Status& why) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_WORKERS_WORKER_LINK_H_
