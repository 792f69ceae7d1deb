// What annulusd --plan says of a machine against what a daemon there takes.
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "bench/demo/document.h"
#include "kernels/base/sanitizers.h"
#include "tests/integration/daemon.h"
#include "tests/support/mebibyte.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::server {
namespace {

using testing::kMiB;

struct PlannedCase {
  double kv_bytes = 0;
  int64_t tokens = 0;  // the longest context
};

// Of the line of the table for f32 weights, keys and values.
PlannedCase ReadPlan(const std::string& table) {
  for (const auto line : absl::StrSplit(table, '\n')) {
    // weights kv ranks, weights take, other memory, left for kv, kv per token, longest context
    const std::vector<std::string> cells = absl::StrSplit(line, ' ', absl::SkipEmpty());
    if (cells.size() < 12 || cells[0] != "f32" || cells[1] != "f32") continue;
    PlannedCase planned;
    EXPECT_EQ(cells[8], "MiB");
    EXPECT_TRUE(absl::SimpleAtod(cells[7], &planned.kv_bytes));
    EXPECT_TRUE(absl::SimpleAtoi(cells[11], &planned.tokens));
    planned.kv_bytes *= kMiB;
    return planned;
  }
  ADD_FAILURE() << table;
  return {};
}

TEST(OfflinePlanTest, TheDaemonTakesTheMemoryThatWasPlanned) {
  if (kSanitized) GTEST_SKIP() << "resident memory is the sanitizer's";
  constexpr int kMemoryMiB = 192;
  const std::string memory = absl::StrCat(kMemoryMiB, "MiB");
  // No answer is kept for a retry here: the question below has no request_id.
  Program plan({testing::BuildFolder() / "annulusd", "--plan", "--device", "cpu", "--memory",
                memory, "--max-replay-memory", "0"});
  ASSERT_EQ(plan.WaitForExit(std::chrono::seconds(30)), 0) << plan.output();
  const PlannedCase planned = ReadPlan(plan.output());
  ASSERT_GT(planned.tokens, 100'000);

  // The table has a tenth of a MiB as its last digit.
  const auto kv = static_cast<int64_t>(planned.kv_bytes + kMiB / 10.0);
  Daemon daemon({"--device", "cpu", "--kv-memory", absl::StrCat(kv)});
  ASSERT_TRUE(daemon.WaitUntilReady()) << daemon.output();
  const testing::TempDirectory folder;
  constexpr int kAnswer = 8;
  constexpr int64_t kQuestion = 4;  // bytes, and so tokens, with what stands before it
  const bench::DemoDocument document =
      bench::MakeDemoDocument({.bytes = planned.tokens - kAnswer - kQuestion}).value();
  folder.Write("document.txt", document.text);
  Program ask({testing::BuildFolder() / "annulus", "ask", folder.path() / "document.txt", "Who",
               "--max-tokens", absl::StrCat(kAnswer), "--quiet", "--server", daemon.address()},
              {"HOME=/nonexistent"});
  // The longest context that the table names is served, with the table's memory.
  ASSERT_EQ(ask.WaitForExit(std::chrono::seconds(100)), 0) << ask.output();
  const double peak = static_cast<double>(daemon.PeakMemory()) / kMiB;
  EXPECT_NEAR(peak, kMemoryMiB, 0.05 * kMemoryMiB) << plan.output();
}

TEST(OfflinePlanTest, AnswersKeptForRetriesAreCounted) {
  if (kSanitized) GTEST_SKIP() << "resident memory is the sanitizer's";
  const auto kv_beside = [](const std::string& replay) {
    Program plan({testing::BuildFolder() / "annulusd", "--plan", "--device", "cpu", "--memory",
                  "256MiB", "--max-replay-memory", replay});
    EXPECT_EQ(plan.WaitForExit(std::chrono::seconds(30)), 0) << plan.output();
    return ReadPlan(plan.output()).kv_bytes;
  };
  EXPECT_NEAR((kv_beside("0") - kv_beside("100MiB")) / kMiB, 100, 5);
}

}  // namespace
}  // namespace annulus::server
