// annulusd as a process, with the real engine and the builtin recall model.

#include "tests/integration/daemon.h"

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <set>
#include <string>
#include <thread>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "annulus/v1/admin.grpc.pb.h"
#include "annulus/v1/document.grpc.pb.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "annulus/v1/model.grpc.pb.h"
#include "bench/demo/document.h"
#include "server/config/load_config.h"
#include "server/config/options.h"
#include "tests/integration/no_device.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

// Hides a machine's GPUs from the CUDA runtime.
const std::vector<std::string> kNoGpu = {"CUDA_VISIBLE_DEVICES="};

// Records like the demonstration's: each begins with words of its own.
std::string Records(int count) {
  std::string text;
  for (int i = 0; i < count; ++i) {
    absl::StrAppend(&text, "Entry ", 100'000 + 7919 * i, " says that box ", i * i,
                    " holds item number ", 31 * i + 5, ".\n");
  }
  return text;
}

class DaemonTest : public ::testing::Test {
 protected:
  void Start(std::vector<std::string> flags = {}) {
    flags.insert(flags.begin(), {"--ranks", "3", "--kv-memory", "128MiB"});
    daemon_ = std::make_unique<Daemon>(flags);
    ASSERT_TRUE(daemon_->WaitUntilReady()) << daemon_->output();
    channel_ = grpc::CreateChannel(daemon_->address(), grpc::InsecureChannelCredentials());
    inference_ = v1::InferenceService::NewStub(channel_);
    admin_ = v1::AdminService::NewStub(channel_);
  }

  grpc::Status Upload(const std::string& name, const std::string& text) {
    const auto stub = v1::DocumentService::NewStub(channel_);
    grpc::ClientContext context;
    v1::UploadDocumentResponse response;
    const auto writer = stub->UploadDocument(&context, &response);
    v1::UploadDocumentRequest request;
    request.mutable_header()->set_name(name);
    writer->Write(request);
    for (size_t offset = 0; offset < text.size(); offset += 4096) {
      request.mutable_chunk()->set_offset(static_cast<int64_t>(offset));
      request.mutable_chunk()->set_data(text.substr(offset, 4096));
      writer->Write(request);
    }
    writer->WritesDone();
    return writer->Finish();
  }

  static v1::StreamGenerateRequest Ask(const std::string& document, const std::string& cue,
                                       int max_tokens) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text(cue);
    request.mutable_spec()->add_documents(document);
    request.mutable_spec()->mutable_sampling()->set_temperature(0);
    request.mutable_spec()->mutable_sampling()->set_max_tokens(max_tokens);
    return request;
  }

  v1::GetLoadResponse Load() {
    grpc::ClientContext context;
    v1::GetLoadResponse load;
    EXPECT_TRUE(admin_->GetLoad(&context, {}, &load).ok());
    return load;
  }

  std::unique_ptr<Daemon> daemon_;
  std::shared_ptr<grpc::Channel> channel_;
  std::unique_ptr<v1::InferenceService::Stub> inference_;
  std::unique_ptr<v1::AdminService::Stub> admin_;
};

TEST_F(DaemonTest, AnswersFromADocumentAndStopsOnSigterm) {
  Start();
  const bench::DemoDocument document = bench::MakeDemoDocument({.bytes = 20'000}).value();
  ASSERT_TRUE(Upload("records", document.text).ok());
  for (const bench::DemoFact& fact : document.facts) {
    auto request = Ask("records", fact.cue, 40);
    request.mutable_spec()->mutable_sampling()->add_stop("\n");
    const StreamResult result = ReadStream(*inference_, request);
    ASSERT_TRUE(result.status.ok()) << result.status.error_message();
    EXPECT_EQ(result.text, fact.answer);
    EXPECT_EQ(result.events.back().completion().matched_stop(), "\n");
    EXPECT_EQ(result.events.back().completion().usage().prompt_tokens(),
              static_cast<int64_t>(document.text.size() + fact.cue.size()));
  }
  EXPECT_EQ(Load().ranks_size(), 3);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 0) << daemon_->output();
  EXPECT_THAT(daemon_->output(), HasSubstr(" drained"));
  EXPECT_EQ(daemon_->output().find(document.facts[0].cue), std::string::npos)
      << "a prompt is in the log";
}

// Ranks, their workers and all other threads sleep when there is nothing to do.
TEST_F(DaemonTest, IdleRanksUseNoProcessor) {
  Start({"--threads", "6"});
  const bench::DemoDocument document = bench::MakeDemoDocument({.bytes = 20'000}).value();
  ASSERT_TRUE(Upload("records", document.text).ok());
  ASSERT_TRUE(ReadStream(*inference_, Ask("records", document.facts[0].cue, 5)).status.ok());
  const double before = daemon_->ProcessorSeconds();
  EXPECT_GT(before, 0);
  std::this_thread::sleep_for(seconds(2));
  EXPECT_LE(daemon_->ProcessorSeconds() - before, 0.1);
}

TEST_F(DaemonTest, AdmittedWorkFinishesAfterSigterm) {
  Start();
  ASSERT_TRUE(Upload("records", Records(50)).ok());
  grpc::ClientContext context;
  auto request = Ask("records", "Entry 147", 2000);
  request.mutable_spec()->mutable_sampling()->set_ignore_eos(true);
  const auto reader = inference_->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  while (reader->Read(&response) && !response.has_delta()) {
  }
  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(daemon_->WaitForOutput("draining", seconds(10)));
  const StreamResult refused = ReadStream(*inference_, request);
  EXPECT_EQ(Details(refused.status).reason, "DRAINING") << refused.status.error_message();
  while (reader->Read(&response)) {
  }
  EXPECT_TRUE(reader->Finish().ok());
  EXPECT_EQ(response.completion().usage().completion_tokens(), 2000);
  EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 0);
}

TEST_F(DaemonTest, ASecondSignalLeavesAtOnce) {
  Start();
  ASSERT_TRUE(Upload("records", Records(50)).ok());
  grpc::ClientContext context;
  auto request = Ask("records", "Entry 147", 1'000'000 / 10);
  request.mutable_spec()->mutable_sampling()->set_ignore_eos(true);
  const auto reader = inference_->StreamGenerate(&context, request);
  v1::StreamGenerateResponse response;
  ASSERT_TRUE(reader->Read(&response));
  daemon_->Signal(SIGTERM);
  ASSERT_TRUE(daemon_->WaitForOutput("draining", seconds(10)));
  daemon_->Signal(SIGINT);
  EXPECT_EQ(daemon_->WaitForExit(seconds(10)), 128 + SIGINT);  // its grace is three times as long
  while (reader->Read(&response)) {
  }
  EXPECT_FALSE(reader->Finish().ok());
}

TEST_F(DaemonTest, CancelledWorkGivesItsPagesBack) {
  Start();
  ASSERT_TRUE(Upload("records", Records(800)).ok());
  for (int i = 0; i < 10; ++i) {
    grpc::ClientContext context;
    if (i % 2 == 1) context.set_deadline(std::chrono::system_clock::now() + milliseconds(5 * i));
    const auto reader = inference_->StreamGenerate(&context, Ask("records", "Entry 147", 1000));
    v1::StreamGenerateResponse response;
    for (int reads = 0; reads < i % 4; ++reads) reader->Read(&response);
    if (i % 2 == 0) context.TryCancel();
    EXPECT_FALSE(reader->Finish().ok());
  }
  EXPECT_TRUE(Eventually([&] {
    const v1::GetLoadResponse load = Load();
    return load.running() == 0 && load.waiting() == 0;
  }));
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 0) << daemon_->output();
}

TEST_F(DaemonTest, BeyondMemoryTellsBothNumbers) {
  Start();
  const StreamResult result = ReadStream(*inference_, [] {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text("x");
    request.mutable_spec()->mutable_sampling()->set_max_tokens(10'000'000);
    return request;
  }());
  EXPECT_EQ(result.status.error_code(), grpc::StatusCode::OUT_OF_RANGE);
  EXPECT_EQ(Details(result.status).reason, "ANSWER_TOO_LARGE");
  EXPECT_THAT(result.status.error_message(), HasSubstr("bytes are available"));
}

TEST_F(DaemonTest, CompressedBombsTakeNoMemory) {
  Start();
  const size_t before = daemon_->PeakMemory();
  for (const auto algorithm : {GRPC_COMPRESS_GZIP, GRPC_COMPRESS_DEFLATE}) {
    grpc::ClientContext context;
    context.set_compression_algorithm(algorithm);
    v1::StreamGenerateRequest bomb;
    bomb.mutable_spec()->set_text(std::string(size_t{128} << 20, 'x'));
    EXPECT_FALSE(ReadStream(*inference_, bomb, &context).status.ok());
  }
  EXPECT_LT(daemon_->PeakMemory(), before + (size_t{64} << 20));
}

// Its standard error is a pipe that takes 64 KiB and that nobody reads from now on.
TEST_F(DaemonTest, ALogThatNobodyReadsHoldsUpNothing) {
  Start({"--log-level", "debug"});
  const auto models = v1::ModelService::NewStub(channel_);
  for (int i = 0; i < 3000; ++i) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + seconds(30));
    v1::ListModelsResponse response;
    ASSERT_TRUE(models->ListModels(&context, {}, &response).ok()) << i;
  }
  for (int i = 0; i < 300; ++i) {
    v1::StreamGenerateRequest request;
    request.mutable_spec()->set_text("a");
    request.mutable_spec()->mutable_sampling()->set_max_tokens(1);
    ASSERT_TRUE(ReadStream(*inference_, request).status.ok()) << i;
  }
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExitUnread(seconds(20)), 0);
}

TEST_F(DaemonTest, SignalsThatAskForNothingChangeNothing) {
  Start();
  for (const int signal : {SIGUSR1, SIGUSR2}) {
    daemon_->Signal(signal);
    EXPECT_TRUE(daemon_->WaitForOutput(absl::StrCat("signal_ignored number=", signal), seconds(10)))
        << daemon_->output();
  }
  EXPECT_EQ(Load().running(), 0);
  daemon_->Signal(SIGTERM);
  EXPECT_EQ(daemon_->WaitForExit(seconds(20)), 0) << daemon_->output();
}

TEST_F(DaemonTest, TheLogNamesACallByItsIdTenantPeerAndTrace) {
  Start();
  grpc::ClientContext context;
  context.AddMetadata("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
  v1::StreamGenerateRequest request;
  request.mutable_spec()->set_text("a");
  request.mutable_spec()->set_request_id("mine");
  request.mutable_spec()->mutable_sampling()->set_max_tokens(1);
  ASSERT_TRUE(ReadStream(*inference_, request, &context).status.ok());
  EXPECT_TRUE(daemon_->WaitForOutput("trace=4bf92f3577b34da6a3ce929d0e0e4736", seconds(10)))
      << daemon_->output();
  for (const char* part :
       {" request_done call=StreamGenerate id=mine tenant=default peer=ipv4:127.",
        " finish_reason=length ", " completion_tokens=1 ", " cached_tokens=0 "}) {
    EXPECT_THAT(daemon_->output(), HasSubstr(part));
  }
}

// Until a file of tokens is asked for, there is nothing to read again, and that does no harm.
TEST_F(DaemonTest, HangUpReadsFilesAgain) {
  Start();
  daemon_->Signal(SIGHUP);
  EXPECT_TRUE(daemon_->WaitForOutput("info reloaded", seconds(10))) << daemon_->output();
  EXPECT_EQ(Load().running(), 0);
}

TEST(DaemonListenTest, WarnsWhereOthersCanReachIt) {
  Daemon daemon({"--listen", "0.0.0.0:0", "--metrics", "0.0.0.0:0", "--insecure"});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  EXPECT_THAT(daemon.output(), HasSubstr("warning open_to_others address=0.0.0.0:0"));
  EXPECT_THAT(daemon.output(), HasSubstr("--auth-token-file"));
  Daemon local;
  ASSERT_TRUE(local.WaitUntilReady()) << local.output();
  EXPECT_THAT(local.output(), ::testing::Not(HasSubstr("open_to_others")));
}

// Where the device that was asked for cannot be had, the daemon stays. A GPU of this machine is
// hidden; emulated_daemon_test has the faults of one.
TEST(DaemonDeviceTest, WithoutItsDeviceTheDaemonStaysAndSaysWhy) {
  Daemon daemon({"--device", "cuda", "--ranks", "2"}, kNoGpu);
  ASSERT_TRUE(daemon.WaitUntilWithoutDevice()) << daemon.output();
  ExpectStaysWithoutDevice(daemon, "device: cuda was asked for", 2);
}

// Only where any device will do.
TEST(DaemonDeviceTest, WithoutAGpuTheProcessorServesOnlyWhereItMay) {
  Daemon daemon({"--device", "auto"}, kNoGpu);
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  EXPECT_EQ(daemon.output().find("not looked for"), std::string::npos) << daemon.output();
  EXPECT_TRUE(Eventually([&] {
    return ScrapeSamples(daemon.metrics_address())["annulus_server_state{state=\"serving\"}"] == 1;
  }));
}

// Whoever exports a variable for the command line may start a daemon in the same shell.
TEST(DaemonVariablesTest, NoVariableOfTheCommandLineIsOneOfTheDaemon) {
  Program page({testing::BuildFolder() / "annulus", "help", "--man"});
  ASSERT_EQ(page.WaitForExit(seconds(30)), 0) << page.output();
  std::set<std::string> names;
  for (const absl::string_view word :
       absl::StrSplit(page.output(), absl::ByAnyChar(" ,.:;\"\n\t\\"))) {
    if (absl::StartsWith(word, "ANNULUS_")) names.emplace(word);
  }
  EXPECT_THAT(names, ::testing::IsSupersetOf({"ANNULUS_SERVER", "ANNULUS_PROFILE"}));
  for (const Option& option : Options()) EXPECT_EQ(names.count(VariableName(option)), 0u);
  for (const std::string& name : names) {
    EXPECT_TRUE(LoadConfig({}, {{name, "not a value of any option"}}).ok()) << name;
  }
}

TEST(DaemonExitTest, MistakesAreToldInOneLine) {
  const auto expect = [](std::vector<std::string> flags, int code, const std::string& text,
                         const std::vector<std::string>& variables = {}) {
    Daemon daemon(std::move(flags), variables);
    EXPECT_EQ(daemon.WaitForExit(seconds(30)), code) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr(text));
  };
  expect({"--rnaks", "4"}, 2, "--ranks");
  expect({"--check", "--device", "cuda"}, 1, "device: cuda was asked for", kNoGpu);
  expect({"--ring-profile", "/"}, 2, "is a folder");
  expect({"--listen", "0.0.0.0:0"}, 2, "--insecure");
  expect({"--model", "/nonexistent"}, 1, "/nonexistent");
  expect({"--check", "--model", "/nonexistent"}, 1, "/nonexistent");
  expect({"--check"}, 0, "builtin:recall");
  expect({"--doctor", "--device", "cpu", "--kv-memory", "64MiB"}, 0, "listen         good");
  expect({"--plan", "--memory", "1GiB", "--device", "cpu"}, 0, "longest context");
  expect({"--plan", "--device", "abacus"}, 2, "h100-80gb");
  expect({"--help"}, 0, "--kv-memory SIZE");
  expect({"--version"}, 0, "annulusd 0.1.0");
  Daemon first;
  ASSERT_TRUE(first.WaitUntilReady());
  expect({"--listen", first.address()}, 1, "cannot listen on " + first.address());
  expect({"--metrics", first.metrics_address()}, 1,
         "cannot serve metrics on " + first.metrics_address());
}

}  // namespace
}  // namespace annulus::server
