// golden_check: for each folder of standard input, one a line, a model with expected.json and
// logits.f32 as in tests/golden, prints a line of JSON: {"error": the largest difference of any
// logit of the prompt over the largest logit, "same": whether the greedy tokens are those
// expected}, the worst of several rings and of the best and the plainest table; or {"refused":
// why}. tests/golden/random_configurations.py asks it.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/status_macros.h"
#include "tests/support/golden.h"
#include "tests/support/step_driver.h"

namespace annulus {
namespace {

using testing::CpuWorld;
using testing::DriverOptions;
using testing::DriverResult;
using testing::Golden;
using testing::StepDriver;

double Error(const DriverResult& result, const Golden& golden) {
  double largest = 0, scale = 0;
  for (const float wanted : golden.logits) scale = std::max(scale, std::abs(double{wanted}));
  for (const auto& [position, row] : result.logits) {
    if (position >= static_cast<int64_t>(golden.prompt.size())) continue;
    for (size_t v = 0; v < row.size(); ++v) {
      if (!std::isfinite(row[v])) return std::numeric_limits<double>::max();
      const double wanted = golden.logits[static_cast<size_t>(position) * row.size() + v];
      largest = std::max(largest, std::abs(row[v] - wanted));
    }
  }
  return largest / scale;
}

absl::StatusOr<nlohmann::json> Check(CpuWorld& world, const std::string& folder) {
  constexpr int kPageTokens = 16;
  ANNULUS_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(folder));
  ANNULUS_ASSIGN_OR_RETURN(const auto source, SafetensorsCheckpoint::Open(folder));
  const Golden golden = testing::LoadGolden(folder);
  double error = 0;
  bool same = true;
  const std::vector<const OpTable*> tables = world.registry.Available("cpu");
  for (const OpTable* ops : {tables.front(), tables.back()}) {
    ANNULUS_ASSIGN_OR_RETURN(ModelWeights weights,
                             LoadWeights(config, *source, *world.backend, *ops, DType::kF32));
    const RankModel model =
        MakeRankModel(config, std::move(weights), *ops, kPageTokens, DType::kF32);
    for (const auto& [ranks, mode] :
         {std::pair(1, RingMode::kPassKv), {3, RingMode::kPassKv}, {3, RingMode::kPassQ}}) {
      DriverOptions options;
      options.ranks = ranks;
      options.mode = mode;
      options.prefill_rows = kPageTokens;
      options.all_logits = true;
      const int tokens = std::max<int>(1, static_cast<int>(golden.greedy.size()));
      DriverResult result = StepDriver(world, model, options).Run({golden.prompt}, tokens)[0];
      error = std::max(error, Error(result, golden));
      result.tokens.resize(golden.greedy.size());
      same = same && result.tokens == golden.greedy;
    }
  }
  return nlohmann::json{{"error", error}, {"same", same}};
}

}  // namespace
}  // namespace annulus

int main() {
  annulus::testing::CpuWorld world;
  for (std::string folder; std::getline(std::cin, folder);) {
    const auto found = annulus::Check(world, folder);
    const nlohmann::json line =
        found.ok() ? *found : nlohmann::json{{"refused", std::string(found.status().message())}};
    std::cout << line.dump() << std::endl;
  }
}
