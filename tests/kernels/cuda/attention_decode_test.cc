// Attention of few rows: what only its own kernel can get wrong.
#include <chrono>
#include <cmath>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/dtype.h"
#include "kernels/cuda/common/widen.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/runtime.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

// A stream that takes its GPU for one of many multiprocessors: the pages of few rows are divided.
std::unique_ptr<CudaStream> StreamOfManyBlocks() {
  DeviceInfo device = FindDevices().value().front();
  device.multiprocessors = 64;
  const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
  return CudaStream::Create(device, waits, /*with_library=*/false).value();
}

// The last `rows` of 1100 positions.
testing::Problem FewRows(DType dtype, int rows) {
  testing::Problem problem;
  problem.shape = {.page_tokens = 32, .kv_heads = 2, .k_dim = 64, .v_dim = 72, .dtype = dtype};
  problem.group = 3;
  problem.end = 1100;
  problem.positions = testing::Consecutive(1100 - rows, rows);
  return problem;
}

TEST(AttentionDecodeTest, OneLaunchAlsoMergesTheParts) {
  const auto stream = StreamOfManyBlocks();
  for (const int rows : {1, 4}) {
    testing::Problem problem = FewRows(DType::kBF16, rows);
    testing::FillProblem(problem, 700 + rows);
    const testing::PagedSequence pages(Ops(), problem);
    testing::AttentionResult result = testing::EmptyResult(Ops(), problem);
    const AttentionItem item = testing::MakeItem(problem, pages, 0, rows, result);
    const int64_t before = EmulatedDevice::Get().launches;
    ASSERT_TRUE(Ops().attention(*stream, testing::MakeParams(problem, {&item, 1})).ok());
    ASSERT_TRUE(stream->Synchronize().ok());
    EXPECT_EQ(EmulatedDevice::Get().launches, before + 1);
    testing::ExpectNear(problem, result, testing::Attend(testing::Reference(), problem, 1));
  }
}

// Queries that f16 would lose or turn into infinity, against keys that make up for it.
TEST(AttentionDecodeTest, QueriesOfAnySizeMeet8BitKeys) {
  for (const float size : {0x1p-30f, 0x1p30f}) {
    testing::Problem problem = FewRows(DType::kI8, 2);
    testing::FillProblem(problem, 710);
    for (int64_t r = 0; r < problem.rows(); ++r) {
      for (int64_t c = 0; c < problem.query.cols(); ++c) problem.query.row(r)[c] *= size;
    }
    for (int64_t r = 0; r < problem.k.rows(); ++r) {
      for (int64_t c = 0; c < problem.k.cols(); ++c) problem.k.row(r)[c] /= size;
    }
    testing::ExpectNear(problem, testing::Attend(Ops(), problem, 1),
                        testing::Attend(testing::Reference(), problem, 1));
  }
}

// Every code, in every place, as pages hold it.
template <DType kDType>
void ExpectCodesWiden() {
  const auto value = [](uint32_t word, int byte) {
    const auto code = static_cast<uint8_t>(word >> 8 * byte);
    float wide = static_cast<int8_t>(code);
    if (kDType != DType::kI8) ConvertToFloat(kDType, &code, &wide, 1);
    return wide;
  };
  const auto half = [](uint32_t pair, int i) {
    return ToFloat(Float16{static_cast<uint16_t>(pair >> 16 * i)});
  };
  const auto expect = [](float got, float wanted, uint32_t word) {
    EXPECT_TRUE(got == wanted || (!std::isfinite(got) && !std::isfinite(wanted)))
        << DTypeName(kDType) << " " << word << ": " << got << ", not " << wanted;
  };
  for (uint32_t code = 0; code < 256; ++code) {
    const uint32_t other = code * 31 % 256;
    const uint32_t word = code | other << 8 | (255 - code) << 16 | (255 - other) << 24;
    const uint32_t second = word ^ 0x35ca96e1u;
    for (int i = 0; i < 4; ++i) {
      expect(half(HalvesOfCodes<kDType>(word, i / 2), i % 2), value(word, i), word);
      const uint32_t pair = PairOfCodes<kDType>(word, second, i);
      for (int of = 0; of < 2; ++of) {
        const float got = kDType == DType::kI8
                              ? ToFloat(BFloat16{static_cast<uint16_t>(pair >> 16 * of)})
                              : half(pair, of);
        expect(got, value(of == 0 ? word : second, i), word);
      }
    }
  }
}

TEST(AttentionDecodeTest, CodesWidenExactly) {
  ExpectCodesWiden<DType::kI8>();
  ExpectCodesWiden<DType::kF8E4M3>();
  ExpectCodesWiden<DType::kF8E5M2>();
}

}  // namespace
}  // namespace annulus::cuda
