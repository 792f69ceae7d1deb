#include "tests/server/witness.h"

#include <algorithm>

#include "kernels/base/sanitizers.h"
#include "tests/support/processor_time.h"

namespace annulus::server {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

namespace {

// By the processor, since a machine that does other things too makes every gap longer by the clock.
// Under sanitizers ten thousand requests at once take all processors for seconds.
constexpr double kMostSeconds = kThreadSanitizer ? 30 : kSanitized ? 8 : 2;
// By the clock: who waits for something takes no processor.
constexpr milliseconds kLongestGap{kThreadSanitizer ? 120'000 : 30'000};

}  // namespace

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
}

void WitnessedTest::SetUp() {
  ASSERT_TRUE(Eventually([&] { return events_ > 0; }));
}

WitnessedTest::~WitnessedTest() {
  const int seen = events_;
  EXPECT_TRUE(Eventually([&] { return events_ > seen + 5; })) << "the witness's stream stopped";
  context_.TryCancel();
  thread_.join();
  EXPECT_LT(longest_gap_.count(), kLongestGap.count()) << "the witness's stream stood still";
  EXPECT_LT(most_seconds_, kMostSeconds) << "the witness's stream waited for other work";
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
  double last_seconds = testing::ProcessSeconds();
  while (reader->Read(&response)) {
    const auto now = steady_clock::now();
    const double seconds = testing::ProcessSeconds();
    longest_gap_ = std::max(longest_gap_, std::chrono::duration_cast<milliseconds>(now - last));
    most_seconds_ = std::max(most_seconds_, seconds - last_seconds);
    last = now;
    last_seconds = seconds;
    ++events_;
  }
}

}  // namespace annulus::server
