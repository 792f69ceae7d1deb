#include "server/http/work_exchange.h"

#include <utility>

#include "kernels/base/status_macros.h"
#include "server/work/guarded.h"

namespace annulus::server {

WorkExchange::WorkExchange(ServiceContext& context, CallContext call, Asked asked,
                           std::shared_ptr<HttpReply> reply)
    : context_(context),
      call_(std::move(call)),
      asked_(std::move(asked)),
      reply_(std::move(reply)),
      job_(context.pool.NewId()) {}

void WorkExchange::Start(BodyBytes body) {
  context_.lifecycle.Follow(*this);
  const size_t bytes = body.size();
  memory_.emplace(body.TakeMemory());
  auto pieces = std::make_shared<std::deque<std::string>>(body.TakePieces());
  const absl::Status posted = Guarded([&] {
    Job job{
        call_.method, ClientOf(call_), bytes,
        [self = shared_from_this(), pieces](const WorkTurn& turn) { self->Work(*pieces, turn); }};
    return context_.pool.TryRun(job_, std::move(job)) ? absl::OkStatus() : context_.PoolRefusal();
  });
  if (!posted.ok()) End(posted);
}

void WorkExchange::Work(std::deque<std::string>& body, const CancelFlag& cancel) {
  HttpAnswer answer;
  const absl::Status status = Guarded([&]() -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(
        answer, asked_.handler({context_, call_.caller, *memory_, asked_.rest, asked_.query}, body,
                               cancel));
    return absl::OkStatus();
  });
  body.clear();
  for (const auto part : {CallMemory::kReceived, CallMemory::kDecoded, CallMemory::kWork}) {
    memory_->Release(part);
  }
  status.ok() ? End(std::move(answer)) : End(status);
}

void WorkExchange::Refuse(const absl::Status& status) { End(status, /*body_came=*/false); }

void WorkExchange::OnGone() {
  if (context_.pool.Cancel(job_)) End(absl::CancelledError("the client went away"));
}

void WorkExchange::OnOver() { context_.lifecycle.Leave(*this); }

void WorkExchange::Abort(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (aborted_.ok()) aborted_ = std::move(status);
}

void WorkExchange::End(absl::StatusOr<HttpAnswer> made, bool body_came) {
  {
    std::lock_guard lock(mutex_);
    if (!aborted_.ok()) made = aborted_;
  }
  const CallEnd end = context_.Conclude(call_, made.status());
  const ReplyTerms& terms = asked_.terms;
  if (made.ok()) made->headers = RequestIdHeaders(end.request_id);
  reply_->Send(made.ok() ? terms.Format(*std::move(made), body_came)
                         : terms.FormatError(ToHttpError(end), body_came),
               HttpReply::End::kLast);
}

}  // namespace annulus::server
