#ifndef ANNULUS_TESTS_ENGINE_RUNNER_MASKED_CHECKPOINT_H_
#define ANNULUS_TESTS_ENGINE_RUNNER_MASKED_CHECKPOINT_H_

// Whole small models against a plain forward pass under a mask.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "engine/model/safetensors.h"
#include "engine/sparse/block_pattern.h"
#include "tests/engine/model/plain_forward.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// A checkpoint of tests/golden.
struct MaskedCheckpoint {
  static constexpr int kPage = 16;

  explicit MaskedCheckpoint(const std::string& name) {
    const std::string directory = TestFile("golden/" + name).string();
    config = LoadModelConfig(directory).value();
    tensors = SafetensorsCheckpoint::Open(directory).value();
  }
  RankModel Load(CpuWorld& world, const OpTable& ops, DType kv_dtype = DType::kF32) const {
    return MakeRankModel(config,
                         LoadWeights(config, *tensors, *world.backend, ops, DType::kF32).value(),
                         ops, kPage, kv_dtype);
  }
  int per_kv_head() const { return config.heads / config.kv_heads; }
  // Logits of every position; mask(layer, head, row, key): how often the row attends the key.
  template <class Mask>
  std::vector<float> Logits(const std::vector<int32_t>& ids, const Mask& mask) const {
    return PlainForward(config, *tensors, mask).Logits(ids);
  }

  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
};

inline std::vector<int32_t> RandomPrompt(int length, int vocabulary, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<int32_t> ids(length);
  for (int32_t& id : ids) id = static_cast<int32_t>(random() % vocabulary);
  return ids;
}

// Whether the lists hold a key for a row of a query head.
inline bool Lists(const BlockPattern& lists, int per_kv_head, int64_t head, int64_t row,
                  int64_t key) {
  const int group = lists.shape.head_groups == 1 ? 0 : static_cast<int>(head) / per_kv_head;
  const auto keys = lists.keys(group, static_cast<int32_t>(row) / lists.block_tokens);
  return std::binary_search(keys.begin(), keys.end(),
                            static_cast<int32_t>(key / lists.block_tokens));
}

// The largest difference of some rows' logits, by the largest of the expected ones.
inline double RelativeError(const std::map<int32_t, std::vector<float>>& logits,
                            const std::vector<float>& expected, int vocabulary) {
  double worst = 0;
  double scale = 0;
  for (const auto& [position, row] : logits) {
    for (int v = 0; v < vocabulary; ++v) {
      const double value = expected[static_cast<size_t>(position) * vocabulary + v];
      worst = std::max(worst, std::abs(row[v] - value));
      scale = std::max(scale, std::abs(value));
    }
  }
  return worst / scale;
}

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_ENGINE_RUNNER_MASKED_CHECKPOINT_H_
