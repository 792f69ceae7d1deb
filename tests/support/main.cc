// The main function of every test program.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace {

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

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleMock(&argc, argv);
  // GoogleTest asks that whoever throws comes after all who print. It owns what it is handed.
  testing::UnitTest::GetInstance()->listeners().Append(new StopAtFatalFailures);
  return RUN_ALL_TESTS();
}
