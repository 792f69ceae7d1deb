#include "kernels/cpu/cpu_backend.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cpu/host/cpu_stream.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::unique_ptr<Backend> MakeBackend() { return CreateCpuBackend().value(); }

// Resident bytes of this process.
size_t ResidentBytes() {
  std::ifstream file("/proc/self/statm");
  size_t total = 0;
  size_t resident = 0;
  file >> total >> resident;
  return resident * 4096;
}

TEST(CpuBackend, DescribesTheMachine) {
  const BackendCapabilities capabilities = MakeBackend()->capabilities();
  EXPECT_EQ(capabilities.name, "cpu");
  EXPECT_FALSE(capabilities.description.empty());
  EXPECT_GE(capabilities.threads, 1);
  EXPECT_GT(capabilities.memory_bytes, size_t{64} << 20);
  EXPECT_TRUE(capabilities.host_accessible);
}

TEST(CpuBackend, AllocatesAlignedWritableMemoryOfAnySize) {
  const auto backend = MakeBackend();
  for (const size_t bytes : {size_t{1}, size_t{63}, size_t{64}, size_t{65}, size_t{262143},
                             size_t{262144}, size_t{262145}, size_t{5} << 20}) {
    SCOPED_TRACE(bytes);
    absl::StatusOr<DeviceBuffer> buffer = backend->Allocate(bytes);
    ASSERT_TRUE(buffer.ok()) << buffer.status();
    EXPECT_EQ(buffer->size(), bytes);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer->data()) % 64, 0u);
    std::memset(buffer->data(), 0x5a, bytes);
    EXPECT_EQ(buffer->as<uint8_t>()[bytes - 1], 0x5a);
  }
}

TEST(CpuBackend, NoBytesGiveAnEmptyBuffer) {
  const auto backend = MakeBackend();
  absl::StatusOr<DeviceBuffer> buffer = backend->Allocate(0);
  ASSERT_TRUE(buffer.ok());
  EXPECT_EQ(buffer->size(), 0u);
  EXPECT_EQ(buffer->data(), nullptr);
}

TEST(CpuBackend, RefusesWhatCannotFitWithTheNumbers) {
  const auto backend = MakeBackend();
  const size_t limit = backend->capabilities().memory_bytes;
  for (const size_t bytes :
       {limit + 1, std::numeric_limits<size_t>::max() / 2, std::numeric_limits<size_t>::max()}) {
    const absl::Status status = backend->Allocate(bytes).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(std::to_string(bytes)), HasSubstr(std::to_string(limit))));
  }
}

TEST(CpuBackend, UntouchedPagesCostNothingAndFreedOnesGoBack) {
  const auto backend = MakeBackend();
  const size_t bytes = size_t{256} << 20;
  const size_t before = ResidentBytes();
  absl::StatusOr<DeviceBuffer> buffer = backend->Allocate(bytes);
  ASSERT_TRUE(buffer.ok()) << buffer.status();
  EXPECT_LT(ResidentBytes(), before + bytes / 8);
  std::memset(buffer->data(), 1, bytes / 2);
  EXPECT_GT(ResidentBytes(), before + bytes / 4);
  buffer->Reset();
  EXPECT_LT(ResidentBytes(), before + bytes / 8);
}

TEST(CpuBackend, CopiesAlsoOverlappingAndEmptyRanges) {
  const auto backend = MakeBackend();
  const auto stream = backend->CreateStream(1).value();
  std::vector<int> values(100);
  std::iota(values.begin(), values.end(), 0);
  EXPECT_TRUE(backend->Copy(*stream, values.data() + 1, values.data(), 99 * sizeof(int)).ok());
  EXPECT_EQ(values[1], 0);
  EXPECT_EQ(values[99], 98);
  EXPECT_TRUE(backend->Copy(*stream, nullptr, nullptr, 0).ok());
  EXPECT_TRUE(stream->Synchronize().ok());
}

TEST(CpuBackend, StreamsLendThreadsWhereAsked) {
  const auto threads = [](int shared, int own) {
    const auto backend = CreateCpuBackend({.use_nodes = false, .shared_threads = shared}).value();
    return AsCpuStream(*backend->CreateStream(own).value()).threads();
  };
  EXPECT_EQ(threads(1, 1), 1);
  EXPECT_EQ(threads(3, 1), 3);
  EXPECT_EQ(threads(3, 4), 4);
  EXPECT_EQ(threads(0, 1), MakeBackend()->capabilities().threads);
}

TEST(CpuBackend, StreamsNeedAThread) {
  const auto backend = MakeBackend();
  for (const int threads : {0, -1, std::numeric_limits<int>::min()}) {
    EXPECT_EQ(backend->CreateStream(threads).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

}  // namespace
}  // namespace annulus
