#include "server/process/thread_reserve.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <future>
#include <iterator>
#include <optional>
#include <system_error>
#include <thread>
#include <vector>

namespace annulus::server {
namespace {

constexpr int kReserve = 3;
constexpr int kCannotBecomeAUser = 77;

void Insist(bool holds, int line) {
  if (!holds) std::_Exit(line % 256);
}

// Lets the user of this process have so many threads, or as many as the system allows.
void LimitThreads(std::optional<rlim_t> threads) {
  rlimit bound;
  Insist(getrlimit(RLIMIT_NPROC, &bound) == 0, __LINE__);
  bound.rlim_cur = threads.value_or(bound.rlim_max);
  Insist(setrlimit(RLIMIT_NPROC, &bound) == 0, __LINE__);
}

rlim_t ThreadsNow() {
  const std::filesystem::directory_iterator tasks("/proc/self/task");
  return static_cast<rlim_t>(std::distance(begin(tasks), end(tasks)));
}

// Threads that wait for `end`: `count`, or as many as can be started.
std::vector<std::thread> Start(int count, const std::shared_future<void>& end) {
  std::vector<std::thread> threads;
  try {
    for (int i = 0; i < count; ++i) threads.emplace_back([end] { end.wait(); });
  } catch (const std::system_error&) {
  }
  return threads;
}

// As a user who has no other process, for whom alone the system counts threads.
[[noreturn]] void RunOutOfThreads() {
  const auto user = static_cast<uid_t>(2'000'000'000 + getpid());
  if (setresuid(user, user, user) != 0) std::_Exit(kCannotBecomeAUser);
  ThreadReserve reserve(kReserve);
  const rlim_t before = ThreadsNow();
  LimitThreads(before + kReserve - 1);
  Insist(absl::IsResourceExhausted(reserve.Fill()) && !reserve.full(), __LINE__);
  LimitThreads(before + kReserve);
  Insist(reserve.Fill().ok() && reserve.full(), __LINE__);

  std::promise<void> over;
  const std::shared_future<void> end = over.get_future().share();
  std::vector<std::thread> threads = Start(kReserve, end);
  Insist(threads.size() == kReserve, __LINE__);
  Insist(ThreadReserve::failures() == 0 && !reserve.full(), __LINE__);
  Insist(Start(1, end).empty() && ThreadReserve::failures() == 1, __LINE__);
  Insist(absl::IsResourceExhausted(reserve.Fill()), __LINE__);

  over.set_value();
  for (std::thread& thread : threads) thread.join();
  LimitThreads(std::nullopt);
  Insist(reserve.Fill().ok() && reserve.full(), __LINE__);
  std::_Exit(0);
}

TEST(ThreadReserve, GivesItsThreadsToOthersAndIsFilledAgain) {
  if (geteuid() != 0) GTEST_SKIP() << "only root becomes a user without other processes";
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      RunOutOfThreads(),
      [](int status) {
        return WIFEXITED(status) &&
               (WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == kCannotBecomeAUser);
      },
      "");
}

}  // namespace
}  // namespace annulus::server
