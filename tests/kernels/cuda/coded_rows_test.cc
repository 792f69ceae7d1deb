// Norms and gated products that are kept back for products of fp8: the bits are those of the ops
// one by one, and no op is lost or overtaken.
#include "kernels/cuda/sm90/coded_rows.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/base/sanitizers.h"
#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/cuda_stream.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/ops.h"
#include "kernels/cuda/trial.h"
#include "kernels/cuda/tuning/coded_rows_plan.h"
#include "tests/kernels/cpu/cpu_test_util.h"
#include "tests/support/cuda/emulated_device.h"

namespace annulus::cuda {
namespace {

using testing::SameBits;
using testing::TestMatrix;

DeviceInfo Hopper() { return FindDevices()->front(); }

// Every fourth row has something that rounds in a way of its own.
void FillRows(std::mt19937& random, TestMatrix& rows) {
  rows.FillNormal(random, 3);
  const auto any = [&] { return static_cast<int64_t>(random() % rows.cols()); };
  for (int64_t r = 1; r < rows.rows(); r += 4) {
    switch (r / 4 % 6) {
      case 0:
        std::fill_n(rows.row(r), rows.cols(), 0.0f);
        break;
      case 1:
        rows.row(r)[any()] = std::numeric_limits<float>::infinity();
        break;
      case 2:
        rows.row(r)[any()] = std::numeric_limits<float>::quiet_NaN();
        break;
      case 3:
        std::fill_n(rows.row(r), rows.cols(), -0x1p-140f);
        break;
      case 4:
        rows.row(r)[any()] = -0x1p100f;
        break;
      default:
        rows.row(r)[any()] = -0.0f;
    }
  }
}

// What LaunchRoundRows, or LaunchCodedRows, leaves.
struct RowCodes {
  RowCodes(RoundedRows form, int64_t rows, int64_t cols) : kind(form) {
    const int64_t multiple = kind == RoundedRows::kFloat8Wide ? 4 : kRoundedDepth;
    depth = (cols + multiple - 1) / multiple * multiple;
    lines.resize(static_cast<size_t>(rows * depth / 4) + 1);
    scales.assign(static_cast<size_t>(rows) + 1, -1.0f);
  }

  RoundRowsArguments Of(const ConstMatrixView& rows) {
    return {rows, kind, depth, lines.data(), scales.data()};
  }
  bool operator==(const RowCodes& other) const {
    const auto bytes_of = [](const auto& values) { return values.size() * sizeof(values[0]); };
    return std::memcmp(lines.data(), other.lines.data(), bytes_of(lines)) == 0 &&
           std::memcmp(scales.data(), other.scales.data(), bytes_of(scales)) == 0;
  }

  struct alignas(16) Line {
    std::byte bytes[16] = {};
  };

  RoundedRows kind;
  int64_t depth = 0;
  std::vector<Line> lines;  // room for the widest form
  std::vector<float> scales;
};

constexpr RoundedRows kForms[] = {RoundedRows::kFloat8, RoundedRows::kFloat8Steps,
                                  RoundedRows::kFloat8Wide};

// The op with its output in `output`, in two launches and in one.
void ExpectSameRows(const std::function<RowsOp(TestMatrix&)>& make, const TestMatrix& before) {
  for (const RoundedRows form : kForms) {
    SCOPED_TRACE(static_cast<int>(form));
    TestMatrix apart = before;
    RowCodes apart_codes(form, before.rows(), before.cols());
    ASSERT_EQ(LaunchRowsOp(nullptr, make(apart)), 0);
    ASSERT_EQ(LaunchRoundRows(nullptr, apart_codes.Of(apart.view())), 0);
    TestMatrix together = before;
    RowCodes codes(form, before.rows(), before.cols());
    ASSERT_EQ(LaunchCodedRows(nullptr, {make(together), codes.Of(together.view())}), 0);
    for (int64_t r = 0; r < before.rows(); ++r) {
      ASSERT_TRUE(SameBits(apart.row(r), together.row(r), before.cols())) << "row " << r;
    }
    EXPECT_TRUE(together.PaddingUntouched());
    EXPECT_TRUE(codes == apart_codes);
  }
}

struct RowsCase {
  int64_t rows;
  int64_t cols;
};
// Parts without columns, with a single step, with a short last one; several loads of a thread.
constexpr RowsCase kRowsCases[] = {{1, 1},   {3, 37},  {17, 64},  {26, 255},
                                   {2, 896}, {33, 96}, {5, 1090}, {2, 4610}};

class CodedRowsTest : public ::testing::Test {
 protected:
  CodedRowsTest() { EXPECT_TRUE(UseDevice(0).ok()); }
};

TEST_F(CodedRowsTest, NormsHaveTheBitsOfTwoLaunches) {
  for (const RowsCase& shape : kRowsCases) {
    if (kSanitized && shape.rows * shape.cols > 2000) continue;
    SCOPED_TRACE(::testing::Message() << shape.rows << " rows of " << shape.cols);
    std::mt19937 random(static_cast<uint32_t>(shape.cols));
    TestMatrix input(shape.rows, shape.cols, 3);
    FillRows(random, input);
    TestMatrix weights(2, shape.cols);
    weights.FillNormal(random);
    TestMatrix bias(1, shape.cols);
    bias.FillNormal(random);
    const TestMatrix empty(shape.rows, shape.cols, 5);
    for (const bool centred : {false, true}) {
      NormParams params;
      params.input = input.view();
      params.weight = weights.row(0);
      params.norm = {1e-5f, centred};
      params.bias = centred ? bias.row(0) : nullptr;
      params.weight_rows = centred ? 2 : 1;
      const auto make = [&](TestMatrix& output) {
        params.output = output.view();
        return RowsOp{params, {}};
      };
      ExpectSameRows(make, empty);
      // In place.
      const auto make_in_place = [&](TestMatrix& output) {
        params.input = params.output = output.view();
        return RowsOp{params, {}};
      };
      ExpectSameRows(make_in_place, input);
    }
  }
}

TEST_F(CodedRowsTest, GatedProductsHaveTheBitsOfTwoLaunches) {
  for (const RowsCase& shape : kRowsCases) {
    if (kSanitized && shape.rows * shape.cols > 2000) continue;
    std::mt19937 random(static_cast<uint32_t>(shape.cols));
    TestMatrix gate(shape.rows, shape.cols, 2);
    TestMatrix up(shape.rows, shape.cols, 7);
    FillRows(random, gate);
    up.FillNormal(random);
    for (int activation = 0; activation < kActivations; ++activation) {
      SCOPED_TRACE(::testing::Message()
                   << shape.rows << " rows of " << shape.cols << ", activation " << activation);
      GatedMulParams params;
      params.up = up.view();
      params.activation = static_cast<Activation>(activation);
      params.alpha = 1.7f;
      params.limit = 7;
      const auto make = [&](TestMatrix& output) {
        params.gate = params.output = output.view();  // in place, as in the engine
        return RowsOp{{}, params};
      };
      ExpectSameRows(make, gate);
    }
  }
}

RowsOp NormOf(int64_t rows, int64_t cols) {
  static float value = 0;
  NormParams norm;
  norm.output = {&value, rows, cols, cols};
  return {norm, {}};
}

TEST(MakesCodedRowsTest, FewRowsThatFitABlock) {
  DeviceInfo device = Hopper();
  EXPECT_TRUE(MakesCodedRows(NormOf(1, 896), device));
  EXPECT_TRUE(MakesCodedRows(NormOf(kLibraryRows - 1, 16384), device));
  EXPECT_FALSE(MakesCodedRows(NormOf(kLibraryRows, 16384), device));
  EXPECT_FALSE(MakesCodedRows(NormOf(0, 896), device));
  EXPECT_FALSE(MakesCodedRows(NormOf(1, 60000), device)) << "more than a block's shared memory";
  GatedMulParams gated;
  gated.output = NormOf(1, 60000).output();
  EXPECT_TRUE(MakesCodedRows({{}, gated}, device)) << "blocks have just their part";
  device.minor = 1;
  EXPECT_FALSE(MakesCodedRows(NormOf(1, 896), device));
}

constexpr int64_t kResidual = 70;
constexpr int64_t kInner = 150;

// The ops of a layer between attentions, by either table on a stream.
class KeptRowsTest : public ::testing::Test {
 protected:
  KeptRowsTest() {
    std::mt19937 random(3);
    for (TestMatrix* const each : {&input_, &weight_, &source_, &wide_source_, &down_source_}) {
      each->FillNormal(random);
    }
    query_ = testing::Pack(old_, source_, DType::kF8E4M3);
    value_ = testing::Pack(old_, source_, DType::kBF16);
    wide_ = testing::Pack(old_, wide_source_, DType::kF8E4M3);
    down_ = testing::Pack(old_, down_source_, DType::kF8E4M3);
    const auto waits = std::make_shared<DeviceWaits>(std::chrono::seconds(60));
    stream_ = CudaStream::Create(Hopper(), waits, /*with_library=*/false).value();
  }

  void Norm(const OpTable& table, int64_t rows, TestMatrix& output, bool accumulate = false) {
    NormParams params;
    params.input = input_.view().row_range(0, rows);
    params.weight = weight_.row(0);
    params.output = output.view().row_range(0, rows);
    params.accumulate = accumulate;
    ASSERT_TRUE(table.norm(*stream_, params).ok());
  }

  static LinearParams ProductOf(const PackedMatrix& weight, int64_t rows, const TestMatrix& input,
                                TestMatrix& output) {
    LinearParams params;
    params.input = input.view().row_range(0, rows);
    params.weight = &weight;
    params.output = output.view().row_range(0, rows);
    params.activations = weight.dtype == DType::kF8E4M3 ? Activations::kFp8 : Activations::kFloat;
    return params;
  }

  // Everything that a layer's ops write, in order.
  std::vector<TestMatrix> RunLayer(const OpTable& table, int64_t rows) {
    TestMatrix normed(rows, kResidual, 2), q(rows, kResidual), k(rows, kResidual),
        v(rows, kResidual), gate(rows, kInner, 1), up(rows, kInner), result(rows, kResidual);
    Norm(table, rows, normed);
    const LinearParams first[] = {ProductOf(query_, rows, normed, q),
                                  ProductOf(query_, rows, normed, k),
                                  ProductOf(value_, rows, normed, v)};
    EXPECT_TRUE(Linears(table, *stream_, first).ok());
    Norm(table, rows, normed);
    const LinearParams second[] = {ProductOf(wide_, rows, normed, gate),
                                   ProductOf(wide_, rows, normed, up)};
    EXPECT_TRUE(Linears(table, *stream_, second).ok());
    EXPECT_TRUE(
        table.gated_mul(*stream_, {gate.view(), up.view(), gate.view(), Activation::kSilu, 0, 0})
            .ok());
    EXPECT_TRUE(table.linear(*stream_, ProductOf(down_, rows, gate, result)).ok());
    EXPECT_TRUE(stream_->Synchronize().ok());
    return {normed, q, k, v, gate, up, result};
  }

  static void ExpectSame(const std::vector<TestMatrix>& expected,
                         const std::vector<TestMatrix>& actual) {
    for (size_t i = 0; i < expected.size(); ++i) {
      for (int64_t r = 0; r < expected[i].rows(); ++r) {
        ASSERT_TRUE(SameBits(expected[i].row(r), actual[i].row(r), expected[i].cols()))
            << "matrix " << i << " row " << r;
      }
      EXPECT_TRUE(actual[i].PaddingUntouched()) << i;
    }
  }

  // Launches of `run`.
  static int64_t LaunchesOf(const std::function<void()>& run) {
    const int64_t before = EmulatedDevice::Get().launches;
    run();
    return EmulatedDevice::Get().launches - before;
  }

  // Whether the first rows of `output` are those of the norm, computed by the old table.
  bool IsNormed(const TestMatrix& output, int64_t rows) {
    TestMatrix expected(rows, kResidual);
    Norm(old_, rows, expected);
    EXPECT_TRUE(stream_->Synchronize().ok());
    for (int64_t r = 0; r < rows; ++r) {
      if (!SameBits(expected.row(r), output.row(r), kResidual)) return false;
    }
    return true;
  }

  static constexpr int64_t kMostRows = 128;
  const OpTable old_ = HopperOps();
  const OpTable trial_ = TrialOf(HopperOps()).value();
  TestMatrix input_{kMostRows, kResidual, 1};
  TestMatrix weight_{1, kResidual};
  TestMatrix source_{kResidual, kResidual};
  TestMatrix wide_source_{kInner, kResidual};
  TestMatrix down_source_{kResidual, kInner};
  PackedMatrix query_;
  PackedMatrix value_;
  PackedMatrix wide_;
  PackedMatrix down_;
  std::unique_ptr<CudaStream> stream_;
};

TEST_F(KeptRowsTest, ALayerHasTheSameBitsWithThreeLaunchesLess) {
  for (const int64_t rows : {1, 2, 16, 17, 64, 127, 128}) {
    if (kSanitized && rows > 17) break;
    SCOPED_TRACE(rows);
    std::vector<TestMatrix> expected;
    std::vector<TestMatrix> actual;
    const int64_t before = LaunchesOf([&] { expected = RunLayer(old_, rows); });
    const int64_t launches = LaunchesOf([&] { actual = RunLayer(trial_, rows); });
    ExpectSame(expected, actual);
    EXPECT_EQ(before - launches, rows < kLibraryRows ? 3 : 0);
  }
}

TEST_F(KeptRowsTest, GraphsHoldWhatIsKeptBack) {
  const std::vector<TestMatrix> expected = RunLayer(old_, 3);
  for (int step = 0; step < 3; ++step) {
    const auto graph = stream_->BeginGraph().value();
    TestMatrix normed(3, kResidual), q(3, kResidual), last(3, kResidual);
    Norm(trial_, 3, normed);
    ASSERT_TRUE(trial_.linear(*stream_, ProductOf(query_, 3, normed, q)).ok());
    Norm(trial_, 3, last);  // kept back when the graph is launched
    ASSERT_TRUE(graph->Launch().ok());
    ASSERT_TRUE(stream_->Synchronize().ok());
    EXPECT_TRUE(IsNormed(last, 3));
    ExpectSame({expected[1]}, {q});
  }
}

// A graph that is dropped takes with it what was kept back.
TEST_F(KeptRowsTest, ADroppedGraphDropsIt) {
  TestMatrix normed(1, kResidual);
  {
    const auto graph = stream_->BeginGraph().value();
    Norm(trial_, 1, normed);
  }
  ASSERT_TRUE(stream_->Synchronize().ok());
  EXPECT_TRUE(std::isnan(normed.row(0)[0]));
}

// Whatever comes next that does not read just these rows as codes.
TEST_F(KeptRowsTest, EverythingElseComesAfterIt) {
  const DeviceInfo device = Hopper();
  const auto event = CudaEvent::Create(device.ordinal, /*timed=*/false).value();
  std::vector<float> copy(kResidual);
  TestMatrix normed(4, kResidual), other(4, kResidual), out(4, kResidual);
  Norm(old_, 4, other);
  ASSERT_TRUE(stream_->Synchronize().ok());
  const std::pair<std::string, std::function<absl::Status()>> nexts[] = {
      {"a wait", [&] { return stream_->Synchronize(); }},
      {"an event", [&] { return stream_->Record(*event); }},
      {"a mark", [&] { return stream_->Mark(*event); }},
      {"a wait for an event", [&] { return stream_->Await(*event); }},
      {"a copy",
       [&] { return stream_->Copy(copy.data(), normed.row(0), kResidual * sizeof(float)); }},
      {"a graph",
       [&] {
         auto graph = stream_->BeginGraph();
         return graph.ok() ? (*graph)->Launch() : graph.status();
       }},
      {"another op",
       [&] {
         return trial_.scale(*stream_, {out.view(), 0});
       }},
      {"another norm",
       [&] {
         return trial_.norm(
             *stream_, {input_.view().row_range(0, 4), weight_.row(0), {1e-5f}, out.view(), false});
       }},
      {"a product of bf16",
       [&] { return trial_.linear(*stream_, ProductOf(value_, 4, normed, out)); }},
      {"a product of other rows",
       [&] { return trial_.linear(*stream_, ProductOf(query_, 4, other, out)); }},
      {"a product of fewer rows",
       [&] { return trial_.linear(*stream_, ProductOf(query_, 3, normed, out)); }},
      {"a product by the old table",
       [&] { return old_.linear(*stream_, ProductOf(query_, 4, normed, out)); }},
  };
  for (const auto& [name, next] : nexts) {
    SCOPED_TRACE(name);
    normed = TestMatrix(4, kResidual);
    Norm(trial_, 4, normed);
    EXPECT_TRUE(std::isnan(normed.row(0)[0])) << "was not kept back";
    ASSERT_TRUE(next().ok());
    EXPECT_FALSE(std::isnan(normed.row(0)[0])) << "is still kept back";
    EXPECT_TRUE(IsNormed(normed, 4));
  }
}

// It reads what it adds to, and few products read that.
TEST_F(KeptRowsTest, ANormThatAccumulatesIsNotKeptBack) {
  TestMatrix sums(2, kResidual);
  for (int64_t r = 0; r < 2; ++r) std::fill_n(sums.row(r), kResidual, 1.0f);
  EXPECT_EQ(LaunchesOf([&] { Norm(trial_, 2, sums, /*accumulate=*/true); }), 1);
  EXPECT_NE(sums.row(1)[0], 1.0f);
}

}  // namespace
}  // namespace annulus::cuda
