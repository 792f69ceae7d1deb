#include "tests/server/witness.h"

#include <algorithm>

#include "kernels/base/sanitizers.h"

namespace annulus::server {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// Under sanitizers ten thousand requests at once take all processors for seconds.
constexpr milliseconds kLongestGap{kThreadSanitizer ? 30'000 : kSanitized ? 5'000 : 2'000};

WitnessedTest::WitnessedTest(const std::vector<std::string>& flags) : server_(flags) {
  server_.engine().set_scripter([](const RequestSpec& spec) {
    FakeScript script;
    script.deltas = {"x"};
    script.endless = spec.prompt.back() == '~';
    script.interval = milliseconds(script.endless ? 2 : 0);
    return script;
  });
  server_.Serve();
  stub_ = server_.inference();
  thread_ = std::thread([this] { Witness(); });
  EXPECT_TRUE(Eventually([&] { return events_ > 0; }));
}

WitnessedTest::~WitnessedTest() {
  const int seen = events_;
  EXPECT_TRUE(Eventually([&] { return events_ > seen + 5; })) << "the witness's stream stopped";
  context_.TryCancel();
  thread_.join();
  EXPECT_LT(longest_gap_.count(), kLongestGap.count()) << "the witness's stream stood still";
  EXPECT_TRUE(server_.engine().WaitUntilIdle(milliseconds(5000)));
}

grpc::Status WitnessedTest::Generate(const v1::GenerateRequest& request) {
  grpc::ClientContext context;
  v1::GenerateResponse response;
  return stub_->Generate(&context, request, &response);
}

void WitnessedTest::Witness() {
  const auto stub = v1::InferenceService::NewStub(server_.NewChannel());
  const auto reader = stub->StreamGenerate(&context_, TextStreamRequest("~"));
  v1::StreamGenerateResponse response;
  auto last = steady_clock::now();
  while (reader->Read(&response)) {
    const auto now = steady_clock::now();
    longest_gap_ = std::max(longest_gap_, std::chrono::duration_cast<milliseconds>(now - last));
    last = now;
    ++events_;
  }
}

}  // namespace annulus::server
