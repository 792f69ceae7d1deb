#ifndef ANNULUS_SERVER_HTTP_WORK_EXCHANGE_H_
#define ANNULUS_SERVER_HTTP_WORK_EXCHANGE_H_

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "server/generation/service_context.h"
#include "server/http/http_exchange.h"
#include "server/http/reply_terms.h"
#include "server/http/routes.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// One request whose answer is made by a job of the WorkPool (WorkHandler) and sent whole.
//
// The connection and the job share ownership. If the client goes away, a job that has not begun
// never does, and one that runs is cancelled. A drain waits for it.
class WorkExchange final : public HttpExchange,
                           public Abortable,
                           public std::enable_shared_from_this<WorkExchange> {
 public:
  // What the exchange takes of the request.
  struct Asked {
    WorkHandler handler = nullptr;
    std::string rest = {};   // see HttpWork
    std::string query = {};  // likewise
    ReplyTerms terms = {};
  };

  // `call` is admitted.
  WorkExchange(ServiceContext& context, CallContext call, Asked asked,
               std::shared_ptr<HttpReply> reply);

  std::shared_ptr<MemoryBudget> body_share() const override { return asked_.terms.body_share; }
  void Start(BodyBytes body) override;
  void Refuse(const absl::Status& status) override;
  void OnWritten() override {}
  void OnBeat() override {}
  void OnGone() override;
  void OnOver() override;

  // Work that has begun continues to its end, but its answer is not sent.
  void Abort(absl::Status status) override;

 private:
  void Work(std::deque<std::string>& body, const CancelFlag& cancel);
  void End(absl::StatusOr<HttpAnswer> made, bool body_came = true);

  ServiceContext& context_;
  const CallContext call_;
  Asked asked_;
  const std::shared_ptr<HttpReply> reply_;
  const JobId job_;
  std::optional<CallMemory> memory_;  // set by Start, used by the job only

  std::mutex mutex_;
  absl::Status aborted_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_WORK_EXCHANGE_H_
