#include "bench/model/model_bench.h"

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "bench/model/batched_decode.h"
#include "bench/model/bench_answer.h"
#include "bench/model/empty_steps.h"
#include "bench/model/engine_counts.h"
#include "bench/model/engine_options.h"
#include "bench/model/expert_waits.h"
#include "bench/model/forced_answer.h"
#include "bench/model/forced_decode.h"
#include "bench/model/model_work.h"
#include "bench/report/resident_memory.h"
#include "bench/report/ring_mode.h"
#include "bench/report/statistics.h"
#include "engine/engine_seams.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

// Tokens that are decoded between two reads of the memory.
constexpr int32_t kPieceTokens = 8;

// The runs of one row.
struct Runs {
  std::vector<double> seconds;
  std::vector<double> shares;         // of the ceiling
  std::vector<double> vector_shares;  // of the vector instructions' ceiling
  std::vector<double> peaks;
  std::vector<double> idle;   // shares of `seconds` in which no rank had a step
  std::vector<int32_t> ids;   // that all generated
  double exposed_before = 0;  // ExposedSeconds
  AttentionReport attention;  // of the last
};

// Where the ranks of an engine are.
struct Setting {
  int ranks = 1;
  int workers = 0;  // so many of them have a process each
};

std::vector<Setting> SettingsOf(const ModelBenchOptions& options) {
  std::vector<Setting> settings;
  for (const int32_t ranks : options.ranks) settings.push_back({ranks, 0});
  for (const int32_t workers : options.workers) settings.push_back({workers + 1, workers});
  return settings;
}

// What rows of further engines are compared with.
struct FirstRanks {
  double seconds = 0;
  std::vector<int32_t> ids;
};

class ModelBench {
 public:
  ModelBench(const ModelBenchOptions& options, BenchMachine& machine, BenchProgress& progress)
      : options_(options), machine_(machine), progress_(progress), settings_(SettingsOf(options)) {}

  absl::Status Run(const std::function<void(const Row&)>& report);

 private:
  absl::Status Start(const Setting& setting);
  absl::StatusOr<EngineSeams> SeamsOf(const Setting& setting);
  absl::Status RunRanks(const std::function<void(const Row&)>& report);
  void Plan();
  std::vector<int32_t> RandomPrompt(int32_t tokens);
  absl::StatusOr<Answer> Read(const std::vector<int32_t>& prompt);
  absl::StatusOr<Answer> Repeat(const std::vector<int32_t>& prompt, int32_t tokens);
  absl::Status Forced(int32_t depth, const std::function<void(const Row&)>& report);
  absl::StatusOr<Row> Prefill(int32_t tokens);
  absl::StatusOr<Row> Decode(int32_t depth);
  BatchedDecodeOptions BatchedOf(int32_t depth, int32_t streams) const;
  absl::StatusOr<Row> Batched(int32_t depth, int32_t streams);
  ExpertWaitsOptions ExpertsOf(int32_t depth) const {
    return {.depth = depth, .generate = options_.generate, .repeat = options_.repeat};
  }
  absl::StatusOr<Row> Experts(int32_t depth);
  absl::Status TakePieces(const std::vector<int32_t>& prompt, MemoryMeter& memory, Runs& runs);
  Row Describe(const std::string& peak, const char* phase, int64_t tokens, int64_t depth,
               const Runs& runs, double flops);
  void NameRanks(Row& row) const;
  void NameModel(Row& row) const;
  void Compare(const char* phase, int64_t tokens, int64_t depth, const Runs& runs, Row& row);

  double PrefillWork(int32_t tokens) const { return PrefillFlops(config_, std::max(1, tokens)); }
  double DecodeWork(int32_t depth) const {
    return DecodeFlops(config_, depth + options_.generate / 2) * options_.generate;
  }

  const ModelBenchOptions& options_;
  BenchMachine& machine_;
  BenchProgress& progress_;
  const std::vector<Setting> settings_;
  std::mt19937 random_;
  ModelConfig config_;
  Setting setting_;                          // of the engine
  std::unique_ptr<BenchWorkers> workers_;    // null: all its ranks are here
  absl::StatusOr<double> empty_step_ = 0.0;  // EmptyStepSeconds, if options_.workers are given
  std::vector<int32_t> forced_;              // what answers begin with: EngineSeams::force_answer
  std::unique_ptr<Engine> engine_;
  std::map<int32_t, std::vector<int32_t>> last_prompts_;  // that were read, by length
  std::map<std::string, FirstRanks> first_;               // by what a row is about
  ResidentMemory memory_;
  double load_seconds_ = 0;
};

// What the engine gets of the bench. Its ranks are timed before it has them.
absl::StatusOr<EngineSeams> ModelBench::SeamsOf(const Setting& setting) {
  EngineSeams seams;
  seams.force_answer = [this](const RequestSpec&) { return forced_; };
  if (options_.workers.empty()) return seams;
  seams.wrap_ranks = [this](std::unique_ptr<RankPort> ranks) {
    empty_step_ = EmptyStepSeconds(*ranks);
    return ranks;
  };
  if (setting.workers == 0) return seams;
  ANNULUS_ASSIGN_OR_RETURN(workers_, options_.start_workers(setting.workers));
  seams.workers = workers_->engine_workers();
  return seams;
}

absl::Status ModelBench::Start(const Setting& setting) {
  setting_ = setting;
  random_.seed(1);  // the same prompts for any number of ranks
  last_prompts_.clear();
  engine_.reset();
  workers_.reset();
  memory_.Resume();
  const auto start = std::chrono::steady_clock::now();
  ANNULUS_ASSIGN_OR_RETURN(const EngineSeams seams, SeamsOf(setting));
  ANNULUS_ASSIGN_OR_RETURN(
      engine_, CreateEngineWith(seams, EngineOptionsOf(options_, setting.ranks, config_),
                                machine_.backend(), machine_.kernels()));
  ANNULUS_RETURN_IF_ERROR(empty_step_.status());
  load_seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  ANNULUS_RETURN_IF_ERROR(Repeat(RandomPrompt(options_.warm_up_tokens), 2).status());
  memory_.Pause();
  if (options_.prompt_tokens.empty()) return absl::OkStatus();
  return machine_.ChooseProducts(ProductsOf(engine_->model()));
}

void ModelBench::Plan() {
  const auto repeat = static_cast<int64_t>(options_.repeat);
  // Forced answers are given to one stream.
  const std::vector<int32_t> streams_of_depth =
      options_.force_tokens.empty() ? options_.streams : std::vector<int32_t>{1};
  for (size_t i = 0; i < settings_.size(); ++i) {
    for (const int32_t tokens : options_.prompt_tokens) {
      progress_.Plan({tokens * repeat, PrefillWork(tokens) * options_.repeat});
    }
    for (const int32_t depth : options_.depths) {
      for (const int32_t streams : streams_of_depth) {
        if (options_.expert_memory > 0) {
          progress_.Plan(WorkOf(config_, ExpertsOf(depth)));
          continue;
        }
        if (streams > 1) {
          progress_.Plan(BatchedWork(config_, BatchedOf(depth, streams)));
          continue;
        }
        progress_.Plan({std::max(1, depth), PrefillWork(depth)});
        progress_.Plan({options_.generate * repeat, DecodeWork(depth) * options_.repeat});
      }
    }
  }
}

std::vector<int32_t> ModelBench::RandomPrompt(int32_t tokens) {
  std::uniform_int_distribution<int32_t> id(0, config_.vocabulary - 1);
  std::vector<int32_t> prompt(static_cast<size_t>(tokens));
  for (int32_t& token : prompt) token = id(random_);
  return prompt;
}

// Reads a prompt that is new to the engine.
absl::StatusOr<Answer> ModelBench::Read(const std::vector<int32_t>& prompt) {
  RequestSpec spec;
  spec.prompt = prompt;
  spec.sampling.max_tokens = 1;
  return Generate(*engine_, std::move(spec), progress_,
                  [this](int64_t read) { return read > 0 ? PrefillFlops(config_, read) : 0; });
}

// Answers a prompt that it has read, or whose reading is not counted.
absl::StatusOr<Answer> ModelBench::Repeat(const std::vector<int32_t>& prompt, int32_t tokens) {
  RequestSpec spec;
  spec.prompt = prompt;
  spec.sampling.max_tokens = tokens;
  return Generate(*engine_, std::move(spec), progress_);
}

absl::StatusOr<Row> ModelBench::Prefill(int32_t tokens) {
  double flops = 0;
  Runs runs;
  runs.exposed_before = ExposedSeconds(*engine_);
  const bool has_vector = !machine_.vector_name().empty();
  ANNULUS_ASSIGN_OR_RETURN(CeilingRates before, machine_.MeasureProducts());
  for (int i = 0; i < options_.repeat; ++i) {
    std::vector<int32_t>& prompt = last_prompts_[tokens] = RandomPrompt(tokens);
    memory_.Resume();
    ANNULUS_ASSIGN_OR_RETURN(const Answer answer, Read(prompt));
    memory_.Pause();
    ANNULUS_ASSIGN_OR_RETURN(const CeilingRates after, machine_.MeasureProducts());
    const CeilingRates ceiling = MeanOf(before, after);
    before = after;
    const double seconds = answer.completion.timings.prefill;
    runs.attention = answer.completion.attention;
    runs.ids.insert(runs.ids.end(), answer.ids.begin(), answer.ids.end());
    flops = PrefillFlops(config_, tokens, runs.attention.density);
    runs.seconds.push_back(seconds);
    runs.shares.push_back(flops / seconds / ceiling.best);
    if (has_vector) runs.vector_shares.push_back(flops / seconds / ceiling.vector);
    runs.peaks.push_back(ceiling.best);
    progress_.Done({tokens, PrefillWork(tokens)});
  }
  Row row = Describe(machine_.products_name(), "prefill", tokens, 0, runs, flops);
  if (has_vector) row.Text("vector_peak", machine_.vector_name());
  return row;
}

absl::StatusOr<Row> ModelBench::Decode(int32_t depth) {
  // A prompt that a prefill row has just read is in the prefix cache, as it is for all runs here.
  std::vector<int32_t>& prompt = last_prompts_[depth];
  if (prompt.empty()) prompt = RandomPrompt(std::max(1, depth));
  const int32_t steps = options_.generate;
  // The row of the i-th step of a piece sees depth + i keys before it.
  const int64_t middle = depth + std::min(kPieceTokens, steps) / 2;
  memory_.Resume();
  ANNULUS_RETURN_IF_ERROR(Read(prompt).status());
  progress_.Done({std::max(1, depth), PrefillWork(depth)});
  memory_.Pause();
  const DType weights = engine_->model().weights_dtype;
  const auto bytes_at = [&](double density) {
    return DecodeBytes(config_, middle, weights, options_.kv_dtype, density) * steps;
  };
  Runs runs;
  runs.exposed_before = ExposedSeconds(*engine_);
  ANNULUS_ASSIGN_OR_RETURN(const auto memory, machine_.TakeMemoryMeter());
  for (int i = 0; i < options_.repeat; ++i) {
    ANNULUS_RETURN_IF_ERROR(TakePieces(prompt, *memory, runs));
    runs.shares.push_back(bytes_at(runs.attention.density) / runs.seconds.back() /
                          runs.peaks.back());
    progress_.Done({steps, DecodeWork(depth)});
  }
  const double flops = DecodeFlops(config_, middle, runs.attention.density) * steps;
  Row row = Describe(machine_.memory_name(), "decode", steps, depth, runs, flops);
  row.Number("bytes", bytes_at(runs.attention.density)).Int("streams", 1);
  return row;
}

BatchedDecodeOptions ModelBench::BatchedOf(int32_t depth, int32_t streams) const {
  return {.depth = std::max(1, depth),
          .shared = options_.shared_prompt ? std::max(0, depth - kOwnTokens) : 0,
          .streams = streams,
          .generate = options_.generate,
          .repeat = options_.repeat,
          .kv_dtype = options_.kv_dtype};
}

absl::StatusOr<Row> ModelBench::Batched(int32_t depth, int32_t streams) {
  ANNULUS_ASSIGN_OR_RETURN(Row row,
                           BatchedDecode(
                               *engine_, machine_, config_, BatchedOf(depth, streams),
                               [this](int32_t tokens) { return RandomPrompt(tokens); }, progress_));
  NameRanks(row);
  NameModel(row);
  return row;
}

absl::StatusOr<Row> ModelBench::Experts(int32_t depth) {
  memory_.Resume();
  ANNULUS_ASSIGN_OR_RETURN(Row row,
                           ExpertWaits(
                               *engine_, config_, ExpertsOf(depth),
                               [this](int32_t tokens) { return RandomPrompt(tokens); }, progress_));
  memory_.Pause();
  row.Int("rss_bytes", memory_.peak(), Row::Unit::kBytes);
  NameRanks(row);
  NameModel(row);
  return row;
}

// The same answer without and with guesses, by turns; the prompt is read once.
absl::Status ModelBench::Forced(int32_t depth, const std::function<void(const Row&)>& report) {
  ANNULUS_ASSIGN_OR_RETURN(
      const ForcedAnswer forced,
      ForceAnswer(options_.force_tokens, depth, options_.generate, config_.vocabulary, random_));
  memory_.Resume();
  ANNULUS_RETURN_IF_ERROR(Read(forced.prompt).status());
  progress_.Done({std::max(1, depth), PrefillWork(depth)});
  const auto tokens = static_cast<int32_t>(forced.answer.size());
  progress_.Plan({int64_t{tokens - options_.generate} * options_.repeat, 0});  // a file has its own
  forced_ = forced.answer;
  const auto no_more = absl::MakeCleanup([this] { forced_.clear(); });
  const ForcedDecodeOptions options = {
      .depth = depth, .repeat = options_.repeat, .operations = DecodeWork(depth)};
  ANNULUS_ASSIGN_OR_RETURN(const auto rows, ForcedDecode(
                                                *engine_, forced, options,
                                                [this](Row& row) { NameRanks(row); }, progress_));
  memory_.Pause();
  progress_.Clear();
  for (const Row& row : rows) report(row);
  return absl::OkStatus();
}

// One run: pieces of an answer to a prompt that is in the prefix cache, with reads of the memory
// between.
absl::Status ModelBench::TakePieces(const std::vector<int32_t>& prompt, MemoryMeter& memory,
                                    Runs& runs) {
  double seconds = 0;
  double host = 0;
  std::vector<double> reads;  // seconds per byte
  for (int32_t done = 0; done < options_.generate; done += kPieceTokens) {
    ANNULUS_ASSIGN_OR_RETURN(const double rate, memory.BytesPerSecond());
    reads.push_back(1 / rate);
    memory_.Resume();
    const int32_t piece = std::min(kPieceTokens, options_.generate - done);
    ANNULUS_ASSIGN_OR_RETURN(const Answer answer, Repeat(prompt, piece + 1));
    memory_.Pause(memory.host_bytes());
    seconds += answer.completion.timings.decode;
    host += answer.completion.timings.host;
    runs.attention = answer.completion.attention;
    runs.ids.insert(runs.ids.end(), answer.ids.begin(), answer.ids.end());
  }
  runs.seconds.push_back(seconds);
  runs.idle.push_back(host / seconds);
  runs.peaks.push_back(static_cast<double>(reads.size()) /
                       std::accumulate(reads.begin(), reads.end(), 0.0));
  return absl::OkStatus();
}

// Beside the same row of the first engine, which this one may be.
void ModelBench::Compare(const char* phase, int64_t tokens, int64_t depth, const Runs& runs,
                         Row& row) {
  const double seconds = Median(runs.seconds);
  const FirstRanks& first =
      first_
          .try_emplace(absl::StrCat(phase, " ", tokens, " ", depth), FirstRanks{seconds, runs.ids})
          .first->second;
  double same = 0;
  for (size_t i = 0; i < runs.ids.size(); ++i) same += runs.ids[i] == first.ids[i] ? 1 : 0;
  row.Number("ratio_to_first", seconds / first.seconds);
  row.Number("same_tokens", same / static_cast<double>(runs.ids.size()), Row::Unit::kShare);
  const double all = static_cast<double>(runs.seconds.size()) * setting_.ranks;
  row.Number("exposed_seconds", (ExposedSeconds(*engine_) - runs.exposed_before) / all,
             Row::Unit::kSeconds);
}

void ModelBench::NameRanks(Row& row) const {
  row.Int("ranks", setting_.ranks);
  if (!options_.workers.empty()) {
    row.Int("workers", setting_.workers);
    row.Number("empty_step_seconds", *empty_step_, Row::Unit::kSeconds);
  }
  row.Int("threads", options_.threads);
}

// What ran, as JSON alone shows it.
void ModelBench::NameModel(Row& row) const {
  const ModelInfo& model = engine_->model();
  row.OnlyJson();
  row.Text("model", options_.random_config.empty() ? options_.directory : options_.random_config);
  row.Text("weights_dtype", DTypeName(model.weights_dtype));
  row.Text("activations", ActivationsName(model.activations));
  row.Text("kv_dtype", DTypeName(options_.kv_dtype)).Text("kernels", model.kernels);
  if (options_.routing.has_value()) row.Text("routing", ForcedRoutingName(*options_.routing));
  if (options_.expert_memory > 0) row.Int("expert_memory", options_.expert_memory);
}

Row ModelBench::Describe(const std::string& peak, const char* phase, int64_t tokens, int64_t depth,
                         const Runs& runs, double flops) {
  const double seconds = Median(runs.seconds);
  Row row;
  row.Text("phase", phase).Int("tokens", tokens).Int("depth", depth);
  NameRanks(row);
  row.Number("seconds", seconds, Row::Unit::kSeconds);
  row.Number("tokens_per_second", static_cast<double>(tokens) / seconds, Row::Unit::kPerSecond);
  row.Text("peak", peak);
  row.Number("peak_fraction", Median(runs.shares), Row::Unit::kShare);
  if (!runs.vector_shares.empty()) {
    row.Number("vector_peak_fraction", Median(runs.vector_shares), Row::Unit::kShare);
  }
  if (!runs.idle.empty()) row.Number("idle", Median(runs.idle), Row::Unit::kShare);
  if (settings_.size() > 1) Compare(phase, tokens, depth, runs, row);
  row.Int("rss_bytes", memory_.peak(), Row::Unit::kBytes);
  row.Text("policy", runs.attention.policy);
  row.Number("density", runs.attention.density, Row::Unit::kShare);
  if (const std::optional<double> hits = PatternHits(*engine_)) {
    row.Number("pattern_hits", *hits, Row::Unit::kShare);
  }
  NameModel(row);
  row.Number("flops", flops);
  row.Int("chunk_tokens", options_.chunk_tokens).Int("repeat", options_.repeat);
  row.Text("ring_mode", RingModeName(options_.ring_mode));
  row.Number("fastest_seconds", Percentile(runs.seconds, 1e-9));
  row.Number("slowest_seconds", Percentile(runs.seconds, 1));
  row.Number("load_seconds", load_seconds_).Number("peak_rate", Median(runs.peaks));
  return row;
}

absl::Status ModelBench::RunRanks(const std::function<void(const Row&)>& report) {
  for (const int32_t tokens : options_.prompt_tokens) {
    ANNULUS_ASSIGN_OR_RETURN(const Row row, Prefill(tokens));
    progress_.Clear();
    report(row);
  }
  for (const int32_t depth : options_.depths) {
    if (!options_.force_tokens.empty()) {
      ANNULUS_RETURN_IF_ERROR(Forced(depth, report));
      continue;
    }
    for (const int32_t streams : options_.streams) {
      ANNULUS_ASSIGN_OR_RETURN(const Row row, options_.expert_memory > 0 ? Experts(depth)
                                              : streams > 1              ? Batched(depth, streams)
                                                                         : Decode(depth));
      progress_.Clear();
      report(row);
    }
  }
  return absl::OkStatus();
}

absl::Status ModelBench::Run(const std::function<void(const Row&)>& report) {
  ANNULUS_ASSIGN_OR_RETURN(config_, ReadModelConfig(options_));
  if (options_.routing.has_value() && config_.experts.count == 0) {
    return absl::InvalidArgumentError("--routing: the model has no experts; leave it out");
  }
  Plan();
  // A ring that has lost a worker goes on without it: those times would be of another setting.
  const auto report_whole = [&](const Row& row) {
    if (workers_ == nullptr || workers_->Check().ok()) report(row);
  };
  for (const Setting& setting : settings_) {
    ANNULUS_RETURN_IF_ERROR(Start(setting));
    const absl::Status ended = RunRanks(report_whole);
    // The cause of what failed, if one is gone.
    if (workers_ != nullptr) ANNULUS_RETURN_IF_ERROR(workers_->Check());
    ANNULUS_RETURN_IF_ERROR(ended);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RunModelBench(const ModelBenchOptions& options, BenchMachine& machine,
                           BenchProgress& progress, const std::function<void(const Row&)>& report) {
  return ModelBench(options, machine, progress).Run(report);
}

}  // namespace annulus::bench
