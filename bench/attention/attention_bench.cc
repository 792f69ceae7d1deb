#include "bench/attention/attention_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/attention/density.h"
#include "bench/attention/pattern_quality.h"
#include "bench/attention/structured_gates.h"
#include "bench/attention/structured_head.h"
#include "bench/peak/ceiling.h"
#include "bench/report/ring_mode.h"
#include "bench/report/statistics.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus::bench {
namespace {

// Of all copies that a decode step visits: more than a cache holds.
constexpr double kDecodeBytes = 256 << 20;
constexpr uint32_t kHeadSeed = 1;  // of structured heads
constexpr PeakEffort kQuickRead{.rounds = 1, .slices = 5};

// One row in the making.
struct Contender {
  AttentionPolicy policy;
  RingWorld::Plan plan;
  std::optional<PatternQuality> quality;
  std::vector<double> seconds, ratios, shares, vector_shares, estimates;
  // Of the last run, where rows choose.
  std::vector<LayerAttention> reports;
  std::optional<double> estimated;  // coverage, as the policy sees it
};

bool NeedsGates(const AttentionPolicy& policy) {
  return EstimateOf(policy).source == BlockEstimate::Source::kGates;
}

// Whether only rows of answers choose.
bool IsForAnswers(const AttentionPolicy& policy) {
  return AttendsAllInPrompts(policy) && !AttendsAll(policy);
}

bool AnyOf(const AttentionBenchOptions& options, bool (*is)(const AttentionPolicy& policy)) {
  return std::any_of(options.policies.begin(), options.policies.end(), is);
}

// Whether speed depends on what keys and queries hold.
bool LooksAtContent(const AttentionBenchOptions& options) {
  return options.quality || AnyOf(options, ChoosesByContent);
}

// What the run's reports tell: density, and what was estimated.
void TakeReports(int ranks, std::vector<LayerAttention> reports, Contender& contender) {
  if (reports.empty()) return;
  RingWorld::Plan& plan = contender.plan;
  PairCount pairs = plan.known;
  double seconds = 0;
  double estimated = 0;
  int64_t estimates = 0;
  plan.list_bytes = 0;
  for (const LayerAttention& report : reports) {
    pairs += report.pairs;
    seconds += report.estimate_seconds / ranks;
    estimated += report.estimated;
    estimates += report.estimates;
    plan.list_bytes += report.lists->bytes();
  }
  plan.density = pairs.density();
  plan.pairs = plan.density * plan.causal;
  plan.list_bytes = static_cast<size_t>(static_cast<double>(plan.list_bytes) / plan.share);
  contender.estimates.push_back(seconds / plan.share);
  if (estimates > 0) contender.estimated = estimated / static_cast<double>(estimates);
  contender.reports = std::move(reports);
}

// Blocks that a head's rows chose in a run; `dense`: those of rows that did not choose.
std::span<const int32_t> Chosen(const Contender& contender, int head, int32_t block,
                                std::vector<int32_t>& dense) {
  for (const LayerAttention& report : contender.reports) {
    const BlockPattern& lists = *report.lists;
    if (block < lists.shape.first_block || block >= lists.shape.first_block + lists.shape.blocks) {
      continue;
    }
    const auto keys = lists.keys(head, block);
    if (!keys.empty()) return keys;
  }
  dense.resize(static_cast<size_t>(block) + 1);
  std::iota(dense.begin(), dense.end(), 0);
  return dense;
}

absl::Status CheckShape(const AttentionBenchOptions& options) {
  const AttentionShape& shape = options.shape;
  if (shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heads ", shape.heads, " is not a multiple of --kv-heads ", shape.kv_heads));
  }
  if (LooksAtContent(options) &&
      (shape.head_dim % 8 != 0 || shape.head_dim < StructuredHead::kLeastHeadDim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--quality and policies that choose by content need a --head-dim that is a "
                     "multiple of 8, at least ",
                     StructuredHead::kLeastHeadDim, "; given: ", shape.head_dim));
  }
  for (const AttentionPolicy& policy : options.policies) {
    ANNULUS_RETURN_IF_ERROR(CheckPolicy(policy, shape.page_tokens));
    if (IsAutomatic(policy)) {
      return absl::InvalidArgumentError(
          "--policy auto takes one of the others for each request; name those to be measured");
    }
  }
  return absl::OkStatus();
}

double PageBytes(const AttentionShape& shape) {
  const double scale = shape.kv_dtype == DType::kI8 ? 2 : 0;  // bf16, per token and head
  return 2.0 * shape.kv_heads *
         (shape.head_dim * static_cast<double>(DTypeSize(shape.kv_dtype)) + scale);
}

class AttentionBench {
 public:
  AttentionBench(const AttentionBenchOptions& options, const PeakMeter& meter,
                 BenchProgress& progress)
      : options_(options), meter_(meter), progress_(progress) {}

  absl::Status Run(const std::function<void(const Row&)>& report);

 private:
  absl::Status Sequence(int32_t tokens, const std::function<void(const Row&)>& report);
  absl::Status Prefill(RingWorld& world, std::vector<Contender>& contenders);
  static void Judge(QualityOptions quality, const AttentionShape& shape,
                    std::vector<Contender>& contenders);
  absl::Status Decode(const AttentionShape& shape, const std::function<void(const Row&)>& report);
  absl::Status TimeDecode(RingWorld& world, double bytes, std::vector<Contender>& contenders);
  absl::StatusOr<std::vector<Contender>> Contenders(const AttentionShape& shape,
                                                    const RingWorld& world) const;
  Row Describe(const AttentionShape& shape, const char* phase, const AttentionPolicy& policy,
               double density) const;
  Row PrefillRow(const AttentionShape& shape, const Contender& contender, size_t memory,
                 double dense_seconds) const;
  Row DecodeRow(const AttentionShape& shape, const Contender& contender, size_t memory,
                double dense_seconds) const;
  void AddChoice(const Contender& contender, double dense_seconds, Row& row) const;

  double FlopsPerPair() const { return 4.0 * options_.shape.heads * options_.shape.head_dim; }
  // Chunks count towards the time left by their rows.
  absl::StatusOr<double> Time(RingWorld& world, const RingWorld::Plan& plan) {
    return world.Run(plan, [&](int32_t rows) {
      progress_.Done({rows, static_cast<double>(rows) * options_.shape.heads});
    });
  }

  const AttentionBenchOptions& options_;
  const PeakMeter& meter_;
  BenchProgress& progress_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry kernels_;
  const OpTable* ops_ = nullptr;
  std::optional<Ceiling> ceiling_;
  AttentionGates gates_;
};

absl::StatusOr<std::vector<Contender>> AttentionBench::Contenders(const AttentionShape& shape,
                                                                  const RingWorld& world) const {
  std::vector<AttentionPolicy> policies = {AttentionPolicy()};
  for (const AttentionPolicy& policy : options_.policies) {
    if (AttendsAllInPrompts(policy)) continue;  // dense, which is there already
    policies.push_back(policy);
    // The density of a ranking is what the content needs.
    const bool ranks = TypeOf(policy.kind).prompts == ChoiceKind::kRanking;
    if (!options_.density.has_value() || ranks) continue;
    ANNULUS_ASSIGN_OR_RETURN(policies.back(),
                             WithDensity(policy, *options_.density, shape.tokens, shape.kv_heads));
  }
  std::vector<Contender> contenders;
  for (const AttentionPolicy& policy : policies) {
    Contender contender;
    contender.policy = policy;
    contender.plan = world.PlanPrefill(policy, options_.ring_mode, options_.most_chunks);
    contenders.push_back(std::move(contender));
  }
  return contenders;
}

absl::Status AttentionBench::Prefill(RingWorld& world, std::vector<Contender>& contenders) {
  // Warm-up: the first chunks of the dense run touch every buffer.
  RingWorld::Plan warm_up = contenders.front().plan;
  warm_up.chunks.resize(std::min<size_t>(warm_up.chunks.size(), 2));
  ANNULUS_RETURN_IF_ERROR(world.Run(warm_up, [](int32_t) {}).status());
  ANNULUS_ASSIGN_OR_RETURN(CeilingRates before, ceiling_->Measure());
  for (int i = 0; i < options_.repeat; ++i) {
    for (Contender& contender : contenders) {
      ANNULUS_ASSIGN_OR_RETURN(const double run, Time(world, contender.plan));
      TakeReports(options_.shape.ranks, world.Reports(), contender);
      const double seconds = run / contender.plan.share;
      contender.seconds.push_back(seconds);
      contender.ratios.push_back(seconds / contenders.front().seconds.back());
    }
    ANNULUS_ASSIGN_OR_RETURN(const CeilingRates after, ceiling_->Measure());
    const CeilingRates ceiling = MeanOf(before, after);
    before = after;
    for (Contender& contender : contenders) {
      const double rate = contender.plan.pairs * FlopsPerPair() / contender.seconds.back();
      contender.shares.push_back(rate / ceiling.best);
      contender.vector_shares.push_back(rate / ceiling.vector);
    }
  }
  return absl::OkStatus();
}

// Coverage and error, in rows of the chunks that ran.
void AttentionBench::Judge(QualityOptions quality, const AttentionShape& shape,
                           std::vector<Contender>& contenders) {
  quality.tokens = shape.tokens;
  quality.heads = shape.kv_heads;
  quality.head_dim = shape.head_dim;
  const std::vector<RingWorld::Plan::Chunk>& chunks = contenders.front().plan.chunks;
  const auto count = static_cast<size_t>(quality.query_blocks);
  for (size_t i = 0; i < count && !quality.last_row_only; ++i) {
    const RingItem& item = chunks[(2 * i + 1) * chunks.size() / (2 * count)].items.front();
    // Different places in a chunk that is looked at more than once.
    quality.looked_at.push_back(item.begin + (item.end - item.begin) * (2 * i + 1) / (2 * count));
  }
  if (quality.last_row_only) quality.looked_at = {shape.tokens - 1};
  std::vector<int32_t> dense;
  std::vector<JudgedPolicy> policies;
  for (const Contender& contender : contenders) {
    policies.push_back({contender.policy, nullptr});
    if (!ChoosesByContent(contender.policy)) continue;
    policies.back().chosen = [&](int head, int32_t block) {
      return Chosen(contender, head, block, dense);
    };
  }
  const std::vector<PatternQuality> judged = MeasureQuality(policies, quality, [](int) {});
  for (size_t i = 0; i < contenders.size(); ++i) contenders[i].quality = judged[i];
}

Row AttentionBench::Describe(const AttentionShape& shape, const char* phase,
                             const AttentionPolicy& policy, double density) const {
  Row row;
  row.Text("phase", phase).Int("tokens", shape.tokens).Text("policy", PolicyText(policy));
  row.Number("density", density, Row::Unit::kShare);
  row.Int("heads", shape.heads).Int("kv_heads", shape.kv_heads).Int("head_dim", shape.head_dim);
  row.Text("kv_dtype", DTypeName(shape.kv_dtype));
  row.Int("ranks", shape.ranks).Int("threads", shape.threads);
  return row;
}

// What a policy's rows chose, and what choosing cost.
void AttentionBench::AddChoice(const Contender& contender, double dense_seconds, Row& row) const {
  if (!contender.estimates.empty()) {
    row.Number("estimate_share", Median(contender.estimates) / dense_seconds, Row::Unit::kShare);
  }
  if (contender.estimated.has_value()) {
    row.Number("estimated_coverage", *contender.estimated, Row::Unit::kShare);
  }
  if (contender.quality.has_value()) {
    row.Number("coverage", contender.quality->coverage, Row::Unit::kShare);
    row.Number("relative_error", contender.quality->relative_error, Row::Unit::kShare);
    row.Number("oracle_density", contender.quality->oracle_density, Row::Unit::kShare);
  }
  if (contender.reports.empty()) return;
  int64_t raised = 0;
  int64_t dense = 0;
  for (const LayerAttention& report : contender.reports) {
    raised += report.raised;
    dense += report.dense;
  }
  row.OnlyJson().Int("chunks_raised", raised).Int("chunks_dense", dense);
}

Row AttentionBench::PrefillRow(const AttentionShape& shape, const Contender& contender,
                               size_t memory, double dense_seconds) const {
  const double seconds = Median(contender.seconds);
  Row row = Describe(shape, "prefill", contender.policy, contender.plan.density);
  row.Number("seconds", seconds, Row::Unit::kSeconds);
  row.Number("tokens_per_second", shape.tokens / seconds, Row::Unit::kPerSecond);
  row.Text("peak", PeakName(ceiling_->best()));
  row.Number("peak_fraction", Median(contender.shares), Row::Unit::kShare);
  row.Number("vector_peak_fraction", Median(contender.vector_shares), Row::Unit::kShare);
  row.Number("ratio_to_dense", Median(contender.ratios), Row::Unit::kShare);
  row.Int("memory_bytes", static_cast<int64_t>(memory + contender.plan.list_bytes),
          Row::Unit::kBytes);
  row.Number("list_share", contender.plan.list_seconds / seconds, Row::Unit::kShare);
  AddChoice(contender, dense_seconds, row);
  row.OnlyJson().Number("flops", contender.plan.pairs * FlopsPerPair());
  row.Text("vector_peak", PeakName(ceiling_->vector())).Text("kernels", ops_->name);
  row.Text("ring_mode", RingModeName(options_.ring_mode));
  row.Int("chunk_tokens", shape.chunk_tokens).Int("repeat", options_.repeat);
  row.Number("list_seconds", contender.plan.list_seconds);
  row.Int("list_bytes", static_cast<int64_t>(contender.plan.list_bytes));
  row.Number("measured_share", contender.plan.share);
  return row;
}

absl::Status AttentionBench::TimeDecode(RingWorld& world, double bytes,
                                        std::vector<Contender>& contenders) {
  const auto measure = [&] {
    return meter_.Measure(PeakKind::kMemoryRead, options_.shape.threads, kQuickRead);
  };
  for (Contender& contender : contenders) {  // warm; pages have their summaries from then on
    ANNULUS_RETURN_IF_ERROR(world.Run(contender.plan, [](int32_t) {}).status());
  }
  ANNULUS_ASSIGN_OR_RETURN(double before, measure());
  for (int i = 0; i < options_.repeat; ++i) {
    for (Contender& contender : contenders) {
      ANNULUS_ASSIGN_OR_RETURN(contender.seconds.emplace_back(),
                               world.Run(contender.plan, [](int32_t) {}));
      contender.ratios.push_back(contender.seconds.back() / contenders.front().seconds.back());
      TakeReports(options_.shape.ranks, world.Reports(), contender);
    }
    ANNULUS_ASSIGN_OR_RETURN(const double after, measure());
    for (Contender& contender : contenders) {
      const double rate = bytes * contender.plan.density / contender.seconds.back();
      contender.shares.push_back(rate / ((before + after) / 2));
    }
    before = after;
  }
  return absl::OkStatus();
}

absl::Status AttentionBench::Decode(const AttentionShape& shape,
                                    const std::function<void(const Row&)>& report) {
  const double layer = PageBytes(shape) * shape.tokens;
  const int copies = std::max(1, static_cast<int>(kDecodeBytes / layer + 0.5));
  ANNULUS_ASSIGN_OR_RETURN(const auto world, RingWorld::Create(shape, copies, *backend_, *ops_));
  std::vector<Contender> contenders(1);
  for (const AttentionPolicy& policy : options_.policies) {
    if (IsForAnswers(policy)) contenders.emplace_back().policy = policy;
  }
  for (Contender& contender : contenders) contender.plan = world->PlanDecode(contender.policy);
  const bool judged = LooksAtContent(options_);
  if (judged) {
    ANNULUS_RETURN_IF_ERROR(world->UseStructuredHeads(contenders.front().plan, kHeadSeed));
  }
  ANNULUS_RETURN_IF_ERROR(TimeDecode(*world, layer * copies, contenders));
  if (judged) Judge({.seed = kHeadSeed, .last_row_only = true}, shape, contenders);
  const double dense_seconds = Median(contenders.front().seconds);
  for (const Contender& contender : contenders) {
    report(DecodeRow(shape, contender, world->bytes(), dense_seconds));
  }
  return absl::OkStatus();
}

Row AttentionBench::DecodeRow(const AttentionShape& shape, const Contender& contender,
                              size_t memory, double dense_seconds) const {
  const auto steps = static_cast<double>(contender.plan.chunks.size());
  const double seconds = Median(contender.seconds) / steps;
  Row row = Describe(shape, "decode", contender.policy, contender.plan.density);
  row.Number("seconds", seconds, Row::Unit::kSeconds);
  row.Number("tokens_per_second", 1 / seconds, Row::Unit::kPerSecond);
  row.Text("peak", PeakName(PeakKind::kMemoryRead));
  row.Number("peak_fraction", Median(contender.shares), Row::Unit::kShare);
  row.Number("ratio_to_dense", Median(contender.ratios), Row::Unit::kShare);
  row.Int("memory_bytes", static_cast<int64_t>(memory), Row::Unit::kBytes);
  AddChoice(contender, dense_seconds, row);
  row.OnlyJson();
  row.Number("flops", contender.plan.pairs / steps * FlopsPerPair());
  row.Number("bytes", PageBytes(shape) * shape.tokens * contender.plan.density);
  row.Text("kernels", ops_->name).Int("repeat", options_.repeat);
  return row;
}

absl::Status AttentionBench::Sequence(int32_t tokens,
                                      const std::function<void(const Row&)>& report) {
  AttentionShape shape = options_.shape;
  shape.tokens = tokens;
  {
    ANNULUS_ASSIGN_OR_RETURN(const auto world, RingWorld::Create(shape, 1, *backend_, *ops_));
    ANNULUS_ASSIGN_OR_RETURN(std::vector<Contender> contenders, Contenders(shape, *world));
    if (LooksAtContent(options_)) {
      ANNULUS_RETURN_IF_ERROR(world->UseStructuredHeads(contenders.front().plan, kHeadSeed));
    }
    if (AnyOf(options_, NeedsGates)) {
      if (gates_.layers.empty()) {
        ANNULUS_ASSIGN_OR_RETURN(gates_, FitStructuredGates(shape, *backend_, *ops_));
      }
      world->UseGates(gates_);
    }
    ANNULUS_RETURN_IF_ERROR(Prefill(*world, contenders));
    if (options_.quality) Judge({.seed = kHeadSeed}, shape, contenders);
    progress_.Clear();
    const double dense_seconds = Median(contenders.front().seconds);
    for (const Contender& contender : contenders) {
      report(PrefillRow(shape, contender, world->bytes(), dense_seconds));
    }
  }
  if (!options_.decode && !AnyOf(options_, IsForAnswers)) return absl::OkStatus();
  return Decode(shape, report);
}

absl::Status AttentionBench::Run(const std::function<void(const Row&)>& report) {
  ANNULUS_RETURN_IF_ERROR(CheckShape(options_));
  ANNULUS_ASSIGN_OR_RETURN(backend_, CreateCpuBackend({.shared_threads = options_.shape.threads}));
  RegisterCpuKernels(kernels_);
  const AttentionShape& shape = options_.shape;
  KernelRequirements required;
  required.backend = backend_->capabilities().name;
  required.implementation = options_.kernels;
  required.kv_dtype = shape.kv_dtype;
  required.k_dim = shape.head_dim;
  required.v_dim = shape.head_dim;
  ANNULUS_ASSIGN_OR_RETURN(ops_, kernels_.Select(required));
  ANNULUS_ASSIGN_OR_RETURN(
      ceiling_,
      Ceiling::Choose(meter_, shape.kv_dtype == DType::kI8 ? DType::kBF16 : shape.kv_dtype,
                      shape.threads, options_.peak));
  for (const int32_t tokens : options_.sequences) {
    const int32_t run = options_.most_chunks == 0
                            ? tokens
                            : std::min(tokens, options_.most_chunks * shape.chunk_tokens);
    const double rows =
        double{1} * run * options_.repeat * (1 + static_cast<double>(options_.policies.size()));
    progress_.Plan({static_cast<int64_t>(rows), rows * shape.heads});
  }
  for (const int32_t tokens : options_.sequences) {
    ANNULUS_RETURN_IF_ERROR(Sequence(tokens, report));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunAttentionBench(const AttentionBenchOptions& options, const PeakMeter& meter,
                               BenchProgress& progress,
                               const std::function<void(const Row&)>& report) {
  return AttentionBench(options, meter, progress).Run(report);
}

}  // namespace annulus::bench
