#include "bench/model/engine_options.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/loading/model_files.h"
#include "engine/text/text_file.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

int32_t LongestSequence(const ModelBenchOptions& options) {
  int32_t longest = options.warm_up_tokens;
  for (const int32_t tokens : options.prompt_tokens) longest = std::max(longest, tokens);
  for (const int32_t depth : options.depths) longest = std::max(longest, depth);
  return longest + options.generate + 1;
}

int32_t MostStreams(const ModelBenchOptions& options) {
  return *std::max_element(options.streams.begin(), options.streams.end());
}

// Room for as many of the longest sequence as decode at once, over all ranks; pages that are not
// touched cost no memory.
size_t KvMemory(const ModelBenchOptions& options, int ranks, ModelConfig config) {
  constexpr int kLayoutColumns = 32;   // page layouts may pad heads to this
  constexpr double kHeadroom = 1.25;   // chunks in flight behind windows, page headers
  constexpr double kLeast = 64 << 20;  // per rank
  for (LayerConfig& layer : config.layers) {
    for (int32_t* const dim : {&layer.attention.k_dim, &layer.attention.v_dim}) {
      *dim = (*dim + kLayoutColumns - 1) / kLayoutColumns * kLayoutColumns;
    }
  }
  const double bytes =
      KvBytesPerToken(config, options.kv_dtype) * LongestSequence(options) * MostStreams(options);
  return static_cast<size_t>(kHeadroom * bytes + kLeast * ranks);
}

}  // namespace

absl::StatusOr<ModelConfig> ReadModelConfig(const ModelBenchOptions& options) {
  if (options.random_config.empty()) {
    ANNULUS_ASSIGN_OR_RETURN(ModelFiles files,
                             OpenModelFiles(options.directory, GgufTensors::Codes::kKeep));
    return std::move(files.config);
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(options.random_config));
  return ParseModelConfig(text, options.random_config);
}

EngineOptions EngineOptionsOf(const ModelBenchOptions& options, int ranks,
                              const ModelConfig& config) {
  EngineOptions engine;
  engine.stall_budget = std::chrono::milliseconds(0);  // chunks as large as they were asked for
  engine.speculation = Speculation::kOff;              // requests say so themselves
  engine.model = options.random_config.empty() ? options.directory
                                               : absl::StrCat("random:", options.random_config);
  engine.ranks = ranks;
  engine.threads = options.threads;
  engine.kv_memory_bytes = KvMemory(options, ranks, config);
  engine.kv_dtype = options.kv_dtype;
  engine.weights_dtype = options.weights_dtype;
  engine.activations = options.activations;
  engine.chunk_tokens = options.chunk_tokens;
  engine.tokens_per_rank = engine.page_tokens;  // every sequence is spread over all ranks
  engine.max_running = MostStreams(options);
  engine.ring_mode = options.ring_mode;
  engine.attention = options.attention;
  engine.kernels = options.kernels;
  engine.expert_memory_bytes = options.expert_memory;
  return engine;
}

}  // namespace annulus::bench
