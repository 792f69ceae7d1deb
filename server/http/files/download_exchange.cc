#include "server/http/files/download_exchange.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/http/attached_documents.h"
#include "server/work/guarded.h"

namespace annulus::server {

DownloadExchange::DownloadExchange(ServiceContext& context, CallContext call, Asked asked,
                                   std::shared_ptr<HttpReply> reply)
    : context_(context),
      call_(std::move(call)),
      asked_(std::move(asked)),
      reply_(std::move(reply)),
      cancel_(&context.pool.all()),
      download_(context) {}

void DownloadExchange::Start(BodyBytes) {
  context_.lifecycle.Follow(*this);
  absl::Status status = Guarded([&] { return download_.Reserve(call_); });
  if (status.ok()) status = Post();
  if (!status.ok()) End(std::move(status));
}

absl::Status DownloadExchange::Post() {
  const JobId id = context_.pool.NewId();
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) return aborted_;
    busy_ = true;
    job_ = id;
  }
  return Guarded([&] {
    Job job{call_.method, ClientOf(call_), kDownloadBytes,
            [self = shared_from_this()](const WorkTurn& turn) { self->Work(turn); }};
    return context_.pool.TryRun(id, std::move(job)) ? absl::OkStatus() : context_.PoolRefusal();
  });
}

void DownloadExchange::Work(const WorkTurn& turn) {
  cancel_.Use(&turn);
  std::string bytes;
  absl::Status status = Guarded([&] { return Make(bytes); });
  cancel_.Use(nullptr);
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    if (status.ok()) status = gone_ ? absl::CancelledError("the client went away") : aborted_;
    if (status.ok() && left_ > 0) {
      begun_ = true;
      // Under the lock: Abort must not break off the connection before this comes.
      return reply_->Send(std::move(bytes), HttpReply::End::kMore);
    }
  }
  End(std::move(status), std::move(bytes));
}

absl::Status DownloadExchange::Make(std::string& bytes) {
  if (!open_) {
    const auto document = download_.Open(call_.caller.tenant, "id", asked_.id, cancel_);
    if (absl::IsNotFound(document.status())) return MissingFileError(context_, asked_.id);
    ANNULUS_RETURN_IF_ERROR(document.status());
    open_ = true;
    left_ = (*document)->size_bytes;
    HttpAnswer answer{.headers = RequestIdHeaders(request_id_)};
    asked_.terms.AddHeaders(answer);
    answer.headers.push_back(absl::StrCat("Content-Length: ", left_));
    bytes = SerializeHead(answer, BodyFrame::kGiven, asked_.terms.keep_alive);
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string part, download_.ReadPart(cancel_));
  if (part.size() > left_ || (part.empty() && left_ > 0)) {
    return absl::InternalError("the file has another length than the document");
  }
  left_ -= part.size();
  bytes += part;
  return absl::OkStatus();
}

void DownloadExchange::OnWritten() {
  const absl::Status status = Post();
  if (!status.ok()) End(status);
}

void DownloadExchange::Refuse(const absl::Status& status) {
  asked_.terms.keep_alive = false;  // the rest of the body may still come
  End(status);
}

void DownloadExchange::OnGone() {
  cancel_.Cancel();
  JobId job = 0;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    if (busy_) job = job_;
  }
  // A job that runs ends it.
  if (job == 0 || context_.pool.Cancel(job)) End(absl::CancelledError("the client went away"));
}

void DownloadExchange::OnOver() { context_.lifecycle.Leave(*this); }

void DownloadExchange::Abort(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (ended_ || !aborted_.ok()) return;
  aborted_ = std::move(status);
  cancel_.Cancel();
  // Nothing but the client's reading would go on with it; OnGone ends it.
  if (begun_ && !busy_) reply_->Send("", HttpReply::End::kBreak);
}

void DownloadExchange::End(absl::Status status, std::string last) {
  bool begun = false;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    busy_ = false;
    // If a drain ended the download, report the drain instead of the error that the job saw.
    if (!status.ok() && !aborted_.ok()) status = aborted_;
    begun = begun_;
  }
  const CallEnd end = context_.Conclude(call_, status, request_id_);
  if (status.ok()) return reply_->Send(std::move(last), HttpReply::End::kLast);
  if (begun) return reply_->Send("", HttpReply::End::kBreak);
  reply_->Send(asked_.terms.FormatError(ToHttpError(end)), HttpReply::End::kLast);
}

}  // namespace annulus::server
