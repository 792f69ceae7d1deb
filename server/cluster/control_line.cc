#include "server/cluster/control_line.h"

#include <grpcpp/support/slice.h>

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/guarded.h"

namespace annulus::server {
namespace {

grpc::ByteBuffer BytesOf(const std::string& message) {
  const grpc::Slice slice(message);
  return {&slice, 1};
}

std::string TextOf(const grpc::ByteBuffer& bytes) {
  std::vector<grpc::Slice> slices;
  std::string text;
  if (!bytes.Dump(&slices).ok()) return text;
  text.reserve(bytes.Length());
  for (const grpc::Slice& slice : slices) {
    text.append(reinterpret_cast<const char*>(slice.begin()), slice.size());
  }
  return text;
}

// Short, as there is no memory.
absl::Status NoMemory() { return {absl::StatusCode::kResourceExhausted, "no memory"}; }

class ControlLink final : public WorkerLink {
 public:
  ControlLink(std::shared_ptr<ControlLine> line, std::string peer)
      : line_(std::move(line)), peer_(std::move(peer)) {}
  ~ControlLink() override { line_->Detach(); }

  void Start(WorkerLinkSink& sink) override { line_->Start(sink); }
  void Send(std::string message) override { line_->Send(std::move(message)); }
  void Close(const absl::Status& why) override { line_->Close(why); }
  std::string peer() const override { return peer_; }

 private:
  const std::shared_ptr<ControlLine> line_;
  const std::string peer_;
};

}  // namespace

void ControlLine::Start(WorkerLinkSink& sink) {
  {
    std::lock_guard lock(sink_mutex_);
    sink_ = &sink;
  }
  std::lock_guard lock(mutex_);
  reading_ = true;
  BeginRead(incoming_);
}

void ControlLine::Send(std::string message) {
  std::lock_guard lock(mutex_);
  if (closed_.has_value() || read_all_) return;
  if (message.size() > kMostControlBytes) {
    return BreakOffLocked(absl::ResourceExhaustedError(
        absl::StrCat("a message of ", message.size(),
                     " bytes for the other side; allowed: ", kMostControlBytes)));
  }
  queued_bytes_ += message.size();
  if (queued_bytes_ > kMostQueuedBytes) {
    return BreakOffLocked(absl::ResourceExhaustedError(
        absl::StrCat("the other side does not take what is sent: ", queued_bytes_ >> 20,
                     " MiB wait; allowed: ", kMostQueuedBytes >> 20, " MiB")));
  }
  queue_.push_back(std::move(message));
  Advance();
}

void ControlLine::Close(const absl::Status& why) {
  std::lock_guard lock(mutex_);
  CloseLocked(why);
}

void ControlLine::CloseLocked(const absl::Status& why) {
  if (closed_.has_value() || let_go_) return;
  closed_ = why;
  const auto late = [line = std::weak_ptr(self_)](bool is_late) {
    const std::shared_ptr<ControlLine> self = is_late ? line.lock() : nullptr;
    if (self == nullptr) return;
    std::lock_guard lock(self->mutex_);
    self->BreakOffLocked(absl::OkStatus());
  };
  farewell_.Set(std::chrono::system_clock::now() + kFarewellTime, late);
  Advance();
}

void ControlLine::BreakOffLocked(const absl::Status& why) {
  if (!closed_.has_value()) closed_ = why;
  queue_.clear();
  if (!let_go_) Cancel();
}

void ControlLine::Detach() {
  {
    std::lock_guard lock(sink_mutex_);
    sink_ = nullptr;
  }
  std::lock_guard lock(mutex_);
  CloseLocked(absl::OkStatus());
  // Reads on to learn of the end, unless gRPC may have reported that already.
  if (!reading_ && !read_all_ && (held_ || !said_end_)) {
    reading_ = true;
    BeginRead(incoming_);
  }
}

void ControlLine::OnRead(bool ok) {
  const auto pass_on = [&] {
    std::string message = TextOf(incoming_);
    incoming_.Clear();
    std::lock_guard lock(sink_mutex_);
    if (sink_ != nullptr) sink_->OnMessage(std::move(message));
    return absl::OkStatus();
  };
  const absl::Status passed = ok ? Guarded(pass_on, NoMemory) : absl::OkStatus();
  std::lock_guard lock(mutex_);
  if (!passed.ok()) BreakOffLocked(passed);
  if (ok) return BeginRead(incoming_);
  reading_ = false;
  read_all_ = true;
  Advance();
}

void ControlLine::OnWritten(bool ok) {
  std::lock_guard lock(mutex_);
  writing_ = false;
  outgoing_.Clear();
  if (!ok && !let_go_) {  // the call has ended, or does now; the read will report it
    queue_.clear();
    Cancel();
  }
  Advance();
}

void ControlLine::OnEnded(const absl::Status& theirs) {
  absl::Status why = theirs;
  {
    std::lock_guard lock(mutex_);
    if (closed_.has_value()) why = *closed_;
    read_all_ = true;
    let_go_ = true;
    farewell_.Cancel();
  }
  const std::shared_ptr<ControlLine> self = std::move(self_);
  std::lock_guard lock(sink_mutex_);
  if (sink_ == nullptr) return;
  const auto close = [&] {
    std::exchange(sink_, nullptr)->OnClosed(why);
    return absl::OkStatus();
  };
  Guarded(close, NoMemory).IgnoreError();  // then the silence tells
}

void ControlLine::Advance() {
  if (writing_ || let_go_) return;
  const absl::Status why = closed_.value_or(absl::OkStatus());
  if (read_all_) {
    queue_.clear();
    let_go_ = true;
    return LetGo(why, said_end_);
  }
  if (!queue_.empty()) {
    queued_bytes_ -= queue_.front().size();
    outgoing_ = BytesOf(queue_.front());
    queue_.pop_front();
    writing_ = true;
    return BeginWrite(outgoing_);
  }
  if (!closed_.has_value() || std::exchange(said_end_, true)) return;
  SayEnd(why);
}

std::unique_ptr<WorkerLink> MakeControlLink(std::shared_ptr<ControlLine> line, std::string peer) {
  return std::make_unique<ControlLink>(std::move(line), std::move(peer));
}

}  // namespace annulus::server
