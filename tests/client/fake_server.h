#ifndef ANNULUS_TESTS_CLIENT_FAKE_SERVER_H_
#define ANNULUS_TESTS_CLIENT_FAKE_SERVER_H_

#include <google/protobuf/message.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server.h>

#include <atomic>
#include <condition_variable>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"

namespace annulus::testing {

// A failed call with google.rpc details, as annulusd sends it.
grpc::Status MakeFailure(grpc::StatusCode code, const std::string& message,
                         const std::vector<const google::protobuf::Message*>& details = {});

// An in-process server with all services of annulus.v1. It answers as it was told, keeps documents
// in memory and remembers what it was asked. Thread-safe.
class FakeServer {
 public:
  // What StreamGenerate does: sends the events, then waits for cancellation if told to, then ends.
  struct Reply {
    std::vector<v1::StreamGenerateResponse> events{};
    bool wait_for_cancel = false;
    std::function<bool()> until{};  // under the server's mutex: ends only once it gives true
    grpc::Status status{};
  };

  explicit FakeServer(const std::shared_ptr<grpc::ServerCredentials>& credentials =
                          grpc::InsecureServerCredentials());
  ~FakeServer();

  std::string address() const;  // 127.0.0.1:PORT

  void SetReply(Reply reply);
  // The same for each generation by what it asks; called by one thread at a time.
  void SetReplies(std::function<Reply(const v1::GenerationSpec&)> replies);
  // What AskMany does, without the mutex; by default it is UNIMPLEMENTED, as with an old daemon.
  using ManyReplies =
      std::function<grpc::Status(const v1::AskManyRequest& request,
                                 const std::function<void(const v1::AskManyResponse&)>& write)>;
  void SetManyReplies(ManyReplies replies);
  void SetPlan(v1::PlanResponse plan);
  std::vector<v1::PlanRequest> plan_requests() const;
  // Makes every call of every service fail.
  void SetFailure(grpc::Status status);
  void AddDocument(const std::string& name, const std::string& text, const std::string& title = "");
  // From now on downloads leave out the first bytes of a document.
  void LoseBytes(size_t bytes) { lost_bytes_ = bytes; }
  // From now on refuses uploads once this many documents are stored.
  void FillUpWith(size_t documents) { most_documents_ = documents; }
  void SetModels(std::vector<v1::Model> models);
  void SetInfo(v1::GetServerInfoResponse info);
  void SetLoad(v1::GetLoadResponse load, grpc::Status status = {});
  int load_requests() const;   // answered so far
  int model_requests() const;  // of GetModel, answered so far
  void SetAttentionMap(v1::MapAttentionResponse map);

  std::vector<v1::GenerationSpec> specs() const;
  std::vector<v1::TokenizeRequest> tokenize_requests() const;
  std::vector<v1::MapAttentionRequest> map_requests() const;
  // Messages of all uploads, in order, chunks without their data.
  std::vector<v1::UploadDocumentRequest> uploads() const;
  std::vector<v1::PrefillDocumentRequest> prefills() const;
  std::vector<std::string> unpinned() const;   // names
  std::vector<std::string> withdrawn() const;  // names that were deleted if unused
  // What descriptions of that document say of its keys and values.
  void SetKept(const std::string& name, const v1::Document& kept);
  std::map<std::string, std::string> documents() const;
  std::map<std::string, std::string> titles() const;  // by name
  // "authorization" of the latest call; empty if it had none.
  std::string authorization() const;

  // Waits until a generation has sent its events; false after ten seconds.
  bool WaitForGeneration();
  // Waits until a generation was cancelled; false after ten seconds.
  bool WaitForCancel();

 private:
  class Inference;
  class Documents;
  class Models;
  class Admin;

  // Notes the caller's token; returns the failure that was set.
  grpc::Status Enter(const grpc::ServerContext& context);
  bool Wait(const bool& condition);

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Reply reply_;
  std::function<Reply(const v1::GenerationSpec&)> replies_;
  ManyReplies many_replies_;
  v1::PlanResponse plan_;
  std::vector<v1::PlanRequest> plan_requests_;
  grpc::Status failure_;
  std::map<std::string, std::string> documents_;
  std::map<std::string, std::string> titles_;
  std::atomic<size_t> lost_bytes_{0};
  std::atomic<size_t> most_documents_ = std::numeric_limits<size_t>::max();
  std::vector<v1::Model> models_;
  v1::GetServerInfoResponse info_;
  v1::GetLoadResponse load_;
  grpc::Status load_status_;
  int load_requests_ = 0;
  int model_requests_ = 0;
  std::vector<v1::GenerationSpec> specs_;
  std::vector<v1::TokenizeRequest> tokenize_requests_;
  v1::MapAttentionResponse attention_map_;
  std::vector<v1::MapAttentionRequest> map_requests_;
  std::vector<v1::UploadDocumentRequest> uploads_;
  std::vector<v1::PrefillDocumentRequest> prefills_;
  std::vector<std::string> unpinned_;
  std::vector<std::string> withdrawn_;
  std::map<std::string, v1::Document> kept_;
  std::string authorization_;
  bool events_sent_ = false;
  bool cancelled_ = false;

  std::unique_ptr<Inference> inference_service_;
  std::unique_ptr<Documents> document_service_;
  std::unique_ptr<Models> model_service_;
  std::unique_ptr<Admin> admin_service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// Events for SetReply.
v1::StreamGenerateResponse QueuedEvent(int position);
v1::StreamGenerateResponse ProgressEvent(int64_t processed, int64_t total);
v1::StreamGenerateResponse DeltaEvent(const std::string& text, const std::vector<int32_t>& ids);
// prompt 8 tokens (2 cached), `tokens` generated, timings 0.5, 1, 1.5, 2, 3.5 in the order of the
// message.
v1::StreamGenerateResponse CompletionEvent(v1::FinishReason reason, int64_t tokens);

// Queued, progress, "Once upon", " a time", completion (stop).
FakeServer::Reply StoryReply();

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_FAKE_SERVER_H_
