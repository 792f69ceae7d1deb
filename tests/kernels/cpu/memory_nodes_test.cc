#include "kernels/cpu/host/memory_nodes.h"

#include <atomic>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/host/cpu_stream.h"
#include "tests/support/machine_files.h"

namespace annulus {
namespace {

using testing::MachineFiles;

TEST(ProcessorList, ReadsWhatTheKernelWrites) {
  EXPECT_EQ(ParseProcessorList(""), Processors{});
  EXPECT_EQ(ParseProcessorList("0\n"), Processors{0});
  EXPECT_EQ(ParseProcessorList("0-2,7,10-11"), (Processors{0, 1, 2, 7, 10, 11}));
  EXPECT_EQ(ParseProcessorList("4,1-2,2"), (Processors{1, 2, 4}));
  for (const char* text : {"x", "1-", "-1", "3-1", "1-2-3", "0,,1", "0-99999999", "1 2"}) {
    EXPECT_EQ(ParseProcessorList(text), std::nullopt) << text;
  }
}

class MemoryNodesTest : public ::testing::Test {
 protected:
  // The processors of this process, shared out over `count` nodes in turn.
  void ShareOut(int count) {
    std::vector<std::string> lists(count);
    for (size_t i = 0; i < usable_.size(); ++i) {
      std::string& list = lists[i % count];
      absl::StrAppend(&list, list.empty() ? "" : ",", usable_[i]);
    }
    for (int node = 0; node < count; ++node) {
      machine_.Write(absl::StrCat("sys/devices/system/node/node", node, "/cpulist"),
                     lists[node] + "\n");
    }
    machine_.Write("sys/devices/system/node/online", absl::StrCat("0-", count - 1, "\n"));
  }

  const Processors usable_ = UsableProcessors();
  const MachineFiles machine_;
};

TEST_F(MemoryNodesTest, OnlyNodesWithProcessorsForUsCount) {
  ASSERT_FALSE(usable_.empty());
  EXPECT_TRUE(ReadMemoryNodes(machine_.root()).empty());
  const std::string folder = "sys/devices/system/node/";
  machine_.Write(folder + "online", "0,2-3\n");
  machine_.Write(folder + "node0/cpulist", "1048000-1048002\n");  // not ours
  machine_.Write(folder + "node2/cpulist", "\n");                 // memory alone
  machine_.Write(folder + "node3/cpulist", absl::StrCat("0-", usable_.back(), "\n"));
  const std::vector<MemoryNode> nodes = ReadMemoryNodes(machine_.root());
  ASSERT_EQ(nodes.size(), 1u);
  EXPECT_EQ(nodes[0].number, 3);
  EXPECT_EQ(nodes[0].processors, usable_);
}

TEST_F(MemoryNodesTest, OneNodeBindsNothing) {
  ShareOut(1);
  const auto backend = CreateCpuBackend({.root = machine_.root()}).value();
  EXPECT_EQ(backend->capabilities().nodes, 1);
  EXPECT_EQ(&backend->OnNode(0), backend.get());
}

TEST_F(MemoryNodesTest, ThreadsOfANodesStreamStayOnItsProcessors) {
  if (usable_.size() < 2) GTEST_SKIP() << "one processor";
  ShareOut(2);
  const auto off = CreateCpuBackend({.use_nodes = false, .root = machine_.root()}).value();
  EXPECT_EQ(off->capabilities().nodes, 1);
  const auto backend = CreateCpuBackend({.root = machine_.root()}).value();
  ASSERT_EQ(backend->capabilities().nodes, 2);
  const std::vector<MemoryNode> nodes = ReadMemoryNodes(machine_.root());
  for (int node = 0; node < 2; ++node) {
    const auto stream = backend->OnNode(node).CreateStream(3).value();
    std::thread user([&] {
      stream->BindCaller();
      std::mutex mutex;
      std::set<int> seen;
      // All three threads take part: each task waits for the others.
      std::atomic<int> arrived{0};
      AsCpuStream(*stream).ParallelFor(3, [&](int64_t, int thread) {
        ++arrived;
        while (arrived < 3) std::this_thread::yield();
        std::lock_guard lock(mutex);
        seen.insert(thread);
        EXPECT_EQ(UsableProcessors(), nodes[node].processors) << "thread " << thread;
      });
      EXPECT_EQ(seen.size(), 3u);
    });
    user.join();
    // Large blocks and small ones can be had there, whether or not the node really exists.
    EXPECT_TRUE(backend->OnNode(node).Allocate(1 << 20).ok());
    EXPECT_TRUE(backend->OnNode(node).Allocate(100).ok());
  }
  const auto anywhere = backend->CreateStream(1).value();
  anywhere->BindCaller();
  EXPECT_EQ(UsableProcessors(), usable_);
}

}  // namespace
}  // namespace annulus
