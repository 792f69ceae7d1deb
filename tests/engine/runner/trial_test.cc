// Whole models by the ways of computing that are on trial (kernels/cuda/trial.h), on emulated GPUs.
#include "kernels/cuda/trial.h"

#include <cstdint>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/cuda/ops.h"
#include "tests/engine/runner/device_fixture.h"
#include "tests/support/cuda/emulated_device.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using testing::AllLogits;
using testing::DriverOptions;
using testing::DriverResult;
using testing::RingSizes;
using testing::Some;
using testing::StepDriver;

using TrialTest = testing::DeviceTest;

// Prompts and answers of models with fp8 weights and inputs: plain, with norms that add to the
// residuals, with experts. Norms and gated products that wait for their products save launches.
TEST_F(TrialTest, ModelsHaveTheSameBits) {
  const OpTable& old = *Find("cuda/sm90");
  const OpTable trial = cuda::TrialOf(old).value();
  for (const std::string& name : Some({"llama_mha", "gemma2", "qwen2_moe", "cohere_head_norms"})) {
    RankModel model = Load(name, DType::kF8E4M3, *backend_, old);
    model.activations = Activations::kFp8;
    for (const int ranks : RingSizes()) {
      for (const bool graphs : {false, true}) {
        SCOPED_TRACE(::testing::Message() << name << ", " << ranks << " ranks, graphs " << graphs);
        DriverOptions options = AllLogits(ranks, RingMode::kPassKv);
        options.graphs = graphs;
        int64_t launches = 0;
        const auto run = [&](const OpTable& table) {
          model.ops = &table;
          const int64_t before = cuda::EmulatedDevice::Get().launches;
          const std::vector<int32_t> prompt = {3, 14, 15, 92, 65, 35, 89, 79, 32, 38, 46, 26, 43};
          const DriverResult result = StepDriver(*backend_, model, options).Run({prompt}, 5)[0];
          launches = cuda::EmulatedDevice::Get().launches - before;
          return result;
        };
        const DriverResult expected = run(old);
        const int64_t old_launches = launches;
        const DriverResult actual = run(trial);
        EXPECT_EQ(actual.tokens, expected.tokens);
        EXPECT_EQ(actual.logits, expected.logits);
        EXPECT_LT(launches, old_launches);
      }
    }
  }
}

}  // namespace
}  // namespace annulus
