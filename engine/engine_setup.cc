#include "engine/engine_setup.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/model/layer_graph.h"
#include "engine/scheduler/prompt_lookup.h"
#include "engine/scheduler/step_pacer.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Sizes in bytes: see CheckOptions.
template <typename T>
constexpr bool kIsSize = std::is_same_v<T, size_t> || std::is_same_v<T, int64_t>;

absl::Status CheckRange(const char* name, int64_t value, int64_t low, int64_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; allowed are ", low, " to ", high));
}

absl::Status CheckTime(const char* name, std::chrono::milliseconds value,
                       std::chrono::milliseconds low, std::chrono::milliseconds high) {
  return CheckRange(absl::StrCat(name, " in milliseconds").c_str(), value.count(), low.count(),
                    high.count());
}

// ---- One for each kind of values in engine/api/option_values.h.

template <typename T>
absl::Status Check(const char* name, const T& value, option::Within allowed) {
  return kIsSize<T> ? absl::OkStatus()
                    : CheckRange(name, static_cast<int64_t>(value), allowed.low, allowed.high);
}

template <typename T>
absl::Status Check(const char* name, const T& value, option::WithinOrAuto allowed) {
  return value == 0 ? absl::OkStatus()
                    : Check(name, value, option::Within{allowed.low, allowed.high});
}

absl::Status Check(const char* name, std::chrono::milliseconds value, option::TimeWithin allowed) {
  return CheckTime(name, value, allowed.low, allowed.high);
}

absl::Status Check(const char* name, std::optional<std::chrono::milliseconds> value,
                   option::TimeOffOrAuto allowed) {
  if (!value.has_value() || value->count() == 0) return absl::OkStatus();
  return CheckTime(name, *value, allowed.low, allowed.high);
}

absl::Status Check(const char* name, double value, option::Share) {
  if (value >= 0 && value <= 1) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", value, "; allowed are shares of 0 to 1"));
}

template <typename T>
absl::Status Check(const char* name, const T& value, const option::OneOf<T>& allowed) {
  std::vector<std::string> names;
  for (const auto& [choice, allowed_value] : allowed.choices) {
    if (value == allowed_value) return absl::OkStatus();
    names.push_back(choice);
  }
  std::string given = "none of them";
  if constexpr (std::is_same_v<T, int>) given = absl::StrCat(value);
  return absl::InvalidArgumentError(
      absl::StrCat(name, " is ", given, "; allowed are ", absl::StrJoin(names, ", ")));
}

// Those who read the value check it.
template <typename T>
absl::Status Check(const char*, const T&, option::Any) {
  return absl::OkStatus();
}
absl::Status Check(const char*, const std::string&, const option::Required&) {
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckOptions(const EngineOptions& options) {
  absl::Status status;
  VisitOptions([&](const char* name, const char* /*value_name*/, const char* /*help*/, auto field,
                   const auto& allowed) { status.Update(Check(name, options.*field, allowed)); });
  ANNULUS_RETURN_IF_ERROR(status);
  return CheckPolicy(options.attention.policy, options.page_tokens);
}

EngineOptions Settle(EngineOptions options, const Backend& backend) {
  const BackendCapabilities& device = backend.capabilities();
  if (options.threads == 0) options.threads = device.threads;
  if (!options.stall_budget.has_value()) {
    options.stall_budget = std::chrono::milliseconds(device.host_accessible ? 250 : 50);
  }
  if (!options.speculation.has_value()) {
    options.speculation = device.host_accessible ? Speculation::kNgram : Speculation::kOff;
  }
  return options;
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
  // Lets a prompt continue from a finished chunk after a restart: see PageTier.
  limits.passing_checkpoints = options.kv_disk.empty() ? 0 : 1;
  return limits;
}

RankSetOptions RankSetOptionsOf(const EngineOptions& options, const PlanLimits& limits) {
  RankSetOptions ranks;
  ranks.engine = options;
  ranks.span = options.span();
  ranks.rows_per_rank = limits.rows_per_rank();
  ranks.suspended_rows = limits.suspended_rows_per_rank;
  return ranks;
}

ModePolicy ModePolicyOf(const EngineOptions& options, const RankModel& model,
                        const ExchangeRates& rates) {
  ModePolicy policy;
  policy.mode = options.ring_mode;
  policy.rates = rates;
  policy.geometry = {.heads = WidestAttention(model.config).heads, .page = model.page_shape};
  return policy;
}

}  // namespace annulus
