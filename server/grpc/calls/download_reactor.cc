#include "server/grpc/calls/download_reactor.h"

#include <string>
#include <utility>

#include "kernels/base/status_macros.h"
#include "server/generation/messages.h"
#include "server/grpc/calls/unary_call.h"
#include "server/grpc/calls/wire.h"
#include "server/work/guarded.h"

namespace annulus::server {

DownloadReactor::DownloadReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                                 const grpc::ByteBuffer& request)
    : context_(context),
      call_(call),
      request_(request),
      download_(context),
      cancel_(&context.pool.all()),
      facts_(ReadCall("DownloadDocument", context.peers, call)) {
  const absl::Status status = Guarded([&] { return Start(); });
  if (!status.ok()) End(status);
}

absl::Status DownloadReactor::Start() {
  ANNULUS_RETURN_IF_ERROR(CheckMessageSize(request_.Length(), kMostSmallRequestBytes));
  ANNULUS_RETURN_IF_ERROR(context_.Admit(facts_));
  ANNULUS_RETURN_IF_ERROR(download_.Reserve(facts_));
  context_.lifecycle.Follow(*this);
  return Post(&DownloadReactor::Open);
}

absl::Status DownloadReactor::Post(absl::Status (DownloadReactor::*make)()) {
  const auto run = [this, make](const WorkTurn& turn) {
    cancel_.Use(&turn);
    const absl::Status status = Guarded([&] { return (this->*make)(); });
    cancel_.Use(nullptr);
    if (!status.ok() || ended_) {
      End(status);
    } else {
      Write();
    }
  };
  const JobId id = context_.pool.NewId();
  job_ = id;
  Job job{facts_.method, ClientOf(facts_), kDownloadBytes, run};
  return context_.pool.TryRun(id, std::move(job)) ? absl::OkStatus() : context_.PoolRefusal();
}

absl::Status DownloadReactor::Open() {
  v1::DownloadDocumentRequest request;
  ANNULUS_RETURN_IF_ERROR(
      DecodeMessage(request_, context_.config.max_message_bytes, download_.memory(), request));
  ANNULUS_ASSIGN_OR_RETURN(const DocumentPtr document,
                           download_.Open(facts_.caller.tenant, "name", request.name(), cancel_));
  v1::DownloadDocumentResponse response;
  *response.mutable_document() = ToMessage(*document);
  EncodeMessage(response, message_);
  return absl::OkStatus();
}

absl::Status DownloadReactor::ReadChunk() {
  ANNULUS_ASSIGN_OR_RETURN(std::string part, download_.ReadPart(cancel_));
  ended_ = part.empty();
  if (ended_) return absl::OkStatus();
  v1::DownloadDocumentResponse response;
  response.mutable_chunk()->set_offset(static_cast<int64_t>(sent_));
  sent_ += part.size();
  response.mutable_chunk()->set_data(std::move(part));
  message_.Clear();
  EncodeMessage(response, message_);
  return absl::OkStatus();
}

void DownloadReactor::Write() {
  absl::Status aborted;
  {
    std::lock_guard lock(mutex_);
    aborted = aborted_;
    writing_ = aborted.ok();
    if (writing_) {
      context_.unread.Begin(answering_);
      StartWrite(&message_);  // OnWriteDone comes on another thread
    }
  }
  if (!aborted.ok()) End(aborted);
}

void DownloadReactor::OnWriteDone(bool ok) {
  context_.unread.End(answering_);
  {
    std::lock_guard lock(mutex_);
    writing_ = false;
  }
  const absl::Status status = Guarded([&]() -> absl::Status {
    if (!ok) return absl::CancelledError("the client cancelled the download or went away");
    return Post(&DownloadReactor::ReadChunk);
  });
  if (!status.ok()) End(status);
}

void DownloadReactor::Abort(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (!aborted_.ok()) return;
  aborted_ = std::move(status);
  cancel_.Cancel();
  if (writing_) call_.TryCancel();
}

void DownloadReactor::End(absl::Status status) {
  {
    std::lock_guard lock(mutex_);
    // If a drain ended the download, report the drain instead of the error that the job saw.
    if (!status.ok() && !aborted_.ok()) status = aborted_;
  }
  context_.unread.Begin(answering_);
  Finish(ToGrpcStatus(context_.Conclude(facts_, status), call_));
}

void DownloadReactor::OnCancel() {
  cancel_.Cancel();
  // A write ends by itself; a running job sees cancel_.
  if (context_.pool.Cancel(job_)) {
    End(absl::CancelledError("the client cancelled the download or went away"));
  }
}

void DownloadReactor::OnDone() {
  context_.unread.End(answering_);
  context_.lifecycle.Leave(*this);
  delete this;
}

}  // namespace annulus::server
