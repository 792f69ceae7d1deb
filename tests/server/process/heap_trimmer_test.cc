// Freed memory goes back to the system, also if it was still in use when it was noticed.

#include "server/process/heap_trimmer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <vector>

#include "kernels/base/sanitizers.h"
#include "tests/server/test_server.h"

namespace annulus::server {
namespace {

TEST(HeapTrimmerTest, GivesBackWhatIsFreedAfterItHasLooked) {
  if (kSanitized) GTEST_SKIP() << "the sanitizer has a heap of its own";
  constexpr size_t kPiece = size_t{64} << 10, kPieces = 1'000;
  HeapTrimmer trimmer;
  SteadyTime now{};
  trimmer.Tick(now);
  std::vector<std::unique_ptr<char[]>> pieces;
  for (size_t i = 0; i < kPieces; ++i) pieces.push_back(std::make_unique<char[]>(kPiece));
  const auto last = std::make_unique<char[]>(kPiece);  // the heap's end stays in use
  trimmer.Tick(now += std::chrono::seconds(6));
  const size_t most = ResidentBytes();
  pieces.clear();
  trimmer.Tick(now += std::chrono::seconds(6));
  EXPECT_LT(ResidentBytes() + kPiece * kPieces / 2, most);
}

}  // namespace
}  // namespace annulus::server
