#include "tests/integration/ring_answer.h"

#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "annulus/v1/inference.grpc.pb.h"

namespace annulus::server {
namespace {

using std::chrono::steady_clock;

void SetDeadline(grpc::ClientContext& context) {
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
}

}  // namespace

void AskForAllOfAnswer(v1::GenerationSpec& spec) {
  spec.set_digest(true);
  spec.mutable_sampling()->set_logprobs(0);
}

std::shared_ptr<grpc::Channel> PlainChannel(const std::string& address) {
  return grpc::CreateChannel(address, grpc::InsecureChannelCredentials());
}

Answer AskFor(const std::shared_ptr<grpc::Channel>& channel, const v1::GenerationSpec& spec) {
  v1::GenerateRequest request;
  *request.mutable_spec() = spec;
  grpc::ClientContext context;
  SetDeadline(context);
  v1::GenerateResponse response;
  const auto stub = v1::InferenceService::NewStub(channel);
  const grpc::Status status = stub->Generate(&context, request, &response);
  EXPECT_TRUE(status.ok()) << status.error_message();
  Answer answer;
  answer.ids.assign(response.token_ids().begin(), response.token_ids().end());
  for (const v1::TokenLogprob& token : response.logprobs()) {
    answer.logprobs.push_back(token.logprob());
  }
  answer.digest = response.completion().origin().digest();
  return answer;
}

double StreamedAnswer::LongestPause(steady_clock::time_point since) const {
  double longest = 0;
  steady_clock::time_point last = since;
  for (const steady_clock::time_point time : times) {
    if (time <= since) continue;
    longest = std::max(longest, std::chrono::duration<double>(time - last).count());
    last = time;
  }
  return longest;
}

StreamedAnswer StreamAnswer(const std::shared_ptr<grpc::Channel>& channel,
                            const v1::GenerationSpec& spec,
                            const std::function<void(size_t)>& on_tokens) {
  v1::StreamGenerateRequest request;
  *request.mutable_spec() = spec;
  grpc::ClientContext context;
  SetDeadline(context);
  const auto stub = v1::InferenceService::NewStub(channel);
  const auto reader = stub->StreamGenerate(&context, request);
  StreamedAnswer followed;
  Answer& answer = followed.answer;
  v1::StreamGenerateResponse event;
  while (reader->Read(&event)) {
    for (const int32_t id : event.delta().token_ids()) answer.ids.push_back(id);
    for (const v1::TokenLogprob& token : event.delta().logprobs()) {
      answer.logprobs.push_back(token.logprob());
    }
    if (event.has_completion()) {
      answer.digest = event.completion().origin().digest();
      followed.recovered = event.completion().timings().recovered();
      followed.repaired = event.completion().timings().repaired();
    }
    if (event.delta().token_ids().empty()) continue;
    followed.times.push_back(steady_clock::now());
    on_tokens(answer.ids.size());
  }
  followed.status = reader->Finish();
  return followed;
}

}  // namespace annulus::server
