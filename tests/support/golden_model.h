#ifndef ANNULUS_TESTS_SUPPORT_GOLDEN_MODEL_H_
#define ANNULUS_TESTS_SUPPORT_GOLDEN_MODEL_H_

#include <string>

#include "engine/model/files/safetensors.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// The model of a checkpoint of tests/golden, with f32 weights, on the first CPU kernels.
inline RankModel LoadGoldenModel(CpuWorld& world, const std::string& name, int page_tokens,
                                 DType kv_dtype) {
  const std::string directory = TestFile("golden/" + name).string();
  const ModelConfig config = LoadModelConfig(directory).value();
  const auto tensors = SafetensorsCheckpoint::Open(directory).value();
  const OpTable& ops = *world.registry.Available("cpu")[0];
  return MakeRankModel(config,
                       LoadWeights(config, *tensors, *world.backend, ops, DType::kF32).value(), ops,
                       page_tokens, kv_dtype);
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_SUPPORT_GOLDEN_MODEL_H_
