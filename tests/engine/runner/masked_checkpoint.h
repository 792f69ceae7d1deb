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

#include "bench/gates/fit_gates.h"
#include "engine/model/files/safetensors.h"
#include "engine/sparse/block_pattern.h"
#include "kernels/base/check.h"
#include "kernels/ops/attention.h"
#include "tests/engine/model/plain_forward.h"
#include "tests/support/golden.h"
#include "tests/support/round_to_storage.h"
#include "tests/support/step_driver.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus::testing {

// A checkpoint of tests/golden.
struct MaskedCheckpoint {
  static constexpr int kPage = 16;

  explicit MaskedCheckpoint(const std::string& name) {
    const std::string directory = TestFile("golden/" + name).string();
    config = LoadModelConfig(directory).value();
    tensors = SafetensorsCheckpoint::Open(directory).value();
    gates = RandomGates();
  }
  RankModel Load(CpuWorld& world, const OpTable& ops, DType kv_dtype = DType::kF32) const {
    RankModel model = MakeRankModel(
        config, LoadWeights(config, *tensors, *world.backend, ops, DType::kF32).value(), ops, kPage,
        kv_dtype);
    model.gates = gates;
    return model;
  }
  const AttentionShape& attention() const { return WidestAttention(config); }
  int per_kv_head() const { return attention().heads / attention().kv_heads; }
  // Logits of every position, with keys and values as `kv_dtype` stores them; mask(layer, head,
  // row, key): how often the row attends the key.
  template <class Mask>
  std::vector<float> Logits(const std::vector<int32_t>& ids, const Mask& mask,
                            DType kv_dtype = DType::kF32) const {
    const auto storage = [kv_dtype](float* row, int64_t dim) {
      if (kv_dtype != DType::kF32) RoundToStorage(kv_dtype, row, dim);
    };
    return PlainForward(config, *tensors, mask, storage).Logits(ids);
  }

  // Seeded gates for `learned`, through a safetensors file.
  std::shared_ptr<const AttentionGates> RandomGates() const {
    constexpr int kWidth = 6;
    GateShape shape;
    for (const LayerConfig& layer : config.layers) shape.layers.push_back(layer.window == 0);
    shape.heads = attention().heads;
    shape.kv_heads = attention().kv_heads;
    shape.k_dim = attention().k_dim;
    std::mt19937 random(7);
    std::normal_distribution<float> normal;
    const auto draw = [&](int64_t count) {
      std::vector<float> values(static_cast<size_t>(count));
      for (float& value : values) value = normal(random);
      return values;
    };
    AttentionGates drawn;
    drawn.layers.resize(shape.layers.size());
    for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
      if (!shape.layers[layer]) continue;
      drawn.layers[layer].width = kWidth;
      drawn.layers[layer].query = draw(int64_t{kWidth} * shape.heads * shape.k_dim);
      drawn.layers[layer].key = draw(int64_t{3} * kWidth * shape.kv_heads * shape.k_dim);
    }
    const TempDirectory directory;
    const std::string path = (directory.path() / "gates.safetensors").string();
    ANNULUS_CHECK(bench::WriteGates(drawn, shape, path).ok());
    return std::make_shared<const AttentionGates>(
        ReadGates(*SafetensorsCheckpoint::OpenFile(path).value(), shape).value());
  }

  ModelConfig config;
  std::unique_ptr<TensorSource> tensors;
  std::shared_ptr<const AttentionGates> gates;
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

// What logits may be off by, relative to the largest, where the reference stores keys and values
// alike. A number that lies between two of the type may still go to the other one: rarely, unless
// the table multiplies 8-bit pages in bf16, which moves the next layer's keys by 2^-9.
inline double ToleranceOf(const OpTable& ops, DType kv_dtype) {
  if (kv_dtype == DType::kF32) return 1e-4;
  const bool narrow = kv_dtype == DType::kF8E4M3 || kv_dtype == DType::kF8E5M2;
  const bool bf16 = ops.name == "cpu/amx" || ops.name == "cpu/avx512-bf16";
  if (!bf16 || kv_dtype == DType::kF16) return narrow ? 2e-2 : 1e-2;
  return narrow ? 0.15 : 0x1p-4;
}

// How many branches of `dilated` keep a key for a row of a query head.
inline int KeptBy(const std::vector<DilatedBranch>& branches, int64_t head, int64_t row,
                  int64_t key) {
  return static_cast<int>(std::count_if(
      branches.begin(), branches.end(),
      [&](const DilatedBranch& branch) { return branch.Keeps(static_cast<int>(head), row, key); }));
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
