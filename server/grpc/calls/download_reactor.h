#ifndef ANNULUS_SERVER_GRPC_CALLS_DOWNLOAD_REACTOR_H_
#define ANNULUS_SERVER_GRPC_CALLS_DOWNLOAD_REACTOR_H_

#include <grpcpp/support/byte_buffer.h>
#include <grpcpp/support/server_callback.h>

#include <atomic>
#include <cstddef>
#include <functional>
#include <mutex>

#include "server/generation/document_download.h"
#include "server/generation/service_context.h"
#include "server/grpc/calls/grpc_call.h"
#include "server/work/lifecycle.h"

namespace annulus::server {

// The reactor of DownloadDocument. Reads one part of the text at a time in the pool and writes it.
// Until Finish, either a job waits or runs, or a write is under way. Only Abort may come at the
// same time, so what it shares is guarded by the mutex. Deletes itself.
class DownloadReactor final : public grpc::ServerWriteReactor<grpc::ByteBuffer>, public Abortable {
 public:
  DownloadReactor(ServiceContext& context, grpc::CallbackServerContext& call,
                  const grpc::ByteBuffer& request);

  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  // Ends the download after the running job, or at once if it waits for the client.
  void Abort(absl::Status status) override;

 private:
  absl::Status Start();
  // Makes the next message in the pool. Returns an error if the pool takes no job.
  absl::Status Post(absl::Status (DownloadReactor::*make)());
  absl::Status Open();
  absl::Status ReadChunk();
  void Write();
  void End(absl::Status status);

  ServiceContext& context_;
  grpc::CallbackServerContext& call_;
  const grpc::ByteBuffer& request_;
  GrpcAnswering answering_{call_};
  DocumentDownload download_;
  LastingFlag cancel_;
  CallContext facts_;         // constant once Start has returned
  grpc::ByteBuffer message_;  // belongs to gRPC while a write is under way
  size_t sent_ = 0;           // bytes of the text
  bool ended_ = false;        // all of the text is in messages
  std::atomic<JobId> job_{0};

  std::mutex mutex_;
  bool writing_ = false;
  absl::Status aborted_;  // not OK if the call must end with this status
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_GRPC_CALLS_DOWNLOAD_REACTOR_H_
