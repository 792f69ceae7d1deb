#include "bench/attention/structured_gates.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "bench/attention/structured_head.h"
#include "bench/gates/gate_collector.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int32_t kTokens = 8192;
constexpr uint32_t kSeed = 1000;
constexpr int kQueryBlocks = 48;
constexpr int kStructures = 3;  // of heads, by index

}  // namespace

absl::StatusOr<AttentionGates> FitStructuredGates(const AttentionShape& shape, Backend& backend,
                                                  const OpTable& ops) {
  AttentionShape read = shape;
  read.tokens = kTokens;
  read.ranks = 1;
  read.kv_heads = std::min(shape.kv_heads, kStructures);
  read.heads = read.kv_heads;
  ANNULUS_ASSIGN_OR_RETURN(const auto world, RingWorld::Create(read, 1, backend, ops));
  const RingWorld::Plan plan = world->PlanPrefill(AttentionPolicy(), RingMode::kPassKv, 0);
  ANNULUS_RETURN_IF_ERROR(world->UseStructuredHeads(plan, kSeed));
  GateCollector collector({.layers = 1, .query_blocks = kQueryBlocks});
  collector.Begin(kTokens);
  ANNULUS_RETURN_IF_ERROR(world->LookAt(plan, collector));
  const GateFitting options{.passes = 30};
  std::vector<FittedGate> fitted;
  for (const std::vector<GateExamples>& documents : collector.layer(0)) {
    fitted.push_back(FitGate(documents, options));
  }
  AttentionGates gates;
  GateLayer& layer = gates.layers.emplace_back();
  layer.width = options.width;
  const int group = shape.heads / shape.kv_heads;
  for (int kv_head = 0; kv_head < shape.kv_heads; ++kv_head) {
    const FittedGate& gate = fitted[kv_head % kStructures];
    layer.key.insert(layer.key.end(), gate.key.begin(), gate.key.end());
    for (int head = 0; head < group; ++head) {
      layer.query.insert(layer.query.end(), gate.query.begin(), gate.query.end());
    }
  }
  return gates;
}

}  // namespace annulus::bench
