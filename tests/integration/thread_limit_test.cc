// annulusd under a limit of threads: a control group that allows no more than it has.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "server/process/thread_reserve.h"
#include "tests/integration/daemon.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

// A control group that limits threads; removed at the end, when it must be empty.
class ThreadGroup {
 public:
  // Nothing if this process may make none.
  static std::optional<ThreadGroup> Make() {
    for (const char* root : {"/sys/fs/cgroup/pids", "/sys/fs/cgroup"}) {
      const std::string path = absl::StrCat(root, "/annulus-test-", getpid());
      std::error_code error;
      if (!std::filesystem::create_directory(path, error)) continue;
      if (std::filesystem::exists(path + "/pids.max", error)) return ThreadGroup(path);
      std::filesystem::remove(path, error);
    }
    return std::nullopt;
  }
  explicit ThreadGroup(std::string path) : path_(std::move(path)) {}
  ThreadGroup(ThreadGroup&& other) : path_(std::exchange(other.path_, "")) {}
  ~ThreadGroup() {
    std::error_code error;
    if (!path_.empty()) std::filesystem::remove(path_, error);
  }

  bool Write(const std::string& file, const std::string& value) const {
    std::ofstream stream(absl::StrCat(path_, "/", file));
    stream << value;
    stream.flush();
    return stream.good();
  }

  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Calls that ended well, of `count` at a time on connections of their own.
int CallAtOnce(const std::string& address, int count) {
  std::vector<std::thread> callers;
  std::atomic<int> good{0};
  for (int i = 0; i < count; ++i) {
    callers.emplace_back([&] {
      grpc::ChannelArguments arguments;
      arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
      const auto stub = v1::InferenceService::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), arguments));
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + seconds(60));
      v1::GenerateRequest request;
      request.mutable_spec()->set_text("Entry one says that");
      request.mutable_spec()->mutable_sampling()->set_max_tokens(1);
      v1::GenerateResponse response;
      if (stub->Generate(&context, request, &response).ok()) ++good;
    });
  }
  for (std::thread& caller : callers) caller.join();
  return good;
}

TEST(ThreadLimitTest, CallsEndAlsoIfNoFurtherThreadCanBeStarted) {
  const std::optional<ThreadGroup> group = ThreadGroup::Make();
  if (!group.has_value()) GTEST_SKIP() << "this process may not make a control group";
  Daemon daemon({"--kv-memory", "64MiB"});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  const size_t threads = daemon.Threads();
  EXPECT_LE(threads, ThreadsNeeded(0, 1)) << "ThreadsNeeded promises too little";
  ASSERT_TRUE(group->Write("cgroup.procs", absl::StrCat(daemon.pid())));
  ASSERT_TRUE(group->Write("pids.max", absl::StrCat(threads)));
  EXPECT_EQ(CallAtOnce(daemon.address(), 64), 64);
  EXPECT_LE(daemon.Threads(), threads);
  daemon.Signal(SIGTERM);
  EXPECT_EQ(daemon.WaitForExit(seconds(20)), 0) << daemon.output();
}

TEST(ThreadLimitTest, ADaemonThatMayHaveTooFewRefusesToStart) {
  const std::optional<ThreadGroup> group = ThreadGroup::Make();
  if (!group.has_value()) GTEST_SKIP() << "this process may not make a control group";
  ASSERT_TRUE(group->Write("pids.max", "40"));
  // The shell enters the group, then becomes the daemon.
  const std::string command = absl::StrCat("echo $$ >", group->path(), "/cgroup.procs && exec ",
                                           (testing::BuildFolder() / "annulusd").string());
  for (const char* flags : {" --kv-memory 64MiB --listen 127.0.0.1:0 --metrics off", " --doctor"}) {
    Program program({"sh", "-c", command + flags});
    EXPECT_EQ(program.WaitForExit(seconds(30)), 1) << program.output();
    EXPECT_THAT(program.output(), HasSubstr("the system lets this process start"));
    EXPECT_THAT(program.output(), HasSubstr("pids.max"));
  }
}

}  // namespace
}  // namespace annulus::server
