#ifndef ANNULUS_ENGINE_API_LOAD_H_
#define ANNULUS_ENGINE_API_LOAD_H_

// What an engine is and has to do: the model, its memory, its metrics.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/ring.h"
#include "engine/base/process_memory.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus {

struct ModelInfo {
  std::string architecture;  // "LlamaForCausalLM", "builtin:recall"
  std::string description;   // one sentence for people; for the recall model says what it is
  int64_t parameters = 0;
  int32_t layers = 0;
  int32_t hidden_size = 0;
  int32_t vocabulary = 0;
  int64_t max_context = 0;            // tokens, prompt and answer together
  DType weights_dtype = DType::kF32;  // of the layers' matrices, or of most of them
  size_t weights_bytes = 0;           // that the packed weights hold, once for all ranks
  Activations activations = Activations::kFloat;
  double weights_error = 0;  // |w - w'| / |w| over what was quantised while loading; else 0
  std::optional<double> conversion_error;  // the same of an earlier conversion, where there was one
  DType kv_dtype = DType::kF32;
  int64_t kv_bytes_per_token = 0;  // of the full-attention groups, all ranks together
  std::string kernels;             // OpTable in use
  bool has_chat_template = false;
  // Documents of conversations get a frame. False for the builtin models, which continue a text as
  // it stands.
  bool frames_documents = true;
  std::vector<int32_t> end_of_text_ids;
  SamplingParams default_sampling;  // for what a request leaves out: the model's own, where it says
  std::vector<std::string> warnings;  // what the operator should know of the model's files
};

struct RankLoad {
  int rank = 0;
  bool up = true;
  std::string device;
  int node = -1;  // memory node that its memory and threads are kept on; -1: anywhere
  std::map<std::string, int64_t> memory_bytes;  // kind ("weights", "kv_full", ..) -> bytes held
  int64_t kv_bytes_used = 0;  // of pages in use; reserved, cached and free ones aside
  int64_t kv_bytes_total = 0;
};

// The most memory that the engine has needed at once since it started, in bytes of the process,
// as admission foresees it: what is resident once every planned byte has been touched.
struct MemoryForecast {
  int64_t program = 0;  // resident when the model was loaded, beside its weights: code, tokenizer
  int64_t weights = 0;
  int64_t kv = 0;         // pages taken: once written they stay resident
  int64_t step = 0;       // step arenas of all ranks
  int64_t ring = 0;       // slots that travel; none where ranks share their memory
  int64_t workspace = 0;  // of kernels, as large as it has become
  int64_t requests = 0;   // ids and page tables of requests and of cached prefixes

  int64_t total() const { return program + weights + kv + step + ring + workspace + requests; }
};

// What the ranks of one device take of its memory as long as they live, in bytes: of the device
// with most ranks.
struct MemoryPlan {
  bool of_host = true;  // its memory is the host's
  int ranks = 1;        // on it
  size_t total = 0;
  // Beside the weights and, of the host's, the program: what the device said when they were loaded.
  size_t free = 0;
  size_t weights = 0;
  size_t program = 0;    // of the host's memory
  size_t kv = 0;         // keys and values
  size_t step = 0;       // activations
  size_t workspace = 0;  // of kernels; of the host's memory they take it as they need it
  size_t slots = 0;      // for what comes from ranks of other devices
  size_t reserve = 0;    // that is left to the driver

  size_t needed() const { return kv + step + workspace + slots + reserve; }  // of `free`
};

struct EngineLoad {
  int running = 0;
  int waiting = 0;
  double kv_usage = 0;            // pages in use over all, 0..1: see PageCounts::in_use
  double seconds_since_step = 0;  // since the engine last got anything done, idle turns included
  bool healthy = true;            // work goes on or none is due, and every rank is up
  std::vector<RankLoad> ranks;
  ExchangeRates exchange;
  // EngineOptions::stall_budget, and how long the smallest chunk of a prompt takes: if that is
  // more, the budget cannot be kept. 0: not known.
  double stall_budget_seconds = 0;
  double smallest_chunk_seconds = 0;
  std::string kv_disk_off;      // why the folder kv_disk is not used any more; empty: it is
  std::string exchange_source;  // where the rates come from, for people
  std::string ring_transport;   // how messages between ranks travel, for people
  MemoryForecast memory;
  MemoryPlan plan;
  ProcessMemory process;
};

// Metrics as plain data; the server turns them into whatever it exposes.
struct MetricSample {
  std::vector<std::pair<std::string, std::string>> labels;
  double value = 0;                                  // counters and gauges
  std::vector<std::pair<double, uint64_t>> buckets;  // histograms: upper bound, cumulative count
  uint64_t count = 0;
  double sum = 0;
};
struct MetricFamily {
  enum class Type : uint8_t { kCounter, kGauge, kHistogram };
  std::string name;  // with the "annulus_" prefix
  std::string help;
  Type type = Type::kCounter;
  std::vector<MetricSample> samples;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_LOAD_H_
