#include "tests/integration/stress_client.h"

#include <grpcpp/create_channel.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/server/http2_peer.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Code = grpc::StatusCode;

constexpr char kStreamGenerate[] = "/annulus.v1.InferenceService/StreamGenerate";
constexpr seconds kGrace{1};

}  // namespace

grpc::Status UploadText(v1::DocumentService::Stub& stub, grpc::ClientContext& context,
                        const std::string& name, const std::string& text, size_t chunk,
                        size_t stop_after) {
  v1::UploadDocumentResponse response;
  const auto writer = stub.UploadDocument(&context, &response);
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name(name);
  request.mutable_header()->set_total_bytes(static_cast<int64_t>(text.size()));
  bool going = writer->Write(request);
  for (size_t offset = 0; going && offset < std::min(text.size(), stop_after); offset += chunk) {
    request.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
    request.mutable_chunk()->set_data(text.substr(offset, chunk));
    going = writer->Write(request);
  }
  if (stop_after < text.size()) context.TryCancel();
  writer->WritesDone();
  return writer->Finish();
}

StressClient::StressClient(const StressWorld& world, int number, uint64_t seed)
    : world_(world), number_(number), random_(seed + static_cast<uint64_t>(number)) {
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  channel_ =
      grpc::CreateCustomChannel(world.address, grpc::InsecureChannelCredentials(), arguments);
  inference_ = v1::InferenceService::NewStub(channel_);
  documents_ = v1::DocumentService::NewStub(channel_);
}

void StressClient::Run(int requests) {
  using Kind = void (StressClient::*)();
  constexpr Kind kKinds[] = {
      &StressClient::Ask,         &StressClient::Ask,      &StressClient::Ask,
      &StressClient::Complete,    &StressClient::Complete, &StressClient::BreakOff,
      &StressClient::BreakOff,    &StressClient::RunOut,   &StressClient::RunOut,
      &StressClient::ReadSlowly,  &StressClient::Vanish,   &StressClient::Store,
      &StressClient::BreakUpload, &StressClient::Misspell};
  for (int i = 0; i < requests; ++i) (this->*kKinds[Below(std::size(kKinds))])();
}

void StressClient::Ask() {
  const bench::DemoFact& fact = world_.document.facts[Below(world_.document.facts.size())];
  v1::StreamGenerateRequest request;
  v1::GenerationSpec& spec = *request.mutable_spec();
  spec.add_documents(world_.name);
  const size_t follower = Below(world_.followers.size() + 1);
  if (follower > 0) spec.add_documents(world_.followers[follower - 1]);
  spec.set_text(fact.cue);
  spec.mutable_sampling()->set_temperature(0);
  spec.mutable_sampling()->set_max_tokens(static_cast<int32_t>(fact.answer.size()) + 8);
  spec.mutable_sampling()->add_stop(std::string(1, '\n'));
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  const StreamResult result = ReadStream(*inference_, request, &context);
  Judge("ask", result.status, deadline, {Code::OK});
  if (result.status.ok() && result.text != fact.answer) {
    lost_.push_back(absl::StrCat("asked for \"", fact.answer, "\", got \"", result.text, "\""));
  }
}

void StressClient::Complete() {
  v1::GenerateRequest request;
  request.mutable_spec()->set_text(Letters(300));
  request.mutable_spec()->mutable_sampling()->set_max_tokens(static_cast<int32_t>(1 + Below(32)));
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  v1::GenerateResponse response;
  Judge("complete", inference_->Generate(&context, request, &response), deadline, {Code::OK});
}

void StressClient::BreakOff() {
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  const auto reader = inference_->StreamGenerate(&context, LongRequest(2000));
  v1::StreamGenerateResponse response;
  for (size_t reads = Below(40); reads > 0 && reader->Read(&response); --reads) {
  }
  if (Below(2) == 0) Pause(20);
  context.TryCancel();
  Judge("cancel", reader->Finish(), deadline, {Code::CANCELLED});
}

void StressClient::RunOut() {
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, milliseconds(Below(80)));
  Judge("deadline", ReadStream(*inference_, LongRequest(2000), &context).status, deadline,
        {Code::DEADLINE_EXCEEDED, Code::OK});
}

// The daemon of the run gives readers half a second.
void StressClient::ReadSlowly() {
  v1::StreamGenerateRequest request = LongRequest(world_.long_answer);
  request.mutable_spec()->mutable_sampling()->set_logprobs(20);
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  const auto reader = inference_->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  if (Below(2) == 0) Pause(800);
  while (reader->Read(&response)) {
    if (Below(50) == 0) Pause(10);
  }
  // A daemon that is done waiting says so, or tears the call down.
  Judge("slow", reader->Finish(), deadline, {Code::OK, Code::RESOURCE_EXHAUSTED, Code::CANCELLED});
}

void StressClient::Vanish() {
  Http2Peer peer(world_.address, static_cast<uint32_t>(Below(2) * 65'535));
  const std::string frames = CallFrames(1, kStreamGenerate, LongRequest(500).SerializeAsString());
  const bool whole = Below(2) == 0;
  peer.Send(whole ? frames : frames.substr(0, Below(frames.size())));
  Pause(20);
  if (Below(2) == 0) peer.Reset();
  ++endings_["vanish"];
}

void StressClient::Store() {
  const std::string name = absl::StrCat("own-", number_);
  const std::string text = Letters(60'000);
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  Judge("upload", UploadText(*documents_, context, name, text, 1 + Below(9000)), deadline,
        {Code::OK});
  grpc::ClientContext delete_context;
  const auto delete_deadline = SetDeadline(delete_context, world_.limit);
  v1::DeleteDocumentRequest request;
  request.set_name(name);
  v1::DeleteDocumentResponse response;
  Judge("delete", documents_->DeleteDocument(&delete_context, request, &response), delete_deadline,
        {Code::OK});
}

void StressClient::BreakUpload() {
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  const size_t size = 1000 + Below(60'000);
  Judge("broken upload",
        UploadText(*documents_, context, absl::StrCat("broken-", number_), std::string(size, 'x'),
                   1000, Below(size)),
        deadline, {Code::CANCELLED});
}

void StressClient::Misspell() {
  v1::GenerateRequest request;
  request.mutable_spec()->set_text("x");
  Code expected = Code::INVALID_ARGUMENT;
  if (Below(2) == 0) {
    request.mutable_spec()->mutable_sampling()->set_temperature(-1);
  } else {
    request.mutable_spec()->add_documents("no-such-document");
    expected = Code::NOT_FOUND;
  }
  grpc::ClientContext context;
  const auto deadline = SetDeadline(context, world_.limit);
  v1::GenerateResponse response;
  Judge("mistake", inference_->Generate(&context, request, &response), deadline, {expected});
}

std::string StressClient::Letters(size_t most) {
  const char letter = static_cast<char>('a' + Below(26));
  return std::string(1 + Below(most), letter);
}

size_t StressClient::Below(size_t bound) {
  return std::uniform_int_distribution<size_t>(0, bound - 1)(random_);
}

void StressClient::Pause(size_t most_milliseconds) {
  std::this_thread::sleep_for(milliseconds(Below(most_milliseconds + 1)));
}

v1::StreamGenerateRequest StressClient::LongRequest(int max_tokens) {
  v1::StreamGenerateRequest request;
  request.mutable_spec()->set_text(
      world_.document.text.substr(0, 1 + Below(world_.document.text.size() / 5)));
  request.mutable_spec()->mutable_sampling()->set_max_tokens(max_tokens);
  request.mutable_spec()->mutable_sampling()->set_ignore_eos(true);
  return request;
}

StressClient::Clock::time_point StressClient::SetDeadline(grpc::ClientContext& context,
                                                          milliseconds limit) {
  context.set_deadline(std::chrono::system_clock::now() + limit);
  return Clock::now() + limit;
}

void StressClient::Judge(const std::string& kind, const grpc::Status& status,
                         Clock::time_point deadline, const std::vector<Code>& allowed) {
  ++endings_[absl::StrCat(kind, " ", status.error_code())];
  if (Clock::now() > deadline + kGrace) {
    lost_.push_back(absl::StrCat(kind, " ended later than one second after its deadline"));
  }
  if (std::find(allowed.begin(), allowed.end(), status.error_code()) == allowed.end()) {
    lost_.push_back(
        absl::StrCat(kind, " ended with code ", status.error_code(), ": ", status.error_message()));
  }
}

}  // namespace annulus::server
