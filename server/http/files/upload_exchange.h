#ifndef ANNULUS_SERVER_HTTP_FILES_UPLOAD_EXCHANGE_H_
#define ANNULUS_SERVER_HTTP_FILES_UPLOAD_EXCHANGE_H_

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "server/documents/upload.h"
#include "server/generation/service_context.h"
#include "server/http/files/multipart_reader.h"
#include "server/http/http_exchange.h"
#include "server/http/reply_terms.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"
#include "server/work/work_pool.h"

namespace annulus::server {

// POST /v1/files: a form whose field `file` becomes a stored document, as it comes: no more than a
// part of it is ever held. A job in the pool reads each part, and only then the connection reads
// on. If the client goes away before it has the answer, the document is deleted again.
class UploadExchange final : public HttpExchange,
                             public Abortable,
                             private FormTaker,
                             public std::enable_shared_from_this<UploadExchange> {
 public:
  // What the exchange takes of the request.
  struct Asked {
    std::string boundary;
    ReplyTerms terms = {};
  };

  // `call` is admitted.
  static std::shared_ptr<UploadExchange> Create(ServiceContext& context, CallContext call,
                                                Asked asked, std::shared_ptr<HttpReply> reply);

  std::shared_ptr<MemoryBudget> body_share() const override { return asked_.terms.body_share; }
  bool takes_parts() const override { return true; }
  void OnPart(BodyBytes part) override { Post(std::move(part), /*last=*/false); }
  void Start(BodyBytes body) override { Post(std::move(body), /*last=*/true); }
  void Refuse(const absl::Status& status) override;
  void OnWritten() override {}
  void OnBeat() override {}
  void OnGone() override;
  void OnOver() override;

  // Ends the upload at once, or after the running job.
  void Abort(absl::Status status) override;

 private:
  UploadExchange(ServiceContext& context, CallContext call, Asked asked,
                 std::shared_ptr<HttpReply> reply);

  void Post(BodyBytes part, bool last);
  // These run in the pool.
  void Work(const std::deque<std::string>& pieces, bool last, const WorkTurn& turn);
  absl::Status Read(const std::deque<std::string>& pieces, bool last);
  absl::Status OnPart(const FormPart& part) override;
  absl::Status OnData(absl::string_view bytes) override;
  absl::Status OnPartEnd() override;
  absl::Status BeginFile(const FormPart& part);
  absl::Status PassOn(absl::string_view bytes);
  absl::Status Complete();

  void End(absl::Status status, bool whole);

  ServiceContext& context_;
  const CallContext call_;
  const Asked asked_;
  const std::shared_ptr<HttpReply> reply_;
  LastingFlag cancel_;
  CallMemory work_;  // for what is copied of a part

  // Used by the running job only.
  std::optional<CallMemory> received_;  // of the part that is read
  MultipartReader reader_;
  FormPart field_;         // the newest
  std::string value_;      // of a field other than `file`
  std::string beginning_;  // of the file, until it is known to be text
  bool is_checked_ = false;
  size_t size_ = 0;  // bytes of the file that were passed on
  std::optional<Upload> upload_;

  std::mutex mutex_;
  JobId job_ = 0;      // the newest
  bool busy_ = false;  // a job waits or runs
  bool ended_ = false;
  bool gone_ = false;
  absl::Status aborted_;  // not OK if the upload must end with this status
  Upload::Result result_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_FILES_UPLOAD_EXCHANGE_H_
