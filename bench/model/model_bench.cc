#include "bench/model/model_bench.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/model/bench_sink.h"
#include "bench/model/model_work.h"
#include "bench/peak/ceiling.h"
#include "bench/report/resident_memory.h"
#include "bench/report/ring_mode.h"
#include "bench/report/statistics.h"
#include "engine/model/model_config.h"
#include "engine/text/text_file.h"
#include "kernels/backend.h"
#include "kernels/base/status_macros.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "kernels/registry.h"

namespace annulus {
namespace {

constexpr std::chrono::milliseconds kProgressInterval{200};
// A short pass that touches all weights before anything is timed.
constexpr int32_t kWarmUpTokens = 64;
// Tokens that are decoded between two reads of the memory.
constexpr int32_t kPieceTokens = 8;

absl::StatusOr<ModelConfig> ReadConfig(const ModelBenchOptions& options) {
  if (options.random_config.empty()) return LoadModelConfig(options.directory);
  ANNULUS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.random_config));
  return ParseModelConfig(text, options.random_config);
}

int32_t LongestSequence(const ModelBenchOptions& options) {
  int32_t longest = kWarmUpTokens;
  for (const int32_t tokens : options.prompt_tokens) longest = std::max(longest, tokens);
  for (const int32_t depth : options.depths) longest = std::max(longest, depth);
  return longest + options.generate + 1;
}

// Room for the longest sequence over all ranks; pages that are not touched cost no memory.
size_t KvMemory(const ModelBenchOptions& options, ModelConfig config) {
  constexpr int kLayoutColumns = 32;   // page layouts may pad heads to this
  constexpr double kHeadroom = 1.25;   // chunks in flight behind windows, page headers
  constexpr double kLeast = 64 << 20;  // per rank
  config.head_dim = (config.head_dim + kLayoutColumns - 1) / kLayoutColumns * kLayoutColumns;
  const double bytes = KvBytesPerToken(config, options.kv_dtype) * LongestSequence(options);
  return static_cast<size_t>(kHeadroom * bytes + kLeast * options.ranks);
}

EngineOptions MakeEngineOptions(const ModelBenchOptions& options, const ModelConfig& config) {
  EngineOptions engine;
  engine.model = options.random_config.empty() ? options.directory
                                               : absl::StrCat("random:", options.random_config);
  engine.ranks = options.ranks;
  engine.threads = options.threads;
  engine.kv_memory_bytes = KvMemory(options, config);
  engine.kv_dtype = options.kv_dtype;
  engine.weights_dtype = options.weights_dtype;
  engine.activations = options.activations;
  engine.chunk_tokens = options.chunk_tokens;
  engine.tokens_per_rank = engine.page_tokens;  // every sequence is spread over all ranks
  engine.max_running = 1;
  engine.ring_mode = options.ring_mode;
  engine.attention = options.attention;
  engine.kernels = options.kernels;
  return engine;
}

// The runs of one row.
struct Runs {
  PeakKind ceiling = PeakKind::kMemoryRead;
  std::vector<double> seconds;
  std::vector<double> shares;         // of the ceiling
  std::vector<double> vector_shares;  // of the vector instructions' ceiling
  std::vector<double> peaks;
  AttentionReport attention;  // of the last
};

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, const PeakMeter& meter, BenchProgress& progress)
      : options_(options), meter_(meter), progress_(progress), random_(1) {}

  absl::Status Run(const std::function<void(const Row&)>& report);

 private:
  absl::Status Start();
  void Plan();
  std::vector<int32_t> RandomPrompt(int32_t tokens);
  absl::StatusOr<Completion> Generate(std::vector<int32_t> prompt, int32_t tokens,
                                      const std::function<double(int64_t)>& operations_of);
  absl::StatusOr<Row> Prefill(int32_t tokens);
  absl::StatusOr<Row> Decode(int32_t depth);
  std::optional<double> PatternHits() const;
  Row Describe(const char* phase, int64_t tokens, int64_t depth, const Runs& runs, double flops);

  double PrefillWork(int32_t tokens) const { return PrefillFlops(config_, std::max(1, tokens)); }
  double DecodeWork(int32_t depth) const {
    return DecodeFlops(config_, depth + options_.generate / 2) * options_.generate;
  }

  const ModelBenchOptions& options_;
  const PeakMeter& meter_;
  BenchProgress& progress_;
  std::mt19937 random_;
  ModelConfig config_;
  std::unique_ptr<Backend> backend_;
  KernelRegistry kernels_;
  std::unique_ptr<Engine> engine_;
  std::optional<Ceiling> ceiling_;
  ResidentMemory memory_;
  double load_seconds_ = 0;
};

absl::Status ModelBench::Start() {
  ANNULUS_ASSIGN_OR_RETURN(config_, ReadConfig(options_));
  ANNULUS_ASSIGN_OR_RETURN(backend_, CreateCpuBackend({.shared_threads = options_.threads}));
  RegisterCpuKernels(kernels_);
  memory_.Resume();
  const auto start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(engine_,
                           CreateEngine(MakeEngineOptions(options_, config_), *backend_, kernels_));
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ANNULUS_RETURN_IF_ERROR(
      Generate(RandomPrompt(kWarmUpTokens), 2, [](int64_t) { return 0; }).status());
  memory_.Pause();
  if (options_.prompt_tokens.empty()) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(ceiling_, Ceiling::Choose(meter_, engine_->model().weights_dtype,
                                                     options_.threads, options_.peak));
  return absl::OkStatus();
}

void ModelBench::Plan() {
  for (const int32_t tokens : options_.prompt_tokens) {
    progress_.Plan({int64_t{tokens} * options_.repeat, PrefillWork(tokens) * options_.repeat});
  }
  for (const int32_t depth : options_.depths) {
    progress_.Plan({std::max(1, depth), PrefillWork(depth)});
    progress_.Plan(
        {int64_t{options_.generate} * options_.repeat, DecodeWork(depth) * options_.repeat});
  }
}

std::vector<int32_t> ModelBench::RandomPrompt(int32_t tokens) {
  std::uniform_int_distribution<int32_t> id(0, config_.vocabulary - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& token : prompt) token = id(random_);
  return prompt;
}

// `operations_of` the tokens read so far, for the time left.
absl::StatusOr<Completion> ModelBench::Generate(
    std::vector<int32_t> prompt, int32_t tokens,
    const std::function<double(int64_t)>& operations_of) {
  RequestSpec spec;
  spec.prompt = std::move(prompt);
  spec.sampling.max_tokens = tokens;
  spec.sampling.temperature = 0;
  spec.sampling.ignore_eos = true;
  const auto sink = std::make_shared<BenchSink>();
  ANNULUS_RETURN_IF_ERROR(engine_->Submit(std::move(spec), sink).status());
  for (;;) {
    const std::optional<Completion> completion = sink->WaitFor(kProgressInterval);
    if (completion.has_value()) {
      ANNULUS_RETURN_IF_ERROR(completion->status);
      return *completion;
    }
    const int64_t read = sink->processed();
    progress_.Show({read, operations_of(read)});
  }
}

absl::StatusOr<Row> ModelBench::Prefill(int32_t tokens) {
  double flops = 0;
  Runs runs;
  runs.ceiling = ceiling_->best();
  ANNULUS_ASSIGN_OR_RETURN(CeilingRates before, ceiling_->Measure());
  for (int i = 0; i < options_.repeat; ++i) {
    memory_.Resume();
    ANNULUS_ASSIGN_OR_RETURN(const Completion completion,
                             Generate(RandomPrompt(tokens), 1, [&](int64_t read) {
                               return read > 0 ? PrefillFlops(config_, read) : 0;
                             }));
    memory_.Pause();
    ANNULUS_ASSIGN_OR_RETURN(const CeilingRates after, ceiling_->Measure());
    const CeilingRates ceiling = MeanOf(before, after);
    before = after;
    const double seconds = completion.timings.prefill;
    runs.attention = completion.attention;
    flops = PrefillFlops(config_, tokens, completion.attention.density);
    runs.seconds.push_back(seconds);
    runs.shares.push_back(flops / seconds / ceiling.best);
    runs.vector_shares.push_back(flops / seconds / ceiling.vector);
    runs.peaks.push_back(ceiling.best);
    progress_.Done({tokens, PrefillWork(tokens)});
  }
  Row row = Describe("prefill", tokens, 0, runs, flops);
  row.Text("vector_peak", PeakName(ceiling_->vector()));
  return row;
}

absl::StatusOr<Row> ModelBench::Decode(int32_t depth) {
  const std::vector<int32_t> prompt = RandomPrompt(std::max(1, depth));
  const int32_t steps = options_.generate;
  // The row of the i-th step of a piece sees depth + i keys before it.
  const int64_t middle = depth + std::min(kPieceTokens, steps) / 2;
  double bytes = 0;
  double flops = 0;
  memory_.Resume();
  // Later runs find the prompt's keys and values in the prefix cache.
  ANNULUS_RETURN_IF_ERROR(Generate(prompt, 1, [&](int64_t read) {
                            return read > 0 ? PrefillFlops(config_, read) : 0;
                          }).status());
  progress_.Done({std::max(1, depth), PrefillWork(depth)});
  memory_.Pause();
  Runs runs;
  ANNULUS_ASSIGN_OR_RETURN(const ReadBuffer buffer, meter_.TakeReadBuffer());
  for (int i = 0; i < options_.repeat; ++i) {
    double seconds = 0;
    std::vector<double> reads;  // seconds per byte
    for (int32_t done = 0; done < steps; done += kPieceTokens) {
      ANNULUS_ASSIGN_OR_RETURN(const double rate, meter_.ReadOnce(buffer, options_.threads));
      reads.push_back(1 / rate);
      memory_.Resume();
      const int32_t piece = std::min(kPieceTokens, steps - done);
      ANNULUS_ASSIGN_OR_RETURN(const Completion completion,
                               Generate(prompt, piece + 1, [](int64_t) { return 0; }));
      memory_.Pause(static_cast<int64_t>(buffer.bytes()));
      seconds += completion.timings.decode;
      runs.attention = completion.attention;
    }
    const double ceiling =
        static_cast<double>(reads.size()) / std::accumulate(reads.begin(), reads.end(), 0.0);
    const double density = runs.attention.density;
    flops = DecodeFlops(config_, middle, density) * steps;
    bytes =
        DecodeBytes(config_, middle, engine_->model().weights_dtype, options_.kv_dtype, density) *
        steps;
    runs.seconds.push_back(seconds);
    runs.shares.push_back(bytes / seconds / ceiling);
    runs.peaks.push_back(ceiling);
    progress_.Done({steps, DecodeWork(depth)});
  }
  Row row = Describe("decode", steps, depth, runs, flops);
  row.Number("bytes", bytes);
  return row;
}

// Share of the block lists asked for since the start that were there already; none were asked for
// without a policy.
std::optional<double> ModelBench::PatternHits() const {
  double hits = 0;
  double misses = 0;
  for (const MetricFamily& family : engine_->Metrics()) {
    if (family.name == "annulus_pattern_cache_hits_total") hits = family.samples.front().value;
    if (family.name == "annulus_pattern_cache_misses_total") misses = family.samples.front().value;
  }
  if (hits + misses == 0) return std::nullopt;
  return hits / (hits + misses);
}

Row ModelBench::Describe(const char* phase, int64_t tokens, int64_t depth, const Runs& runs,
                         double flops) {
  const ModelInfo& model = engine_->model();
  const double seconds = Median(runs.seconds);
  Row row;
  row.Text("phase", phase).Int("tokens", tokens).Int("depth", depth);
  row.Int("ranks", options_.ranks).Int("threads", options_.threads);
  row.Number("seconds", seconds, Row::Unit::kSeconds);
  row.Number("tokens_per_second", static_cast<double>(tokens) / seconds, Row::Unit::kPerSecond);
  row.Text("peak", PeakName(runs.ceiling));
  row.Number("peak_fraction", Median(runs.shares), Row::Unit::kShare);
  if (!runs.vector_shares.empty()) {
    row.Number("vector_peak_fraction", Median(runs.vector_shares), Row::Unit::kShare);
  }
  row.Int("rss_bytes", memory_.peak(), Row::Unit::kBytes);
  row.Text("policy", runs.attention.policy);
  row.Number("density", runs.attention.density, Row::Unit::kShare);
  if (const std::optional<double> hits = PatternHits()) {
    row.Number("pattern_hits", *hits, Row::Unit::kShare);
  }
  row.OnlyJson();
  row.Number("flops", flops);
  row.Text("model", options_.random_config.empty() ? options_.directory : options_.random_config);
  row.Text("weights_dtype", DTypeName(model.weights_dtype));
  row.Text("activations", ActivationsName(model.activations));
  row.Text("kv_dtype", DTypeName(options_.kv_dtype)).Text("kernels", model.kernels);
  row.Int("chunk_tokens", options_.chunk_tokens).Int("repeat", options_.repeat);
  row.Text("ring_mode", RingModeName(options_.ring_mode));
  row.Number("fastest_seconds", Percentile(runs.seconds, 1e-9));
  row.Number("slowest_seconds", Percentile(runs.seconds, 1));
  row.Number("load_seconds", load_seconds_).Number("peak_rate", Median(runs.peaks));
  return row;
}

absl::Status ModelBench::Run(const std::function<void(const Row&)>& report) {
  ANNULUS_RETURN_IF_ERROR(Start());
  Plan();
  for (const int32_t tokens : options_.prompt_tokens) {
    ANNULUS_ASSIGN_OR_RETURN(const Row row, Prefill(tokens));
    progress_.Clear();
    report(row);
  }
  for (const int32_t depth : options_.depths) {
    ANNULUS_ASSIGN_OR_RETURN(const Row row, Decode(depth));
    progress_.Clear();
    report(row);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunModelBench(const ModelBenchOptions& options, const PeakMeter& meter,
                           BenchProgress& progress, const std::function<void(const Row&)>& report) {
  return ModelBench(options, meter, progress).Run(report);
}

}  // namespace annulus
