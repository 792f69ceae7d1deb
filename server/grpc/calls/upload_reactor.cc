#include "server/grpc/calls/upload_reactor.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/messages.h"
#include "server/generation/stored_documents.h"
#include "server/grpc/calls/wire.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// The least average rate of an upload, over the time spent waiting for the client.
constexpr double kLeastBytesPerSecond = 1024;

SteadyTime::rep Now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

void UploadRegistry::Add(UploadReactor& upload) {
  std::lock_guard lock(mutex_);
  uploads_.insert(&upload);
}

void UploadRegistry::Remove(UploadReactor& upload) {
  std::lock_guard lock(mutex_);
  uploads_.erase(&upload);
}

void UploadRegistry::CutOffSlow(SteadyTime now, std::chrono::milliseconds timeout) {
  std::lock_guard lock(mutex_);
  for (UploadReactor* upload : uploads_) upload->CutOffIfSlow(now, timeout);
}

UploadReactor::UploadReactor(ServiceContext& context, UploadRegistry& registry,
                             grpc::CallbackServerContext& call, grpc::ByteBuffer& response)
    : context_(context),
      registry_(registry),
      call_(call),
      response_(response),
      memory_(context.prompts),
      cancel_(&context.pool.all()),
      facts_(ReadCall("UploadDocument", context.peers, call)),
      last_message_(Now()) {
  registry_.Add(*this);
  const absl::Status status = Guarded([&] { return Start(); });
  if (!status.ok()) End(status);
}

absl::Status UploadReactor::Start() {
  ANNULUS_RETURN_IF_ERROR(context_.Admit(facts_));
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context_.lifecycle.engine_for_changes());
  upload_.emplace(context_.documents, *engine, facts_.caller.tenant, cancel_,
                  DocumentShare(context_.quotas, facts_.caller));
  context_.lifecycle.FollowUntilDrain(*this);
  ReadNext();
  return absl::OkStatus();
}

void UploadReactor::ReadNext() {
  absl::Status aborted;
  {
    std::lock_guard lock(mutex_);
    aborted = aborted_;
    reading_ = aborted.ok();
    // The client's time starts here. The time in which its message waits or is processed does not
    // count.
    last_message_.store(Now(), std::memory_order_relaxed);
    if (reading_) StartRead(&message_);  // OnReadDone comes on another thread
  }
  if (!aborted.ok()) End(aborted);
}

void UploadReactor::OnReadDone(bool ok) {
  {
    std::lock_guard lock(mutex_);
    reading_ = false;
    if (ended_) return;
    waited_ += Now() - last_message_;
    received_ += message_.Length();
  }
  const absl::Status status = Guarded([&]() -> absl::Status {
    if (!ok && call_.IsCancelled()) {
      return absl::CancelledError("the client cancelled the upload or disconnected");
    }
    if (!ok) return InPool([this] { return Complete(); }, /*last=*/true);
    // Hold the memory before the message waits for its turn.
    ANNULUS_RETURN_IF_ERROR(memory_.Hold(CallMemory::kReceived, message_.Length()));
    return InPool([this] { return AcceptMessage(); }, /*last=*/false);
  });
  if (!status.ok()) End(status);
}

absl::Status UploadReactor::InPool(std::function<absl::Status()> job, bool last) {
  const auto run = [this, job = std::move(job), last](const WorkTurn& turn) {
    cancel_.Use(&turn);
    const absl::Status status = Guarded(job);
    message_.Clear();
    memory_.Release(CallMemory::kDecoded);
    memory_.Release(CallMemory::kReceived);
    if (last || !status.ok()) {
      End(status);
    } else {
      ReadNext();
    }
  };
  const JobId id = context_.pool.NewId();
  job_ = id;
  Job entry{facts_.method, ClientOf(facts_), message_.Length(), run};
  return context_.pool.TryRun(id, std::move(entry)) ? absl::OkStatus() : context_.PoolRefusal();
}

absl::Status UploadReactor::AcceptMessage() {
  v1::UploadDocumentRequest part;
  ANNULUS_RETURN_IF_ERROR(
      DecodeMessage(message_, context_.config.max_message_bytes, memory_, part));
  return upload_->Accept(part);
}

absl::Status UploadReactor::Complete() {
  ANNULUS_ASSIGN_OR_RETURN(result_, upload_->Finish());
  v1::UploadDocumentResponse response;
  *response.mutable_document() = ToMessage(*result_.document);
  EncodeMessage(response, response_);
  return absl::OkStatus();
}

void UploadReactor::Abort(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (ended_ || !aborted_.ok()) return;
  aborted_ = status;
  if (!reading_) return;  // the running job will call ReadNext, which checks aborted_, or End
  // Do not call Send here: the caller holds a lock that OnDone needs.
  const auto send = [this, status = std::move(status)](const WorkTurn&) { Send(status); };
  Job job{facts_.method, ClientOf(facts_), 0, send};
  ended_ = context_.pool.TryRun(context_.pool.NewId(), std::move(job));
  if (!ended_) call_.TryCancel();
}

void UploadReactor::End(absl::Status status) {
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    // If a drain ended the upload, report the drain instead of the error that the job saw.
    if (!status.ok() && !aborted_.ok()) status = aborted_;
  }
  Send(status);
}

void UploadReactor::Send(const absl::Status& status) {
  last_message_.store(Now(), std::memory_order_relaxed);
  context_.unread.Begin(answering_);
  NoteUpload(context_, facts_.caller, status, result_);
  // The client may ask to take the document back before OnDone comes: it must not look used then.
  if (result_.created) created_ = result_.document;
  result_.document.reset();
  Finish(ToGrpcStatus(context_.Conclude(facts_, status), call_));
}

void UploadReactor::OnCancel() {
  cancel_.Cancel();
  if (!context_.pool.Cancel(job_)) return;  // a read ends by itself; a running job sees cancel_
  End(absl::CancelledError("the client cancelled the upload or disconnected"));
}

void UploadReactor::OnDone() {
  // A broken connection may first look like the end of the stream. If the client never learned that
  // the document was stored, remove it, since it may be incomplete.
  if (const DocumentPtr document = created_.lock(); document != nullptr && call_.IsCancelled()) {
    context_.documents.Withdraw(document);
  }
  registry_.Remove(*this);
  context_.unread.End(answering_);
  context_.lifecycle.Leave(*this);
  delete this;
}

void UploadReactor::CutOffIfSlow(SteadyTime now, std::chrono::milliseconds timeout) {
  {
    std::lock_guard lock(mutex_);
    if (!reading_ && !ended_) return;  // the server is working on a message
    const SteadyTime::duration silent(now.time_since_epoch().count() - last_message_);
    const SteadyTime::duration waited = silent + SteadyTime::duration(waited_);
    const std::chrono::duration<double> allowed(static_cast<double>(received_) /
                                                kLeastBytesPerSecond);
    // Once the upload has ended, only the status has to be read, so its rate does not matter.
    const bool trickles = reading_ && waited > timeout + allowed;
    if (silent <= timeout && !trickles) return;
  }
  if (!cut_off_.exchange(true)) call_.TryCancel();
}

}  // namespace annulus::server
