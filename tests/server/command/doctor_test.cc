#include "server/command/doctor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/config/load_config.h"
#include "server/net/connection_acceptor.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;
using Verdict = Finding::Verdict;

class DoctorTest : public ::testing::Test {
 protected:
  DoctorTest() {
    File("proc/cpuinfo", "model name\t: Abacus 1\nflags\t\t: fpu avx2 avx512f\n");
    File("proc/meminfo", "MemTotal: 9000000 kB\nMemAvailable: 8000000 kB\nHugePages_Free: 0\n");
    File("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
    File("sys/devices/system/node/online", "0\n");
    File("sys/fs/cgroup/cpu.max", "max 100000\n");
  }
  void File(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
  }

  // What is said of `subject`.
  Finding Of(const std::string& subject, std::vector<std::string> flags = {}) {
    flags.insert(flags.end(), {"--listen=127.0.0.1:0", "--metrics=127.0.0.1:0"});
    const auto loaded = LoadConfig(flags, {});
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    for (const Finding& finding : ExamineMachine(loaded->config, facts_, folder_.path())) {
      EXPECT_EQ(finding.verdict == Verdict::kGood, finding.remedy.empty()) << finding.subject;
      if (finding.subject == subject) return finding;
    }
    ADD_FAILURE() << "nothing is said of " << subject;
    return {};
  }

  const testing::TempDirectory folder_;
  MachineFacts facts_;
};

TEST_F(DoctorTest, AGoodMachineIsGood) {
  for (const char* subject : {"processor", "memory", "huge pages", "memory nodes", "control group",
                              "listen", "metrics", "model"}) {
    EXPECT_EQ(Of(subject).verdict, Verdict::kGood) << subject << ": " << Of(subject).remedy;
  }
  EXPECT_THAT(Of("processor").what, HasSubstr("Abacus 1"));
  EXPECT_THAT(Of("processor").what, HasSubstr("avx512f"));
}

TEST_F(DoctorTest, SaysWhatIsWrongAndWhatToDo) {
  File("proc/cpuinfo", "flags : fpu\n");
  EXPECT_EQ(Of("processor").verdict, Verdict::kAdvice);
  EXPECT_EQ(Of("memory", {"--kv-memory=64GiB"}).verdict, Verdict::kBad);
  EXPECT_THAT(Of("memory", {"--kv-memory=64GiB"}).remedy, HasSubstr("--kv-memory"));
  EXPECT_EQ(Of("huge pages", {"--huge-pages=explicit"}).verdict, Verdict::kBad);
  File("sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
  EXPECT_EQ(Of("huge pages").verdict, Verdict::kAdvice);
  File("sys/devices/system/node/online", "0-1\n");
  EXPECT_EQ(Of("memory nodes").verdict, Verdict::kGood);
  const Finding nodes = Of("memory nodes", {"--numa=off"});
  EXPECT_EQ(nodes.verdict, Verdict::kAdvice);
  EXPECT_THAT(nodes.remedy, HasSubstr("--numa auto"));
  EXPECT_TRUE(LoadConfig({"--numa=auto"}, {}).ok()) << "what is advised is taken";
  File("proc/sys/kernel/numa_balancing", "1\n");
  EXPECT_THAT(Of("memory nodes").remedy, HasSubstr("numa_balancing=0"));
  File("sys/fs/cgroup/cpu.max", "150000 100000\n");
  EXPECT_EQ(Of("control group").verdict, Verdict::kAdvice);
  facts_.group_memory = 1000000;
  EXPECT_EQ(Of("control group").verdict, Verdict::kBad);
  EXPECT_EQ(Of("open files", {"--max-connections=1000000"}).verdict, Verdict::kAdvice);
}

TEST_F(DoctorTest, LooksAtPortsAndModels) {
  const auto taken = ConnectionAcceptor::Listen("127.0.0.1:0");
  ASSERT_TRUE(taken.ok()) << taken.status();
  const auto loaded =
      LoadConfig({absl::StrCat("--listen=127.0.0.1:", (*taken)->port()), "--metrics=off"}, {});
  ASSERT_TRUE(loaded.ok());
  const auto findings = ExamineMachine(loaded->config, facts_, folder_.path());
  EXPECT_THAT(FindingsText(findings), HasSubstr("set --listen"));

  EXPECT_EQ(Of("model", {"--model", "/nonexistent"}).verdict, Verdict::kBad);
  File("model/weights", std::string(1 << 20, 'x'));
  const std::string model = folder_.path() / "model";
  EXPECT_THAT(Of("model", {"--model", model}).what, HasSubstr(", 1 MiB;"));
  EXPECT_THAT(Of("disk", {"--model", model}).what, HasSubstr("MB/s"));
  EXPECT_THAT(Of("model", {"--model", model + "/weights"}).what, HasSubstr(", 1 MiB;"));
}

TEST_F(DoctorTest, RandomModelsAreAFileOfSizes) {
  EXPECT_EQ(Of("model", {"--model", "random:/nonexistent.json"}).verdict, Verdict::kBad);
  File("config.json", "{}");
  const Finding finding =
      Of("model", {"--model", "random:" + (folder_.path() / "config.json").string()});
  EXPECT_EQ(finding.verdict, Verdict::kGood) << finding.what;
  EXPECT_THAT(finding.what, HasSubstr("config.json"));
}

TEST_F(DoctorTest, MemoryHoldsTheModelToo) {
  const std::string model = folder_.path() / "large";
  File("large/weights", "x");
  std::filesystem::resize_file(model + "/weights", uint64_t{16} << 30);  // without blocks
  facts_.group_memory = 8000000000;
  EXPECT_EQ(Of("memory").verdict, Verdict::kGood);
  EXPECT_EQ(Of("control group").verdict, Verdict::kGood);
  EXPECT_EQ(Of("memory", {"--model", model}).verdict, Verdict::kBad);
  EXPECT_EQ(Of("control group", {"--model", model}).verdict, Verdict::kBad);
  // Most of the files may be experts that stay there.
  EXPECT_EQ(Of("memory", {"--model", model, "--expert-memory=1GiB"}).verdict, Verdict::kGood);
  // A GPU's memory holds the model, and the keys and values.
  facts_.on_gpu = true;
  const std::vector<std::string> flags = {"--model", model, "--kv-memory=64GiB"};
  EXPECT_EQ(Of("memory", flags).verdict, Verdict::kGood);
  EXPECT_EQ(Of("control group", flags).verdict, Verdict::kGood);
  // What leaves it is in the host's again.
  EXPECT_EQ(Of("memory", {"--model", model, "--kv-host=64GiB"}).verdict, Verdict::kBad);
}

TEST_F(DoctorTest, NothingToReadIsToldToo) {
  std::filesystem::remove_all(folder_.path() / "proc");
  std::filesystem::remove_all(folder_.path() / "sys");
  EXPECT_EQ(Of("memory").verdict, Verdict::kAdvice);
  EXPECT_EQ(Of("huge pages").verdict, Verdict::kGood);
}

}  // namespace
}  // namespace annulus::server
