// annulusd as a process on an emulated GPU (annulusd_emulated) that is missing, too old or fails
// while the model is loaded.

#include <gmock/gmock.h>
#include <grpcpp/create_channel.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "annulus/v1/inference.grpc.pb.h"
#include "tests/integration/daemon.h"
#include "tests/integration/no_device.h"
#include "tests/server/service_probes.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

using std::chrono::seconds;
using ::testing::HasSubstr;

class EmulatedDaemon : public Daemon {
 public:
  EmulatedDaemon(const std::string& device, std::vector<std::string> flags)
      : Daemon(std::move(flags), {"EMULATED_DEVICE=" + device},
               testing::BuildFolder() / "tests/annulusd_emulated") {}
};

struct Fault {
  const char* name;
  const char* device;
  const char* says;  // what is wrong, or what to do
};

class DeviceFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(DeviceFaultTest, TheDaemonStaysAndSaysWhy) {
  // Short where that is waited for; elsewhere a busy machine must not be taken for a device that
  // hangs.
  const char* const timeout = GetParam().device == std::string("hangs=1") ? "200ms" : "20s";
  EmulatedDaemon daemon(GetParam().device,
                        {"--device", "cuda", "--ranks", "3", "--exchange-timeout", timeout});
  ASSERT_TRUE(daemon.WaitUntilWithoutDevice()) << daemon.output();
  ExpectStaysWithoutDevice(daemon, GetParam().says, 3);
}

INSTANTIATE_TEST_SUITE_P(
    All, DeviceFaultTest,
    ::testing::Values(
        Fault{"NoDriver", "find_error=35", "install a driver for CUDA 13.0 (580 or newer)"},
        Fault{"NoDevice", "find_error=100", "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
        Fault{"OtherDevice", "find_error=101", "check nvidia-smi and CUDA_VISIBLE_DEVICES"},
        Fault{"NoKernels", "image_error=209", "build it with CMAKE_CUDA_ARCHITECTURES of this GPU"},
        Fault{"Unknown", "find_error=999", "check the driver's log"},
        Fault{"TooOld", "major=7,minor=5",
              "has compute capability 7.5; the kernels need at least 8.0"},
        Fault{"NoMemory", "allocate_error=2", "stop other programs that use the device"},
        Fault{"Lost", "copy_error=700", "this process can no longer use it; restart annulusd"},
        Fault{"Hangs", "hangs=1", "it did not end within 300 ms"}),
    [](const auto& info) { return std::string(info.param.name); });

// What is not the device's fault ends the daemon, as it does on the processor.
TEST(EmulatedDaemonTest, MistakesStillEndIt) {
  const auto expect = [](const std::string& device, std::vector<std::string> flags,
                         const std::string& text) {
    EmulatedDaemon daemon(device, std::move(flags));
    EXPECT_EQ(daemon.WaitForExit(seconds(30)), 1) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr(text));
  };
  expect("", {"--device", "cuda", "--model", "/nonexistent"}, "/nonexistent");
  expect("", {"--device", "auto", "--model", "/nonexistent"}, "/nonexistent");
  expect("", {"--device", "cuda", "--kv-memory", "2GiB"}, "lower --kv-memory");
  expect("", {"--device", "cuda", "--ranks", "2", "--ring-transport", "peer"},
         "make more GPUs visible");
  expect("find_error=35", {"--device", "cuda", "--check"}, "install a driver");
  expect("allocate_error=2", {"--device", "cuda", "--check"},
         "stop other programs that use the device");
}

TEST(EmulatedDaemonTest, AGoodDeviceServes) {
  for (const char* const choice : {"cuda", "auto"}) {
    EmulatedDaemon daemon("", {"--device", choice, "--kv-memory", "64MiB"});
    ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr("computes=\"emulated, compute capability 9.0"));
    EXPECT_THAT(daemon.output(), HasSubstr("memory of=\"a device\" ranks=1 "));
    EXPECT_THAT(daemon.output(), HasSubstr("kv=\"64 MiB\" kv_host=\"0 bytes\" step="));
    const auto channel = grpc::CreateChannel(daemon.address(), grpc::InsecureChannelCredentials());
    EXPECT_TRUE(Eventually([&] { return CheckHealth(channel, "") == HealthStatus::kServing; }));
    auto request = TextStreamRequest("abcabca");
    request.mutable_spec()->mutable_sampling()->set_max_tokens(2);
    const auto stub = v1::InferenceService::NewStub(channel);
    EXPECT_TRUE(ReadStream(*stub, request).status.ok());
    auto samples = ScrapeSamples(daemon.metrics_address());
    EXPECT_EQ(samples["annulus_server_state{state=\"serving\"}"], 1);
    EXPECT_EQ(samples["annulus_server_state{state=\"unhealthy\"}"], 0);
    EXPECT_EQ(samples["annulus_rank_up{rank=\"0\"}"], 1);
  }
}

// The processor takes over where any device will do, and the log says why the GPU was left.
TEST(EmulatedDaemonTest, TheProcessorServesOnlyWhereItMay) {
  struct Case {
    const char* device;
    const char* choice;
    const char* says;
  };
  const Case cases[] = {{"find_error=35", "auto", "install a driver"},
                        {"major=7,minor=5", "auto", "has compute capability 7.5"},
                        {"allocate_error=2", "auto",
                         "warning gpu_not_used reason=\"emulated, compute capability 9.0"},
                        {"copy_error=700", "auto", "this process can no longer use it"},
                        {"find_error=35", "cpu", "not looked for"}};
  for (const Case& c : cases) {
    SCOPED_TRACE(absl::StrCat(c.device, " ", c.choice));
    EmulatedDaemon daemon(c.device, {"--device", c.choice, "--kv-memory", "64MiB"});
    ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr(c.says));
    EXPECT_EQ(daemon.output().find("computes=\"emulated"), std::string::npos) << daemon.output();
    EXPECT_EQ(ScrapeSamples(daemon.metrics_address())["annulus_server_state{state=\"serving\"}"],
              1);
  }
}

}  // namespace
}  // namespace annulus::server
