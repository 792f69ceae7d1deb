#ifndef ANNULUS_SERVER_UPLOAD_REACTOR_H_
#define ANNULUS_SERVER_UPLOAD_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_set>

#include "server/service_context.h"
#include "server/upload.h"

namespace annulus {

class UploadReactor;

// Uploads under way, so that one that falls silent can be cut off. Thread-safe.
class UploadRegistry {
 public:
  void Add(UploadReactor& upload);
  void Remove(UploadReactor& upload);
  // Cuts off every upload that has sent nothing since `limit`.
  void CutOffSilentSince(SteadyTime limit);

 private:
  std::mutex mutex_;
  std::unordered_set<UploadReactor*> uploads_;
};

// UploadDocument: reads one message at a time and hands it to an Upload in the pool. A read or a
// job is under way at any time until Finish, never both, so nothing here needs a lock. Deletes
// itself.
class UploadReactor final : public grpc::ServerReadReactor<grpc::ByteBuffer> {
 public:
  UploadReactor(ServiceContext& context, UploadRegistry& registry,
                grpc::CallbackServerContext& call, grpc::ByteBuffer& response);

  void OnReadDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Called by the registry.
  void CutOffIfSilentSince(SteadyTime limit);

 private:
  absl::Status Start();
  void InPool(std::function<absl::Status()> job);
  absl::Status AcceptMessage();
  absl::Status Complete();
  void End(const absl::Status& status);

  ServiceContext& context_;
  UploadRegistry& registry_;
  grpc::CallbackServerContext& call_;
  grpc::ByteBuffer& response_;
  grpc::ByteBuffer message_;
  std::string client_;            // whose share of the pool it uses
  std::optional<Upload> upload_;  // absent when the call was refused at once
  Upload::Result result_;
  std::atomic<SteadyTime::rep> last_message_;
  std::atomic<bool> cut_off_{false};
  std::atomic<JobId> job_{0};  // the newest
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_UPLOAD_REACTOR_H_
