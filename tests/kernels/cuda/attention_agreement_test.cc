// The kernels of sm90/ against those of sm80/, which share neither tiles nor instructions, on one
// GPU and in its memory: at the sizes of long prompts, which the reference would take minutes for.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/ops.h"
#include "tests/kernels/cpu/attention_fixture.h"
#include "tests/kernels/cuda/which_gpu.h"

namespace annulus::cuda {
namespace {

// A problem whose pages and queries are the device's, as those of a model are.
class ProblemOnDevice {
 public:
  explicit ProblemOnDevice(const testing::Problem& problem) : problem_(problem) {
    const KvPageShape& shape = problem.shape;
    const size_t page_bytes = KvPageBytes(shape);
    pages_ = backend_.Allocate(problem.page_present.size() * page_bytes).value();
    std::vector<std::byte*> pages;
    std::vector<int32_t> slots;
    for (int64_t j = 0; j < problem.end; ++j) {
      pages.push_back(pages_.data() + static_cast<size_t>(j / shape.page_tokens) * page_bytes);
      slots.push_back(static_cast<int32_t>(j % shape.page_tokens));
      if (slots.back() > 0) continue;
      const int64_t filled = std::min<int64_t>(shape.page_tokens, problem.end - j);
      views_.push_back({pages.back(), static_cast<int32_t>(j), static_cast<int32_t>(filled)});
    }
    EXPECT_TRUE(KvAppend(*stream_, {shape, problem.k.view(), problem.v.view(), pages, slots}).ok());
    const size_t query_bytes =
        static_cast<size_t>(problem.rows() * problem.query.view().stride) * 4;
    query_ = backend_.Allocate(query_bytes).value();
    EXPECT_TRUE(backend_.Copy(*stream_, query_.data(), problem.query.row(0), query_bytes).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
  }

  testing::AttentionResult AttendBy(const OpTable& table) {
    testing::AttentionResult result = testing::EmptyResult(table, problem_);
    const size_t o_bytes = result.o.size() * sizeof(float);
    const size_t lse_bytes = result.lse.size() * sizeof(float);
    DeviceBuffer o = backend_.Allocate(o_bytes).value();
    DeviceBuffer lse = backend_.Allocate(lse_bytes).value();
    AttentionItem item;
    item.query = {query_.as<float>(), problem_.rows(), problem_.query.cols(),
                  problem_.query.view().stride};
    item.positions = problem_.positions;
    item.pages = views_;
    item.state = {o.as<float>(), lse.as<float>(), problem_.rows(), result.heads, result.v_dim};
    EXPECT_TRUE(table.attention(*stream_, testing::MakeParams(problem_, {&item, 1})).ok());
    EXPECT_TRUE(backend_.Copy(*stream_, result.o.data(), o.data(), o_bytes).ok());
    EXPECT_TRUE(backend_.Copy(*stream_, result.lse.data(), lse.data(), lse_bytes).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return result;
  }

 private:
  const testing::Problem& problem_;
  Backend& backend_ = testing::BackendOf(HopperOps());
  const std::unique_ptr<Stream> stream_ = backend_.CreateStream(1).value();
  DeviceBuffer pages_;
  DeviceBuffer query_;
  std::vector<KvPageView> views_;
};

// The last `rows` of `tokens`. Queries so large that a row sees little but its best few keys: what
// a row loses of one key shows, whereas a mean of all would hardly change.
void ExpectAgreement(DType dtype, int dim, int64_t tokens, int64_t rows, uint32_t seed) {
  testing::Problem problem;
  problem.shape = {.page_tokens = 64, .kv_heads = 1, .k_dim = dim, .v_dim = dim, .dtype = dtype};
  problem.group = 8;
  problem.end = tokens;
  problem.positions = testing::Consecutive(tokens - rows, rows);
  testing::FillProblem(problem, seed);
  for (int64_t r = 0; r < rows; ++r) {
    for (int64_t c = 0; c < problem.query.cols(); ++c) problem.query.row(r)[c] *= 8;
  }
  SCOPED_TRACE(problem.name);
  ProblemOnDevice on_device(problem);
  testing::AttentionResult hopper = on_device.AttendBy(HopperOps());
  // Both round weights, and those of int8 with the values' scales.
  hopper.weight_error = 2 * hopper.weight_error + (dtype == DType::kI8 ? 0x1p-10 : 0);
  testing::ExpectNear(problem, hopper, on_device.AttendBy(Ops()));
}

TEST(AttentionAgreementTest, BothPathsAgreeOnSomeKeys) {
  ExpectAgreement(DType::kBF16, 64, 640, 40, 900);
  ExpectAgreement(DType::kI8, 128, 640, 40, 901);
}

// More units than a GPU has multiprocessors.
TEST(AttentionAgreementTest, BothPathsAgreeOn16384Keys) {
  if (!testing::IsRealGpu()) GTEST_SKIP() << "the emulation would take hours";
  uint32_t seed = 910;
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kI8}) {
    for (const int dim : {64, 128, 256}) {
      ExpectAgreement(dtype, dim, 16384, 4096, seed++);
      if (::testing::Test::HasFatalFailure()) return;
    }
  }
}

}  // namespace
}  // namespace annulus::cuda
