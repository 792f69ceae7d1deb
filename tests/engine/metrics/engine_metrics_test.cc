#include "engine/metrics/engine_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>
#include <string>
#include <vector>

namespace annulus {
namespace {

using ::testing::ElementsAre;
using ::testing::Pair;

ModelInfo Model() {
  ModelInfo model;
  model.architecture = "builtin:recall";
  model.weights_dtype = DType::kBF16;
  model.kernels = "reference";
  return model;
}

MetricFamily Find(const EngineMetrics& metrics, const std::string& name) {
  for (MetricFamily& family : metrics.Collect()) {
    if (family.name == name) return std::move(family);
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

// Label values, joined by '/', to value.
std::map<std::string, double> Values(const EngineMetrics& metrics, const std::string& name) {
  std::map<std::string, double> values;
  const MetricFamily family = Find(metrics, name);
  for (const MetricSample& sample : family.samples) {
    std::string key;
    for (const auto& [label, value] : sample.labels) key += (key.empty() ? "" : "/") + value;
    values[key] = sample.value;
  }
  return values;
}

TEST(EngineMetrics, HasTheNamesThatDashboardsUse) {
  const EngineMetrics metrics(2, Model());
  std::set<std::string> names;
  for (const MetricFamily& family : metrics.Collect()) {
    EXPECT_FALSE(family.help.empty()) << family.name;
    names.insert(family.name);
  }
  EXPECT_THAT(
      names,
      ::testing::UnorderedElementsAre(
          "annulus_time_to_first_token_seconds", "annulus_inter_token_latency_seconds",
          "annulus_e2e_request_latency_seconds", "annulus_request_queue_time_seconds",
          "annulus_request_prefill_time_seconds", "annulus_request_decode_time_seconds",
          "annulus_request_prompt_tokens", "annulus_request_generation_tokens",
          "annulus_prompt_tokens_total", "annulus_generation_tokens_total",
          "annulus_request_success_total", "annulus_admission_rejections_total",
          "annulus_num_requests_running", "annulus_num_requests_parked",
          "annulus_num_requests_waiting", "annulus_kv_cache_usage_perc",
          "annulus_kv_cache_reserved_perc", "annulus_prefix_cache_queries_total",
          "annulus_prefix_cache_hits_total", "annulus_num_preemptions_total",
          "annulus_rank_memory_bytes", "annulus_pool_bytes", "annulus_pool_limit_bytes",
          "annulus_pool_high_water_bytes", "annulus_pool_fragmentation_ratio",
          "annulus_pool_trims_total", "annulus_pool_trimmed_bytes_total",
          "annulus_pool_refusals_total", "annulus_ring_seconds_total", "annulus_ring_bytes_total",
          "annulus_ring_mode_total", "annulus_graph_steps_total", "annulus_graph_launches_total",
          "annulus_graph_updates_total", "annulus_graph_built_total", "annulus_graph_cuts_total",
          "annulus_attention_density_ratio", "annulus_attention_coverage_ratio",
          "annulus_attention_estimated_coverage_ratio", "annulus_attention_layers_total",
          "annulus_pattern_cache_hits_total", "annulus_pattern_cache_misses_total",
          "annulus_pattern_cache_bytes", "annulus_expert_hits_total", "annulus_expert_misses_total",
          "annulus_expert_read_bytes_total", "annulus_expert_wait_seconds_total",
          "annulus_expert_steps_total", "annulus_expert_waited_steps_total", "annulus_rank_up",
          "annulus_model_info", "annulus_stall_violations_total", "annulus_step_cost_error_ratio",
          "annulus_smallest_chunk_seconds", "annulus_chunk_stretches_total", "annulus_kv_tier_up",
          "annulus_kv_tier_bytes", "annulus_kv_tier_limit_bytes", "annulus_kv_tier_pages",
          "annulus_kv_tier_hits_total", "annulus_kv_tier_restores_total",
          "annulus_kv_tier_rejects_total", "annulus_kv_tier_checks_total",
          "annulus_kv_tier_mismatches_total", "annulus_kv_tier_io_errors_total",
          "annulus_kv_tier_seconds_total", "annulus_kv_tier_moved_bytes_total",
          "annulus_kv_tier_wait_seconds_total", "annulus_kv_tier_waiting_pages",
          "annulus_iteration_tokens", "annulus_request_inference_time_seconds",
          "annulus_request_longest_gap_seconds", "annulus_request_max_num_generation_tokens",
          "annulus_request_ring_wait_seconds", "annulus_request_host_time_seconds",
          "annulus_request_cached_tokens", "annulus_request_accepted_tokens",
          "annulus_request_stalls", "annulus_request_preemptions", "annulus_step_seconds_total",
          "annulus_host_seconds_total", "annulus_spec_decode_num_draft_tokens_total",
          "annulus_spec_decode_num_accepted_tokens_total", "annulus_failed_steps_total",
          "annulus_recovered_requests_total", "annulus_repaired_tokens_total",
          "annulus_ring_losses_total"));
}

// The waits of all steps of a request add up to as much as the request may take: hours.
TEST(EngineMetrics, TimesOfWholeRequestsReachAsFarAsRequests) {
  EngineMetrics metrics(1, Model());
  metrics.request_ring_wait.Observe(7000);
  metrics.request_host_time.Observe(7000);
  for (const char* name :
       {"annulus_request_ring_wait_seconds", "annulus_request_host_time_seconds"}) {
    const MetricFamily family = Find(metrics, name);
    ASSERT_EQ(family.samples.size(), 1u);
    const auto& buckets = family.samples[0].buckets;
    ASSERT_GE(buckets.size(), 2u);
    EXPECT_EQ(buckets[buckets.size() - 2].second, 1u) << name;  // the last is of no bound
  }
}

TEST(EngineMetrics, CountsOnlyGoodEndsAsSuccess) {
  EngineMetrics metrics(1, Model());
  EXPECT_THAT(Values(metrics, "annulus_request_success_total"),
              ElementsAre(Pair("length", 0), Pair("stop", 0)));
  for (FinishReason reason : {FinishReason::kStop, FinishReason::kStop, FinishReason::kLength,
                              FinishReason::kCancelled, FinishReason::kError}) {
    metrics.CountFinished(reason);
  }
  EXPECT_THAT(Values(metrics, "annulus_request_success_total"),
              ElementsAre(Pair("length", 1), Pair("stop", 2)));
}

TEST(EngineMetrics, CountsRejectionsByReason) {
  EngineMetrics metrics(1, Model());
  metrics.CountRejection(AdmissionRejection::kMemory);
  EXPECT_THAT(Values(metrics, "annulus_admission_rejections_total"),
              ElementsAre(Pair("context", 0), Pair("memory", 1), Pair("queue_full", 0)));
}

TEST(EngineMetrics, EveryRankHasItsSeries) {
  EngineMetrics metrics(2, Model());
  metrics.ranks[0].up.Set(1);
  metrics.ranks[1].compute_seconds.Add(1.5);
  metrics.ranks[1].pass_q_bytes.Add(100);
  metrics.mode_pass_kv.Increment();
  EXPECT_THAT(Values(metrics, "annulus_rank_up"), ElementsAre(Pair("0", 1), Pair("1", 0)));
  EXPECT_THAT(Values(metrics, "annulus_ring_seconds_total"),
              ElementsAre(Pair("0/compute", 0), Pair("0/exposed_wait", 0), Pair("0/send", 0),
                          Pair("1/compute", 1.5), Pair("1/exposed_wait", 0), Pair("1/send", 0)));
  EXPECT_THAT(Values(metrics, "annulus_ring_bytes_total"),
              ElementsAre(Pair("0/estimate", 0), Pair("0/pass_kv", 0), Pair("0/pass_q", 0),
                          Pair("1/estimate", 0), Pair("1/pass_kv", 0), Pair("1/pass_q", 100)));
  EXPECT_THAT(Values(metrics, "annulus_ring_mode_total"),
              ElementsAre(Pair("pass_kv", 1), Pair("pass_q", 0)));
}

TEST(EngineMetrics, ShowsWhatBecameOfGraphs) {
  EngineMetrics metrics(1, Model());
  GraphCounts counts;
  counts.whole = 7;
  counts.in_pieces = 2;
  counts.built = 3;
  counts.replayed = 900;
  counts.updated = 11;
  counts.single = 5;
  counts.cut_by_wait = 4;
  counts.cut_by_library = 1;
  metrics.graphs[0].Show(counts);
  EXPECT_THAT(Values(metrics, "annulus_graph_steps_total"),
              ElementsAre(Pair("0/pieces", 2), Pair("0/whole", 7)));
  EXPECT_THAT(Values(metrics, "annulus_graph_launches_total"),
              ElementsAre(Pair("0/graph", 900), Pair("0/single", 5)));
  EXPECT_THAT(Values(metrics, "annulus_graph_updates_total"), ElementsAre(Pair("0", 11)));
  EXPECT_THAT(Values(metrics, "annulus_graph_built_total"), ElementsAre(Pair("0", 3)));
  EXPECT_THAT(Values(metrics, "annulus_graph_cuts_total"),
              ElementsAre(Pair("0/copy", 0), Pair("0/event", 0), Pair("0/library", 1),
                          Pair("0/memory", 0), Pair("0/wait", 4)));
}

TEST(EngineMetrics, TellsTheModel) {
  const EngineMetrics metrics(1, Model());
  EXPECT_THAT(Values(metrics, "annulus_model_info"),
              ElementsAre(Pair("builtin:recall/bf16/f32/reference", 1)));
}

TEST(EngineMetrics, ObservesThroughItsMembers) {
  EngineMetrics metrics(1, Model());
  metrics.time_to_first_token.Observe(3.2);
  metrics.request_prompt_tokens.Observe(1'000'000);
  EXPECT_EQ(Find(metrics, "annulus_time_to_first_token_seconds").samples[0].sum, 3.2);
  EXPECT_EQ(Find(metrics, "annulus_request_prompt_tokens").samples[0].count, 1u);
}

TEST(EngineMetrics, ShowsPools) {
  EngineMetrics metrics(1, Model());
  const PoolMetrics::Figures figures = {.held = 40,
                                        .free = 20,
                                        .limit = 100,
                                        .high_water = 55,
                                        .fragmentation_ratio = 0.25,
                                        .trims = 2,
                                        .trimmed_bytes = 30,
                                        .refusals = 3};
  metrics.pools[0].Show(figures);
  metrics.pools[0].Show(figures);  // counters show totals: a second look adds nothing
  metrics.pages[0].Show({.held = 1, .reserved = 3, .cached = 2, .free = 5, .most = 7}, 10);
  EXPECT_THAT(Values(metrics, "annulus_pool_bytes"),
              ElementsAre(Pair("rank0-pages/cached", 20), Pair("rank0-pages/free", 50),
                          Pair("rank0-pages/held", 10), Pair("rank0-pages/reserved", 30),
                          Pair("rank0/free", 20), Pair("rank0/held", 40)));
  EXPECT_THAT(Values(metrics, "annulus_pool_limit_bytes"),
              ElementsAre(Pair("rank0", 100), Pair("rank0-pages", 110)));
  EXPECT_THAT(Values(metrics, "annulus_pool_high_water_bytes"),
              ElementsAre(Pair("rank0", 55), Pair("rank0-pages", 70)));
  EXPECT_THAT(Values(metrics, "annulus_pool_fragmentation_ratio"),
              ElementsAre(Pair("rank0", 0.25)));
  EXPECT_THAT(Values(metrics, "annulus_pool_trims_total"), ElementsAre(Pair("rank0", 2)));
  EXPECT_THAT(Values(metrics, "annulus_pool_trimmed_bytes_total"), ElementsAre(Pair("rank0", 30)));
  EXPECT_THAT(Values(metrics, "annulus_pool_refusals_total"), ElementsAre(Pair("rank0", 3)));
}

}  // namespace
}  // namespace annulus
