#ifndef ANNULUS_SERVER_HTTP_FILES_DOWNLOAD_EXCHANGE_H_
#define ANNULUS_SERVER_HTTP_FILES_DOWNLOAD_EXCHANGE_H_

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "server/generation/document_download.h"
#include "server/generation/service_context.h"
#include "server/http/http_exchange.h"
#include "server/http/reply_terms.h"
#include "server/work/lifecycle.h"
#include "server/work/work_pool.h"

namespace annulus::server {

// GET /v1/files/{id}/content: the bytes of a stored document as they were uploaded, while
// --documents keeps them. A job in the pool reads each part, after the client has taken the one
// before; no more than a part is ever held. What fails before the first part is an error with its
// status; a later failure closes the connection before all of Content-Length has come.
class DownloadExchange final : public HttpExchange,
                               public Abortable,
                               public std::enable_shared_from_this<DownloadExchange> {
 public:
  // What the exchange takes of the request.
  struct Asked {
    std::string id;
    ReplyTerms terms = {};
  };

  // `call` is admitted.
  DownloadExchange(ServiceContext& context, CallContext call, Asked asked,
                   std::shared_ptr<HttpReply> reply);

  std::shared_ptr<MemoryBudget> body_share() const override { return asked_.terms.body_share; }
  void Start(BodyBytes body) override;
  void Refuse(const absl::Status& status) override;
  void OnWritten() override;
  void OnBeat() override {}
  void OnGone() override;
  void OnOver() override;

  // Ends the download at once, or after the running job.
  void Abort(absl::Status status) override;

 private:
  absl::Status Post();
  // These run in the pool.
  void Work(const WorkTurn& turn);
  // Makes the next bytes of the answer.
  absl::Status Make(std::string& bytes);

  // `last`: the end of the answer if `status` is OK.
  void End(absl::Status status, std::string last = "");

  ServiceContext& context_;
  const CallContext call_;
  Asked asked_;
  const std::shared_ptr<HttpReply> reply_;
  const std::string request_id_ = ServiceContext::NewRequestId();
  LastingFlag cancel_;

  // Used by Start and the running job only.
  DocumentDownload download_;
  bool open_ = false;
  uint64_t left_ = 0;  // bytes of the text that were not made yet

  std::mutex mutex_;
  JobId job_ = 0;       // the newest
  bool busy_ = false;   // a job waits or runs
  bool begun_ = false;  // a part is sent
  bool ended_ = false;
  bool gone_ = false;
  absl::Status aborted_;  // not OK if the download must end with this status
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_FILES_DOWNLOAD_EXCHANGE_H_
