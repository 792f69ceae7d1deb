#ifndef ANNULUS_SERVER_GRPC_CALLS_UPLOAD_REACTOR_H_
#define ANNULUS_SERVER_GRPC_CALLS_UPLOAD_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/documents/upload.h"
#include "server/generation/service_context.h"
#include "server/grpc/calls/grpc_call.h"
#include "server/work/call_memory.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

class UploadReactor;

// The running uploads, so that silent or slow ones can be cut off. Thread-safe.
class UploadRegistry {
 public:
  void Add(UploadReactor& upload);
  void Remove(UploadReactor& upload);
  // Cuts off every upload whose client has sent nothing for longer than `timeout`, or for which the
  // server has waited, in total, longer than `timeout` plus one second for each KiB received: a
  // byte now and then must not keep an upload's memory forever.
  void CutOffSlow(SteadyTime now, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::unordered_set<UploadReactor*> uploads_;
};

// The reactor of UploadDocument. Reads one message at a time and passes it to an Upload in the
// pool. Until Finish, either a read or a job for the last message is running, never both. Only
// Abort's own job may run at the same time as a read, so their shared state is guarded by the
// mutex. Deletes itself.
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public Abortable {
 public:
  UploadReactor(ServiceContext& context, UploadRegistry& registry,
                grpc::CallbackServerContext& call, grpc::ByteBuffer& response);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Ends the upload at once, or after the running job.
  void Abort(absl::Status status) override;

  // Called by the registry.
  void CutOffIfSlow(SteadyTime now, std::chrono::milliseconds timeout);

 private:
  absl::Status Start();
  // Runs `job` in the pool. The upload ends after it if `last`, or if the job fails.
  absl::Status InPool(std::function<absl::Status()> job, bool last);
  absl::Status AcceptMessage();
  absl::Status Complete();
  void ReadNext();
  void End(absl::Status status);
  void Send(const absl::Status& status);

  ServiceContext& context_;
  UploadRegistry& registry_;
  grpc::CallbackServerContext& call_;
  GrpcAnswering answering_{call_};
  grpc::ByteBuffer& response_;
  grpc::ByteBuffer message_;
  CallMemory memory_;  // memory of the current message
  LastingFlag cancel_;
  CallContext facts_;             // constant once Start has returned
  std::optional<Upload> upload_;  // nullopt if the call was refused at once
  Upload::Result result_;
  std::weak_ptr<const StoredDocument> created_;  // the document, once the status is being sent
  std::atomic<SteadyTime::rep> last_message_;    // since when the server waits for the client
  std::atomic<SteadyTime::rep> waited_{0};       // total time it has waited before that
  std::atomic<size_t> received_{0};              // bytes of all messages
  std::atomic<bool> cut_off_{false};
  std::atomic<JobId> job_{0};  // the newest job

  std::mutex mutex_;
  bool reading_ = false;  // from StartRead to OnReadDone
  bool ended_ = false;    // the status is being sent or was sent
  absl::Status aborted_;  // not OK if the upload must end with this status
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_UPLOAD_REACTOR_H_
