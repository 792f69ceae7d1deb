#ifndef ANNULUS_SERVER_UPLOAD_REACTOR_H_
#define ANNULUS_SERVER_UPLOAD_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/call_memory.h"
#include "server/lifecycle.h"
#include "server/service_context.h"
#include "server/upload.h"

namespace annulus {

class UploadReactor;

// Uploads under way, so that one that falls silent, or trickles, can be cut off. Thread-safe.
class UploadRegistry {
 public:
  void Add(UploadReactor& upload);
  void Remove(UploadReactor& upload);
  // Cuts off every upload whose client has been waited for longer than `timeout` without a word, or
  // in all for longer than `timeout` and a second for each KiB that it has sent: a word now and
  // then must not keep an upload's memory for ever.
  void CutOffSlow(SteadyTime now, std::chrono::milliseconds timeout);

 private:
  std::mutex mutex_;
  std::unordered_set<UploadReactor*> uploads_;
};

// UploadDocument: reads one message at a time and hands it to an Upload in the pool. A read or a
// job for what was read is under way at any time until Finish, never both; Abort's own job runs
// beside a read, and what they share needs the lock. Deletes itself.
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer>, public Abortable {
 public:
  UploadReactor(ServiceContext& context, UploadRegistry& registry,
                grpc::CallbackServerContext& call, grpc::ByteBuffer& response);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Ends the upload at once, or after the job under way.
  void Abort(absl::Status status) override;

  // Called by the registry.
  void CutOffIfSlow(SteadyTime now, std::chrono::milliseconds timeout);

 private:
  absl::Status Start();
  // The upload ends after `job` if it was the last one, or fails.
  absl::Status InPool(std::function<absl::Status()> job, bool last);
  absl::Status AcceptMessage();
  absl::Status Complete();
  void ReadNext();
  void End(absl::Status status);
  void Send(const absl::Status& status);

  ServiceContext& context_;
  UploadRegistry& registry_;
  grpc::CallbackServerContext& call_;
  grpc::ByteBuffer& response_;
  grpc::ByteBuffer message_;
  CallMemory memory_;  // of the message that is being taken in
  LastingFlag cancel_;
  TenantId tenant_;
  std::string client_;            // whose share of the pool it uses
  std::optional<Upload> upload_;  // absent when the call was refused at once
  Upload::Result result_;
  std::atomic<SteadyTime::rep> last_message_;  // since when the client is waited for
  std::atomic<SteadyTime::rep> waited_{0};     // how long it was before, in all
  std::atomic<size_t> received_{0};            // bytes of messages
  std::atomic<bool> cut_off_{false};
  std::atomic<JobId> job_{0};  // the newest

  std::mutex mutex_;
  bool reading_ = false;  // from StartRead to OnReadDone
  bool ended_ = false;    // the status is being sent, or will be
  absl::Status aborted_;  // not OK: how the upload must end
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_UPLOAD_REACTOR_H_
