// Which kernels attend, and how they address pages.
#include "kernels/cuda/tuning/attention_path.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "kernels/cuda/cuda_backend.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/sm80/attention.h"
#include "kernels/cuda/tuning/attention_plan.h"
#include "tests/kernels/cuda/wide_attention.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const std::byte* At(uintptr_t address) { return reinterpret_cast<const std::byte*>(address); }

PageGrid GridOf(const std::vector<uintptr_t>& addresses) {
  std::vector<KvPageView> pages;
  for (const uintptr_t address : addresses) pages.push_back({At(address), 0, 16});
  std::vector<AttentionItem> items(2);
  items[1].pages = pages;
  AttentionParams params;
  params.items = items;
  return GridOfPages(params);
}

TEST(PageGridTest, PagesOfSlabsAreNumbered) {
  const PageGrid slab = GridOf({0x40300, 0x10300, 0x70300});
  EXPECT_EQ(slab.first, At(0x10300));
  EXPECT_EQ(slab.shift, 16);
  EXPECT_EQ(slab.count, 7);
  const PageGrid two_slabs =
      GridOf({0x10000, 0x30000, uintptr_t{9} << 40, (uintptr_t{9} << 40) + 0x140});
  EXPECT_EQ(two_slabs.first, At(0x10000));
  EXPECT_EQ(two_slabs.shift, 6);
  EXPECT_EQ(two_slabs.count, ((9ll << 40) + 0x140 - 0x10000) / 64 + 1);
  const PageGrid one = GridOf({0x7010, 0x7010});
  EXPECT_EQ(one.first, At(0x7010));
  EXPECT_EQ(one.shift, 39);
  EXPECT_EQ(one.count, 1);
  EXPECT_EQ(GridOf({}).count, 0);
}

TEST(PageGridTest, BoxesDividePagesAndTiles) {
  for (const int dim : {1, 64, 128, 129, 256}) {
    const int most = dim <= 128 ? 128 : 64;
    EXPECT_EQ(BoxSlots(16, dim), 16);
    EXPECT_EQ(BoxSlots(48, dim), 16);
    EXPECT_EQ(BoxSlots(64, dim), 64);
    EXPECT_EQ(BoxSlots(128, dim), most);
    EXPECT_EQ(BoxSlots(1024, dim), most);
  }
}

TEST(PageGridTest, TensorsFollowThePageLayout) {
  std::vector<KvPageView> pages = {{At(0x20010), 0, 48}, {At(0x30010), 48, 48}};
  AttentionItem item;
  item.pages = pages;
  AttentionParams params;
  params.shape = {.page_tokens = 48, .kv_heads = 3, .k_dim = 70, .v_dim = 33, .dtype = DType::kF16};
  params.items = {&item, 1};
  const PageGrid grid = GridOfPages(params);
  const auto [keys, values] = TensorsOfPages(params, grid);
  EXPECT_EQ(keys.base, At(0x20010));
  EXPECT_EQ(keys.dtype, DType::kF16);
  EXPECT_EQ(keys.columns, 80);
  EXPECT_EQ(keys.rows, 3 * 48);
  EXPECT_EQ(keys.pages, 2);
  EXPECT_EQ(keys.row_bytes, 160);
  EXPECT_EQ(keys.page_stride, 0x10000);
  EXPECT_EQ(keys.box_rows, 16);
  EXPECT_EQ(values.base, At(0x20010 + 3 * 48 * 160));
  EXPECT_EQ(values.columns, 48);
  EXPECT_EQ(values.row_bytes, 96);
  EXPECT_EQ(values.rows, 3 * 48);
  params.shape.dtype = DType::kI8;  // codes; their scales are not of the tensors
  const PageTensors codes = TensorsOfPages(params, grid);
  EXPECT_EQ(codes.keys.dtype, DType::kI8);
  EXPECT_EQ(codes.keys.columns, 80);
  EXPECT_EQ(codes.keys.row_bytes, 80);
  EXPECT_EQ(codes.values.base, At(0x20010 + 3 * 48 * 80));
  EXPECT_EQ(codes.values.row_bytes, 48);
  params.shape.page_tokens = 128;
  EXPECT_EQ(TensorsOfPages(params, grid).values.box_rows, 128);
  params.shape.v_dim = 129;
  EXPECT_EQ(TensorsOfPages(params, grid).keys.box_rows, 64) << "the larger dimension's tile";
}

TEST(AttentionPathTest, HopperServesWhatItsKernelsAreFor) {
  std::vector<KvPageView> pages = {{At(0x20010), 0, 64}};
  AttentionItem item;
  item.pages = pages;
  AttentionParams params;
  params.items = {&item, 1};
  const KvPageShape shape{
      .page_tokens = 64, .kv_heads = 1, .k_dim = 128, .v_dim = 96, .dtype = DType::kBF16};
  DeviceInfo hopper;
  hopper.major = 9;
  const auto serves = [&](const DeviceInfo& device, const KvPageShape& with) {
    params.shape = with;
    return HopperServes(device, params, GridOfPages(params));
  };
  EXPECT_TRUE(serves(hopper, shape));
  for (const auto& [major, minor] : {std::pair(8, 0), {8, 9}, {9, 1}, {10, 0}, {12, 0}}) {
    DeviceInfo other;
    other.major = major;
    other.minor = minor;
    EXPECT_FALSE(serves(other, shape)) << major << "." << minor;
  }
  for (const DType dtype : testing::kKvDTypes) {
    KvPageShape other = shape;
    other.dtype = dtype;
    EXPECT_EQ(serves(hopper, other), dtype != DType::kF32) << DTypeName(dtype);
  }
  for (const int dim : {1, 64, 128, 129, 256, 257}) {
    KvPageShape other = shape;
    other.v_dim = dim;
    EXPECT_EQ(serves(hopper, other), dim <= 256);
    other.v_dim = shape.v_dim;
    other.k_dim = dim;
    EXPECT_EQ(serves(hopper, other), dim <= 256);
  }
  pages.push_back({At(0x20018), 64, 64});
  item.pages = pages;
  EXPECT_FALSE(serves(hopper, shape)) << "pages 8 bytes apart";
  pages.back().data = At(0x20010 + (uintptr_t{1} << 37) + 64);
  EXPECT_FALSE(serves(hopper, shape)) << "more than 2^31 numbers";
  pages.back().data = At(0x20010 + (uintptr_t{1} << 37) - 64);
  EXPECT_TRUE(serves(hopper, shape));
  const DilatedBranch branch{64, 2};
  item.branches = {&branch, 1};
  EXPECT_FALSE(serves(hopper, shape)) << "dilated";
}

// The units that a path's kernel takes: sm80/ has 64 rows for head_dim 256, and sm90/ 128.
TEST(AttentionPathTest, UnitsHaveTheRowsOfThePathThatAttendsThem) {
  std::vector<KvPageView> pages = {{At(0x20010), 0, 64}};
  std::vector<int32_t> positions(100, 63);
  AttentionItem item;
  item.pages = pages;
  item.positions = positions;
  AttentionParams params;
  params.items = {&item, 1};
  params.heads = 3;
  DeviceInfo device;
  device.major = 9;
  const auto path = [&](int dim, DType dtype, bool hopper) {
    params.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = dim, .v_dim = dim, .dtype = dtype};
    const PrefillPath path = PathOfPrefill(device, params, hopper);
    int most = 0;
    int64_t rows = 0;
    for (const AttentionUnit& unit : PlanAttention(params, 1, path.rows, kMostBlocks).prefill) {
      most = std::max(most, unit.row_count);
      rows += unit.row_count;
    }
    EXPECT_EQ(rows, 300);
    EXPECT_EQ(most, path.rows);
    EXPECT_EQ(path.grid.count, path.hopper ? 1 : 0);
    return std::pair(path.hopper, path.rows);
  };
  EXPECT_EQ(path(64, DType::kBF16, true), std::pair(true, 128));
  EXPECT_EQ(path(128, DType::kBF16, true), std::pair(true, 128));
  EXPECT_EQ(path(129, DType::kBF16, true), std::pair(true, 128));
  EXPECT_EQ(path(256, DType::kF16, true), std::pair(true, 128));
  EXPECT_EQ(path(256, DType::kF16, false), std::pair(false, 64));
  for (const DType dtype : {DType::kI8, DType::kF8E4M3, DType::kF8E5M2}) {
    EXPECT_EQ(path(128, dtype, true), std::pair(true, 128));
    EXPECT_EQ(path(256, dtype, true), std::pair(true, 128));
    EXPECT_EQ(path(256, dtype, false), std::pair(false, 64));
  }
  pages.push_back({At(0x20018), 64, 64});
  item.pages = pages;
  EXPECT_EQ(path(256, DType::kBF16, true), std::pair(false, 64)) << "pages 8 bytes apart";
  pages.pop_back();
  item.pages = pages;
  device.major = 8;
  EXPECT_EQ(path(256, DType::kBF16, true), std::pair(false, 64));
  device.major = 9;
  EXPECT_EQ(path(256, DType::kBF16, true), std::pair(true, 128));
  item.positions = {positions.data(), 5};  // 15 rows: none for a unit of many
  EXPECT_FALSE(PathOfPrefill(device, params, true).hopper);
  EXPECT_TRUE(PlanAttention(params, 1, 64, kMostBlocks).prefill.empty());
}

// However few rows and whichever pages there are: the same kernel attends.
TEST(AttentionPathTest, InvariantTablesHaveOnePath) {
  std::vector<KvPageView> pages = {{At(0x20010), 0, 64}};
  const std::vector<int32_t> positions(100, 63);
  AttentionItem item;
  item.pages = pages;
  AttentionParams params;
  params.items = {&item, 1};
  params.heads = 3;
  DeviceInfo device;
  device.major = 9;
  device.shared_bytes = SharedBytes(9, 0);
  for (const size_t rows : {1, 5, 100}) {
    item.positions = {positions.data(), rows};
    for (const int dim : {64, 256}) {
      params.shape = {64, 1, dim, dim, DType::kBF16};
      EXPECT_TRUE(PathOfInvariant(device, params, true)->hopper);
      EXPECT_EQ(PathOfInvariant(device, params, true)->rows, 128);
      EXPECT_EQ(PathOfInvariant(device, params, false)->rows, dim == 64 ? 128 : 64);
    }
    params.shape.dtype = DType::kF32;
    EXPECT_FALSE(PathOfInvariant(device, params, true)->hopper);
    EXPECT_EQ(PathOfInvariant(device, params, true)->rows, 16);
  }
  params.shape.dtype = DType::kBF16;
  for (const uintptr_t address : {uintptr_t{0x20018}, 0x20010 + (uintptr_t{1} << 37) + 64}) {
    pages = {{At(0x20010), 0, 64}, {At(address), 64, 64}};
    item.pages = pages;
    EXPECT_FALSE(PathOfPrefill(device, params, true).hopper);
    EXPECT_FALSE(PathOfInvariant(device, params, false)->hopper);
    const absl::Status status = PathOfInvariant(device, params, true).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("use --gpu-kernels sm80-invariant"));
    params.shape.dtype = DType::kF32;  // of sm80/ wherever they lie
    EXPECT_TRUE(PathOfInvariant(device, params, true).ok());
    params.shape.dtype = DType::kBF16;
  }
  item.pages = {};
  EXPECT_TRUE(PathOfInvariant(device, params, true).ok()) << "no keys, no bits to keep";
}

TEST(AttentionPathTest, TheTableOfSm90IsForItsGpu) {
  const auto names = [] {
    KernelRegistry registry;
    RegisterCudaKernels(registry);
    std::vector<std::string> names;
    for (const OpTable* table : registry.Available("cuda")) names.push_back(table->name);
    return names;
  };
  EXPECT_THAT(names(),
              ElementsAre("cuda/sm90", "cuda/sm80", "cuda/sm90-invariant", "cuda/sm80-invariant"));
  EmulatedDevice::Get().major = 8;
  EXPECT_THAT(names(), ElementsAre("cuda/sm80", "cuda/sm80-invariant"));
  EmulatedDevice::Get().major = 10;
  EXPECT_THAT(names(), ElementsAre("cuda/sm80", "cuda/sm80-invariant"));
  EmulatedDevice::Get().devices = 2;
  EmulatedDevice::Get().odd_device = 1;  // of 9.0, and not the one that is opened
  EXPECT_THAT(names(), ElementsAre("cuda/sm80", "cuda/sm80-invariant"));
  EmulatedDevice::Get().major = 7;  // nor is the first one now
  EXPECT_EQ(names().size(), 4u);
  EmulatedDevice::Get().devices = 1;
  EmulatedDevice::Get().odd_device = -1;
  EmulatedDevice::Get().major = 9;
}

// Blocks have 99 KiB of shared memory there, and 163 on 8.0.
TEST(AttentionPathTest, GpusWithLittleSharedMemoryAreServedToo) {
  const int least[] = {8, 9};
  for (const AttentionShape shape : {AttentionShape::kPrefill, AttentionShape::kDecode}) {
    for (const int dim : {64, 128, 256}) {
      EXPECT_LE(AttentionBytes(shape, dim), SharedBytes(least[0], least[1])) << dim;
    }
  }
  EmulatedDevice& device = EmulatedDevice::Get();
  testing::BackendOf(Ops());  // that of all tests, of 9.0
  device.major = least[0];
  device.minor = least[1];
  const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
  const auto stream =
      CudaStream::Create(FindDevices()->front(), waits, /*with_library=*/false).value();
  uint32_t seed = 700;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kI8, DType::kF32}) {
    for (const int dim : {128, 256}) {
      for (const int rows : {3, 40, 110}) {  // few, many, more than a unit of 128
        testing::Problem problem = testing::WideProblem(dtype, 64, dim);
        problem.end = 300;
        problem.positions = testing::Consecutive(300 - rows, rows);
        testing::FillProblem(problem, seed++);
        SCOPED_TRACE(problem.name);
        testing::ExpectNear(problem, testing::AttendOn(*stream, Ops(), problem),
                            testing::Attend(testing::Reference(), problem, 1));
      }
    }
  }
  device.major = 9;
  device.minor = 0;
}

TEST(AttentionPathTest, ARefusedTensorMapIsAnError) {
  testing::Problem problem = testing::WideProblem(DType::kBF16, 64, 64);
  testing::FillProblem(problem, 1);
  const OpTable table = HopperOps();
  const testing::PagedSequence pages(table, problem);
  testing::AttentionResult result(problem);
  const AttentionItem item = testing::MakeItem(problem, pages, 0, problem.rows(), result);
  const AttentionParams params = testing::MakeParams(problem, {&item, 1});
  EmulatedDevice::Get().tensor_error = 1;
  const absl::Status status = table.attention(*testing::MakeStream(table, 1), params);
  EmulatedDevice::Get().tensor_error = 0;
  EXPECT_FALSE(status.ok());
  EXPECT_THAT(std::string(status.message()), HasSubstr("making a tensor map"));
}

}  // namespace
}  // namespace annulus::cuda
