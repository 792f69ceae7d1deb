// The main function of every test program.
//   ANNULUS_TEST_RECORD=FILE   appends a line when a test starts and one when it ends; and a test
//                              that has not ended after kLimitSeconds ends the program. By
//                              tests/run.sh, which counts these lines.

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <thread>

namespace {

constexpr unsigned kLimitSeconds = 300;

// Ends a test at its first ASSERT that fails, wherever that stands. By itself ASSERT only returns
// from the function it is in: a test whose helper could not set something up would go on without
// it. On other threads it stays with the return, since nobody could catch there.
class StopAtFatalFailures : public testing::EmptyTestEventListener {
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.fatally_failed() && std::this_thread::get_id() == main_thread_) {
      throw testing::AssertionException(result);
    }
  }

  const std::thread::id main_thread_ = std::this_thread::get_id();
};

// Of this process and the children it has waited for.
double ProcessorSeconds() {
  double seconds = 0;
  for (const int who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage;
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

// A signal handler may not format text.
char limit_message[512];

void EndAtLimit(int) {
  const ssize_t written = write(STDERR_FILENO, limit_message, std::strlen(limit_message));
  _exit(written > 0 ? 1 : 2);
}

// Records lines of words: PROGRAM.SHARD "start" TEST, then PROGRAM.SHARD RESULT TEST SECONDS
// PROCESSOR-SECONDS. A test with a start and no end took its program down.
class Recorder : public testing::EmptyTestEventListener {
 public:
  explicit Recorder(const char* path) : file_(std::fopen(path, "a")) {
    if (file_ == nullptr) {
      std::perror(path);
      std::exit(1);
    }
    const char* const shard = std::getenv("GTEST_SHARD_INDEX");
    program_ = std::string(program_invocation_short_name) + "." + (shard != nullptr ? shard : "0");
    std::signal(SIGALRM, EndAtLimit);
  }
  ~Recorder() override { std::fclose(file_); }

 private:
  void OnTestStart(const testing::TestInfo& test) override {
    const std::string name = Name(test);
    std::snprintf(limit_message, sizeof(limit_message), "%s has not ended for %u s\n", name.c_str(),
                  kLimitSeconds);
    alarm(kLimitSeconds);
    Write("start " + name);
    start_ = std::chrono::steady_clock::now();
    start_processor_ = ProcessorSeconds();
  }

  void OnTestEnd(const testing::TestInfo& test) override {
    alarm(0);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start_;
    const testing::TestResult& result = *test.result();
    const char* const word = result.Skipped() ? "skipped" : result.Passed() ? "passed" : "failed";
    char times[64];
    std::snprintf(times, sizeof(times), " %.3f %.3f", seconds.count(),
                  ProcessorSeconds() - start_processor_);
    Write(std::string(word) + " " + Name(test) + times);
  }

  static std::string Name(const testing::TestInfo& test) {
    return std::string(test.test_suite_name()) + "." + test.name();
  }

  // At once, so that lines of programs that run side by side stay whole, and those of one that
  // dies.
  void Write(const std::string& words) {
    std::fprintf(file_, "%s %s\n", program_.c_str(), words.c_str());
    std::fflush(file_);
  }

  std::FILE* const file_;
  std::string program_;
  std::chrono::steady_clock::time_point start_;
  double start_processor_ = 0;
};

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  testing::TestEventListeners& listeners = testing::UnitTest::GetInstance()->listeners();
  // GoogleTest owns what it is handed.
  if (const char* const path = std::getenv("ANNULUS_TEST_RECORD")) {
    listeners.Append(new Recorder(path));
    unsetenv("ANNULUS_TEST_RECORD");  // not for the test programs that a test runs
  }
  // GoogleTest asks that whoever throws comes after all who print.
  listeners.Append(new StopAtFatalFailures);
  return RUN_ALL_TESTS();
}
