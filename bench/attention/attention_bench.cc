#include "bench/attention/attention_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/attention/density.h"
#include "bench/attention/pattern_quality.h"
#include "bench/attention/structured_head.h"
#include "bench/peak/ceiling.h"
#include "bench/report/ring_mode.h"
#include "bench/report/statistics.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"

namespace annulus {
namespace {

// Of all copies that a decode step visits: more than a cache holds.
constexpr double kDecodeBytes = 256 << 20;
constexpr PeakEffort kQuickRead{.rounds = 1, .slices = 5};

// One row in the making.
struct Contender {
  AttentionPolicy policy;
  RingWorld::Plan plan;
  std::optional<PatternQuality> quality;
  std::vector<double> seconds, ratios, shares, vector_shares;
};

absl::Status CheckShape(const AttentionBenchOptions& options) {
  const AttentionShape& shape = options.shape;
  if (shape.heads % shape.kv_heads != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("--heads ", shape.heads, " is not a multiple of --kv-heads ", shape.kv_heads));
  }
  if (options.quality &&
      (shape.head_dim % 8 != 0 || shape.head_dim < StructuredHead::kLeastHeadDim)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--quality needs a --head-dim that is a multiple "
                     "of 8, at least ",
                     StructuredHead::kLeastHeadDim));
  }
  for (const AttentionPolicy& policy : options.policies) {
    ANNULUS_RETURN_IF_ERROR(CheckPolicy(policy, shape.page_tokens));
    if (policy.kind == PolicyKind::kAdaptive || policy.kind == PolicyKind::kTopPages) {
      return absl::InvalidArgumentError(absl::StrCat(
          "--policy ", PolicyName(policy.kind), " chooses from content, which this bench has not"));
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
  static void Judge(const AttentionShape& shape, std::vector<Contender>& contenders);
  absl::StatusOr<Row> Decode(const AttentionShape& shape, RingWorld& world);
  absl::StatusOr<std::vector<Contender>> Contenders(const AttentionShape& shape,
                                                    const RingWorld& world) const;
  Row Describe(const AttentionShape& shape, const char* phase, const AttentionPolicy& policy,
               double density) const;
  Row PrefillRow(const AttentionShape& shape, const Contender& contender, size_t memory) const;

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
};

absl::StatusOr<std::vector<Contender>> AttentionBench::Contenders(const AttentionShape& shape,
                                                                  const RingWorld& world) const {
  std::vector<AttentionPolicy> policies = {AttentionPolicy()};
  for (const AttentionPolicy& policy : options_.policies) {
    if (policy.kind == PolicyKind::kDense) continue;  // there already
    policies.push_back(policy);
    if (!options_.density.has_value()) continue;
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

void AttentionBench::Judge(const AttentionShape& shape, std::vector<Contender>& contenders) {
  QualityOptions quality;
  quality.tokens = shape.tokens;
  quality.heads = shape.kv_heads;
  quality.head_dim = shape.head_dim;
  std::vector<AttentionPolicy> policies;
  for (const Contender& contender : contenders) policies.push_back(contender.policy);
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

Row AttentionBench::PrefillRow(const AttentionShape& shape, const Contender& contender,
                               size_t memory) const {
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
  if (contender.quality.has_value()) {
    row.Number("relative_error", contender.quality->relative_error, Row::Unit::kShare);
    row.Number("coverage", contender.quality->coverage, Row::Unit::kShare);
    row.Number("oracle_density", contender.quality->oracle_density, Row::Unit::kShare);
  }
  row.OnlyJson().Number("flops", contender.plan.pairs * FlopsPerPair());
  row.Text("vector_peak", PeakName(ceiling_->vector())).Text("kernels", ops_->name);
  row.Text("ring_mode", RingModeName(options_.ring_mode));
  row.Int("chunk_tokens", shape.chunk_tokens).Int("repeat", options_.repeat);
  row.Number("list_seconds", contender.plan.list_seconds);
  row.Int("list_bytes", static_cast<int64_t>(contender.plan.list_bytes));
  row.Number("measured_share", contender.plan.share);
  return row;
}

absl::StatusOr<Row> AttentionBench::Decode(const AttentionShape& shape, RingWorld& world) {
  const RingWorld::Plan plan = world.PlanDecode();
  const double steps = static_cast<double>(plan.chunks.size());
  const double bytes = PageBytes(shape) * shape.tokens * steps;
  const auto measure = [&] {
    return meter_.Measure(PeakKind::kMemoryRead, shape.threads, kQuickRead);
  };
  ANNULUS_RETURN_IF_ERROR(world.Run(plan, [](int32_t) {}).status());
  ANNULUS_ASSIGN_OR_RETURN(double before, measure());
  std::vector<double> seconds;
  std::vector<double> shares;
  for (int i = 0; i < options_.repeat; ++i) {
    ANNULUS_ASSIGN_OR_RETURN(seconds.emplace_back(), world.Run(plan, [](int32_t) {}));
    ANNULUS_ASSIGN_OR_RETURN(const double after, measure());
    shares.push_back(bytes / seconds.back() / ((before + after) / 2));
    before = after;
  }
  const double step_seconds = Median(seconds) / steps;
  Row row = Describe(shape, "decode", AttentionPolicy(), 1);
  row.Number("seconds", step_seconds, Row::Unit::kSeconds);
  row.Number("tokens_per_second", 1 / step_seconds, Row::Unit::kPerSecond);
  row.Text("peak", PeakName(PeakKind::kMemoryRead));
  row.Number("peak_fraction", Median(shares), Row::Unit::kShare);
  row.Int("memory_bytes", static_cast<int64_t>(world.bytes()), Row::Unit::kBytes).OnlyJson();
  row.Number("flops", plan.pairs / steps * FlopsPerPair()).Number("bytes", bytes / steps);
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
    ANNULUS_RETURN_IF_ERROR(Prefill(*world, contenders));
    if (options_.quality) Judge(shape, contenders);
    progress_.Clear();
    for (const Contender& contender : contenders) {
      report(PrefillRow(shape, contender, world->bytes()));
    }
  }
  if (!options_.decode) return absl::OkStatus();
  const double layer = PageBytes(shape) * shape.tokens;
  const int copies = std::max(1, static_cast<int>(kDecodeBytes / layer + 0.5));
  ANNULUS_ASSIGN_OR_RETURN(const auto world, RingWorld::Create(shape, copies, *backend_, *ops_));
  ANNULUS_ASSIGN_OR_RETURN(const Row row, Decode(shape, *world));
  report(row);
  return absl::OkStatus();
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

}  // namespace annulus
