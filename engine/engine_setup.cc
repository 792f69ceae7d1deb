#include "engine/engine_setup.h"

#include <algorithm>
#include <chrono>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "engine/model/layer_graph.h"
#include "engine/scheduler/prompt_lookup.h"
#include "engine/scheduler/quantum.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status CheckRange(absl::string_view name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; allowed are ", low, " to ", high));
}

}  // namespace

absl::Status CheckOptions(const EngineOptions& options) {
  ANNULUS_RETURN_IF_ERROR(CheckRange("ranks", options.ranks, 1, 64));
  ANNULUS_RETURN_IF_ERROR(CheckRange("threads", options.threads, 0, 4096));
  ANNULUS_RETURN_IF_ERROR(CheckRange("max-context", options.max_context, 0, INT32_MAX));
  ANNULUS_RETURN_IF_ERROR(CheckRange("chunk-tokens", options.chunk_tokens, 16, 1 << 20));
  ANNULUS_RETURN_IF_ERROR(CheckRange("tokens-per-rank", options.tokens_per_rank, 1, INT32_MAX));
  ANNULUS_RETURN_IF_ERROR(CheckRange("max-running", options.max_running, 1, 4096));
  ANNULUS_RETURN_IF_ERROR(CheckRange("max-waiting", options.max_waiting, 1, 1 << 20));
  ANNULUS_RETURN_IF_ERROR(CheckRange(
      "stall-budget in milliseconds",
      options.stall_budget.value_or(std::chrono::milliseconds(0)).count(), 0, 3'600'000));
  for (const double share : {options.max_pinned, options.max_pinned_by_tenant}) {
    if (share >= 0 && share <= 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("max-pinned and max-pinned-by-tenant are shares of 0 to 1; given is ", share));
  }
  const int page = options.page_tokens;
  if (page != 16 && page != 32 && page != 64 && page != 128 && page != 256) {
    return absl::InvalidArgumentError(
        absl::StrCat("page-tokens is ", page, "; allowed are 16, 32, 64, 128 and 256"));
  }
  return CheckPolicy(options.attention.policy, page);
}

PlanLimits PlanLimitsOf(const EngineOptions& options, const RankModel& model) {
  PlanLimits limits;
  limits.ranks = options.ranks;
  limits.shards = ShardsFor(options.ranks);
  limits.page_tokens = options.page_tokens;
  const int pages = std::max(1, options.chunk_tokens / options.ranks / options.page_tokens);
  limits.prefill_rows_per_rank = pages * options.page_tokens;
  limits.sampled_rows_per_rank = options.max_running;
  limits.draft_rows_per_rank = PromptLookup::kMostDraft;
  limits.tokens_per_rank = options.tokens_per_rank;
  limits.layers = model.layers();
  const std::vector<LayerMultiplies> layers = MultipliesOfLayers(model.config);
  limits.pairs_in_rows = PairsInRows(layers);
  for (const LayerMultiplies& layer : layers) limits.layer_costs.push_back({layer.row, layer.pair});
  if (options.stall_budget != std::chrono::milliseconds(0) && limits.layers > 1) {
    limits.suspended_rows_per_rank =
        std::min(limits.prefill_rows_per_rank, SuspendedRows(options.page_tokens));
  }
  // The last page before a checkpoint can be computed again: its first row sees back further.
  const bool keeps = options.kv_host_bytes > 0 || !options.kv_disk.empty();
  const bool checks = keeps && options.kv_verify == KvVerify::kSample;
  for (const CacheGroup& group : model.groups) {
    const int32_t more = checks && group.window > 0 ? options.page_tokens : 0;
    limits.group_windows.push_back(group.window + more);
  }
  // So that a prompt can go on from a finished chunk after a restart: PageTier.
  limits.passing_checkpoints = options.kv_disk.empty() ? 0 : 1;
  return limits;
}

RankSetOptions RankSetOptionsOf(const EngineOptions& options, const PlanLimits& limits,
                                const Backend& backend) {
  RankSetOptions ranks;
  ranks.ranks = options.ranks;
  ranks.threads = options.threads > 0 ? options.threads : backend.capabilities().threads;
  ranks.transport = options.ring_transport;
  ranks.graphs = options.device_graphs;
  ranks.through_bytes = options.steps_through_bytes;
  ranks.rows_per_rank = limits.rows_per_rank();
  ranks.suspended_rows = limits.suspended_rows_per_rank;
  ranks.sequences = options.max_running;
  ranks.exchange_timeout = options.exchange_timeout;
  ranks.kv_memory_bytes = options.kv_memory_bytes;
  return ranks;
}

ModePolicy ModePolicyOf(const EngineOptions& options, const RankModel& model,
                        const ExchangeRates& rates) {
  ModePolicy policy;
  policy.mode = options.ring_mode;
  policy.rates = rates;
  policy.geometry = {.heads = model.config.heads, .page = model.page_shape};
  return policy;
}

}  // namespace annulus
