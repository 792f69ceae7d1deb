#include "tests/client/fake_server.h"

#include <grpcpp/server_builder.h>

#include <chrono>
#include <sstream>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/documents.h"
#include "google/rpc/error_details.pb.h"
#include "google/rpc/status.pb.h"

namespace annulus::testing {
namespace {

using grpc::ServerContext;
using grpc::Status;
using grpc::StatusCode;

Status DocumentNotFound(const std::string& name) {
  google::rpc::ErrorInfo info;
  info.set_reason("DOCUMENT_NOT_FOUND");
  info.set_domain("annulus");
  google::rpc::ResourceInfo resource;
  resource.set_resource_type("document");
  resource.set_resource_name(name);
  return MakeFailure(StatusCode::NOT_FOUND, "no such document", {&info, &resource});
}

v1::Document Describe(const std::string& name, const std::string& text, const std::string& title) {
  std::istringstream stream(text);
  v1::Document document;
  document.set_name(name);
  document.set_size_bytes(static_cast<int64_t>(text.size()));
  document.set_sha256(client::ReadDocument(stream)->sha256);
  document.set_token_count(static_cast<int64_t>(text.size()));
  document.set_age(61);
  document.set_title(title);
  return document;
}

}  // namespace

Status MakeFailure(StatusCode code, const std::string& message,
                   const std::vector<const google::protobuf::Message*>& details) {
  google::rpc::Status status;
  status.set_code(code);
  status.set_message(message);
  for (const google::protobuf::Message* detail : details) {
    status.add_details()->PackFrom(*detail);
  }
  return Status(code, message, details.empty() ? "" : status.SerializeAsString());
}

class FakeServer::Inference final : public v1::InferenceService::Service {
 public:
  explicit Inference(FakeServer& server) : server_(server) {}

  Status StreamGenerate(ServerContext* context, const v1::StreamGenerateRequest* request,
                        grpc::ServerWriter<v1::StreamGenerateResponse>* writer) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    Reply reply;
    {
      const std::lock_guard lock(server_.mutex_);
      server_.specs_.push_back(request->spec());
      reply = server_.replies_ ? server_.replies_(request->spec()) : server_.reply_;
    }
    for (const auto& event : reply.events) writer->Write(event);
    Note(server_.events_sent_);
    while (reply.wait_for_cancel && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    while (reply.until && !context->IsCancelled()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      const std::lock_guard lock(server_.mutex_);
      if (reply.until()) break;
    }
    if (context->IsCancelled()) Note(server_.cancelled_);
    return reply.status;
  }

  Status AskMany(ServerContext* context, const v1::AskManyRequest* request,
                 grpc::ServerWriter<v1::AskManyResponse>* writer) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    ManyReplies replies;
    {
      const std::lock_guard lock(server_.mutex_);
      replies = server_.many_replies_;
    }
    if (!replies) return {StatusCode::UNIMPLEMENTED, "no such method"};
    return replies(*request, [&](const v1::AskManyResponse& event) { writer->Write(event); });
  }

  Status Plan(ServerContext* context, const v1::PlanRequest* request,
              v1::PlanResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    server_.plan_requests_.push_back(*request);
    *response = server_.plan_;
    return Status::OK;
  }

  // The prompt of one message, or text, behind the names of documents.
  Status RenderPrompt(ServerContext* context, const v1::RenderPromptRequest* request,
                      v1::RenderPromptResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const v1::GenerationSpec& spec = request->spec();
    for (const std::string& name : spec.documents()) *response->mutable_text() += name + "\n";
    *response->mutable_text() +=
        spec.has_messages() ? spec.messages().messages(0).content() : spec.text();
    response->set_system_folded(spec.messages().messages_size() > 1);
    response->add_token_ids(7);
    response->add_token_ids(8);
    return Status::OK;
  }

  Status Tokenize(ServerContext* context, const v1::TokenizeRequest* request,
                  v1::TokenizeResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    server_.tokenize_requests_.push_back(*request);
    if (request->add_special()) response->add_token_ids(1);
    for (const char c : request->text()) response->add_token_ids(static_cast<unsigned char>(c));
    return Status::OK;
  }

  Status MapAttention(ServerContext* context, const v1::MapAttentionRequest* request,
                      v1::MapAttentionResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    server_.map_requests_.push_back(*request);
    *response = server_.attention_map_;
    return Status::OK;
  }

 private:
  void Note(bool& fact) {
    const std::lock_guard lock(server_.mutex_);
    fact = true;
    server_.changed_.notify_all();
  }

  FakeServer& server_;
};

class FakeServer::Documents final : public v1::DocumentService::Service {
 public:
  explicit Documents(FakeServer& server) : server_(server) {}

  Status UploadDocument(ServerContext* context,
                        grpc::ServerReader<v1::UploadDocumentRequest>* reader,
                        v1::UploadDocumentResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    v1::DocumentHeader header;
    std::string text;
    v1::UploadDocumentRequest request;
    while (reader->Read(&request)) {
      if (request.has_header()) header = request.header();
      if (request.has_chunk()) {
        if (request.chunk().offset() != static_cast<int64_t>(text.size())) {
          return Status(StatusCode::INVALID_ARGUMENT, "a chunk is out of order");
        }
        text += request.chunk().data();
        request.mutable_chunk()->clear_data();
      }
      const std::lock_guard lock(server_.mutex_);
      server_.uploads_.push_back(request);
    }
    const v1::Document document = Describe(header.name(), text, header.title());
    if (header.total_bytes() != document.size_bytes() || header.sha256() != document.sha256()) {
      return Status(StatusCode::INVALID_ARGUMENT, "size or hash differs from the header");
    }
    const std::lock_guard lock(server_.mutex_);
    const int64_t most = server_.models_.empty() ? 0 : server_.models_.front().max_context();
    if (most > 0 && document.token_count() > most) {  // as annulusd does
      return Status(StatusCode::OUT_OF_RANGE, "the document is longer than the model's context");
    }
    if (server_.documents_.size() >= server_.most_documents_) {
      return Status(StatusCode::RESOURCE_EXHAUSTED, "no room for another document");
    }
    server_.documents_[header.name()] = text;
    server_.titles_[header.name()] = header.title();
    server_.kept_[header.name()].set_transient(header.transient());
    response->mutable_document()->set_transient(header.transient());
    *response->mutable_document() = document;
    return Status::OK;
  }

  Status GetDocument(ServerContext* context, const v1::GetDocumentRequest* request,
                     v1::GetDocumentResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    const auto found = server_.documents_.find(request->name());
    if (found == server_.documents_.end()) return DocumentNotFound(request->name());
    *response->mutable_document() =
        Describe(found->first, found->second, server_.titles_[found->first]);
    response->mutable_document()->MergeFrom(server_.kept_[found->first]);
    return Status::OK;
  }

  // Chunks of two bytes.
  Status DownloadDocument(ServerContext* context, const v1::DownloadDocumentRequest* request,
                          grpc::ServerWriter<v1::DownloadDocumentResponse>* writer) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    const auto found = server_.documents_.find(request->name());
    if (found == server_.documents_.end()) return DocumentNotFound(request->name());
    const std::string& text = found->second;
    v1::DownloadDocumentResponse part;
    *part.mutable_document() = Describe(found->first, text, server_.titles_[found->first]);
    writer->Write(part);
    for (size_t at = server_.lost_bytes_; at < text.size(); at += 2) {
      part.mutable_chunk()->set_offset(static_cast<int64_t>(at));
      part.mutable_chunk()->set_data(text.substr(at, 2));
      writer->Write(part);
    }
    return Status::OK;
  }

  // Pages of two.
  Status ListDocuments(ServerContext* context, const v1::ListDocumentsRequest* request,
                       v1::ListDocumentsResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    auto next = server_.documents_.upper_bound(request->page_token());
    for (; next != server_.documents_.end() && response->documents_size() < 2; ++next) {
      v1::Document& document = *response->add_documents();
      document = Describe(next->first, next->second, server_.titles_[next->first]);
      document.MergeFrom(server_.kept_[next->first]);
    }
    if (next != server_.documents_.end()) {
      response->set_next_page_token(response->documents(1).name());
    }
    return Status::OK;
  }

  Status DeleteDocument(ServerContext* context, const v1::DeleteDocumentRequest* request,
                        v1::DeleteDocumentResponse*) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    if (request->if_unused()) server_.withdrawn_.push_back(request->name());
    const bool erased = server_.documents_.erase(request->name()) == 1;
    return erased ? Status::OK : DocumentNotFound(request->name());
  }

  Status UnpinDocument(ServerContext* context, const v1::UnpinDocumentRequest* request,
                       v1::UnpinDocumentResponse*) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    if (!server_.documents_.contains(request->name())) return DocumentNotFound(request->name());
    server_.unpinned_.push_back(request->name());
    return Status::OK;
  }

  // Queued, half of it read, done: as many tokens as the document has bytes.
  Status PrefillDocument(ServerContext* context, const v1::PrefillDocumentRequest* request,
                         grpc::ServerWriter<v1::PrefillDocumentResponse>* writer) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    int64_t tokens = 0;
    {
      const std::lock_guard lock(server_.mutex_);
      server_.prefills_.push_back(*request);
      const auto found = server_.documents_.find(request->name());
      if (found == server_.documents_.end()) return DocumentNotFound(request->name());
      tokens = static_cast<int64_t>(found->second.size());
    }
    v1::PrefillDocumentResponse event;
    event.mutable_queued()->set_position(1);
    writer->Write(event);
    event.mutable_prompt_progress()->set_total(tokens);
    event.mutable_prompt_progress()->set_processed(tokens / 2);
    writer->Write(event);
    event.mutable_done()->set_tokens(tokens);
    event.mutable_done()->set_cached_tokens(1);
    event.mutable_done()->set_prefill(1.5);
    event.mutable_done()->mutable_cache_miss()->set_reason(v1::CacheMiss::REASON_OTHER_TOKENS);
    event.mutable_done()->mutable_cache_miss()->set_position(1);
    writer->Write(event);
    return Status::OK;
  }

 private:
  FakeServer& server_;
};

class FakeServer::Models final : public v1::ModelService::Service {
 public:
  explicit Models(FakeServer& server) : server_(server) {}

  Status ListModels(ServerContext* context, const v1::ListModelsRequest*,
                    v1::ListModelsResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    response->mutable_models()->Assign(server_.models_.begin(), server_.models_.end());
    return Status::OK;
  }

  // The first model, whatever the name; one without properties where none was set.
  Status GetModel(ServerContext* context, const v1::GetModelRequest*,
                  v1::GetModelResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    ++server_.model_requests_;
    response->mutable_model();
    if (!server_.models_.empty()) *response->mutable_model() = server_.models_.front();
    return Status::OK;
  }

 private:
  FakeServer& server_;
};

class FakeServer::Admin final : public v1::AdminService::Service {
 public:
  explicit Admin(FakeServer& server) : server_(server) {}

  Status GetServerInfo(ServerContext* context, const v1::GetServerInfoRequest*,
                       v1::GetServerInfoResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    *response = server_.info_;
    return Status::OK;
  }

  Status GetLoad(ServerContext* context, const v1::GetLoadRequest*,
                 v1::GetLoadResponse* response) override {
    if (Status status = server_.Enter(*context); !status.ok()) return status;
    const std::lock_guard lock(server_.mutex_);
    ++server_.load_requests_;
    *response = server_.load_;
    return server_.load_status_;
  }

 private:
  FakeServer& server_;
};

FakeServer::FakeServer(const std::shared_ptr<grpc::ServerCredentials>& credentials)
    : inference_service_(std::make_unique<Inference>(*this)),
      document_service_(std::make_unique<Documents>(*this)),
      model_service_(std::make_unique<Models>(*this)),
      admin_service_(std::make_unique<Admin>(*this)) {
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", credentials, &port_);
  builder.RegisterService(inference_service_.get());
  builder.RegisterService(document_service_.get());
  builder.RegisterService(model_service_.get());
  builder.RegisterService(admin_service_.get());
  server_ = builder.BuildAndStart();
}

FakeServer::~FakeServer() {
  server_->Shutdown(std::chrono::system_clock::now());
  server_->Wait();
}

std::string FakeServer::address() const { return absl::StrCat("127.0.0.1:", port_); }

Status FakeServer::Enter(const ServerContext& context) {
  const std::lock_guard lock(mutex_);
  const auto found = context.client_metadata().find("authorization");
  authorization_ = found == context.client_metadata().end()
                       ? ""
                       : std::string(found->second.data(), found->second.size());
  return failure_;
}

bool FakeServer::Wait(const bool& condition) {
  std::unique_lock lock(mutex_);
  return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return condition; });
}
bool FakeServer::WaitForGeneration() { return Wait(events_sent_); }
bool FakeServer::WaitForCancel() { return Wait(cancelled_); }

void FakeServer::SetReply(Reply reply) {
  const std::lock_guard lock(mutex_);
  reply_ = std::move(reply);
}
void FakeServer::SetReplies(std::function<Reply(const v1::GenerationSpec&)> replies) {
  const std::lock_guard lock(mutex_);
  replies_ = std::move(replies);
}
void FakeServer::SetManyReplies(ManyReplies replies) {
  const std::lock_guard lock(mutex_);
  many_replies_ = std::move(replies);
}
void FakeServer::SetPlan(v1::PlanResponse plan) {
  const std::lock_guard lock(mutex_);
  plan_ = std::move(plan);
}
std::vector<v1::PlanRequest> FakeServer::plan_requests() const {
  const std::lock_guard lock(mutex_);
  return plan_requests_;
}
void FakeServer::SetFailure(Status status) {
  const std::lock_guard lock(mutex_);
  failure_ = std::move(status);
}
void FakeServer::AddDocument(const std::string& name, const std::string& text,
                             const std::string& title) {
  const std::lock_guard lock(mutex_);
  documents_[name] = text;
  titles_[name] = title;
}
void FakeServer::SetModels(std::vector<v1::Model> models) {
  const std::lock_guard lock(mutex_);
  models_ = std::move(models);
}
void FakeServer::SetInfo(v1::GetServerInfoResponse info) {
  const std::lock_guard lock(mutex_);
  info_ = std::move(info);
}
void FakeServer::SetLoad(v1::GetLoadResponse load, Status status) {
  const std::lock_guard lock(mutex_);
  load_ = std::move(load);
  load_status_ = std::move(status);
}

int FakeServer::load_requests() const {
  const std::lock_guard lock(mutex_);
  return load_requests_;
}

int FakeServer::model_requests() const {
  const std::lock_guard lock(mutex_);
  return model_requests_;
}

std::vector<v1::GenerationSpec> FakeServer::specs() const {
  const std::lock_guard lock(mutex_);
  return specs_;
}
void FakeServer::SetAttentionMap(v1::MapAttentionResponse map) {
  const std::lock_guard lock(mutex_);
  attention_map_ = std::move(map);
}

std::vector<v1::MapAttentionRequest> FakeServer::map_requests() const {
  const std::lock_guard lock(mutex_);
  return map_requests_;
}

std::vector<v1::TokenizeRequest> FakeServer::tokenize_requests() const {
  const std::lock_guard lock(mutex_);
  return tokenize_requests_;
}
std::vector<v1::UploadDocumentRequest> FakeServer::uploads() const {
  const std::lock_guard lock(mutex_);
  return uploads_;
}
std::map<std::string, std::string> FakeServer::titles() const {
  const std::lock_guard lock(mutex_);
  return titles_;
}
std::vector<std::string> FakeServer::withdrawn() const {
  const std::lock_guard lock(mutex_);
  return withdrawn_;
}
std::vector<std::string> FakeServer::unpinned() const {
  const std::lock_guard lock(mutex_);
  return unpinned_;
}

void FakeServer::SetKept(const std::string& name, const v1::Document& kept) {
  const std::lock_guard lock(mutex_);
  kept_[name] = kept;
}

std::vector<v1::PrefillDocumentRequest> FakeServer::prefills() const {
  const std::lock_guard lock(mutex_);
  return prefills_;
}

std::map<std::string, std::string> FakeServer::documents() const {
  const std::lock_guard lock(mutex_);
  return documents_;
}
std::string FakeServer::authorization() const {
  const std::lock_guard lock(mutex_);
  return authorization_;
}

v1::StreamGenerateResponse QueuedEvent(int position) {
  v1::StreamGenerateResponse event;
  event.mutable_queued()->set_position(position);
  return event;
}

v1::StreamGenerateResponse ProgressEvent(int64_t processed, int64_t total) {
  v1::StreamGenerateResponse event;
  event.mutable_prompt_progress()->set_total(total);
  event.mutable_prompt_progress()->set_cached(2);
  event.mutable_prompt_progress()->set_processed(processed);
  event.mutable_prompt_progress()->set_elapsed(0.5);
  event.mutable_prompt_progress()->set_eta(0.25);
  return event;
}

v1::StreamGenerateResponse DeltaEvent(const std::string& text, const std::vector<int32_t>& ids) {
  v1::StreamGenerateResponse event;
  event.mutable_delta()->set_text(text);
  event.mutable_delta()->mutable_token_ids()->Assign(ids.begin(), ids.end());
  return event;
}

v1::StreamGenerateResponse CompletionEvent(v1::FinishReason reason, int64_t tokens) {
  v1::StreamGenerateResponse event;
  v1::Completion& completion = *event.mutable_completion();
  completion.set_finish_reason(reason);
  completion.mutable_usage()->set_prompt_tokens(8);
  completion.mutable_usage()->set_cached_tokens(2);
  completion.mutable_usage()->set_completion_tokens(tokens);
  completion.mutable_timings()->set_queue(0.5);
  completion.mutable_timings()->set_prefill(1);
  completion.mutable_timings()->set_time_to_first_token(1.5);
  completion.mutable_timings()->set_decode(2);
  completion.mutable_timings()->set_total(3.5);
  completion.mutable_timings()->set_longest_gap(0.25);
  completion.mutable_timings()->set_ring_wait(0.5);
  completion.mutable_timings()->set_preemptions(2);
  completion.mutable_timings()->set_host(0.125);
  completion.mutable_timings()->set_stalls(1);
  completion.mutable_attention()->set_policy("dense");
  completion.mutable_attention()->set_density(1);
  completion.mutable_attention()->set_ring_degree(4);
  completion.mutable_attention()->set_steps_pass_kv(3);
  completion.mutable_attention()->set_steps_pass_q(5);
  return event;
}

FakeServer::Reply StoryReply() {
  return {.events = {QueuedEvent(1), ProgressEvent(4, 8), ProgressEvent(8, 8),
                     DeltaEvent("Once upon", {10, 11}), DeltaEvent(" a time", {12, 13, 14}),
                     CompletionEvent(v1::FINISH_REASON_STOP, 5)}};
}

}  // namespace annulus::testing
