#ifndef ANNULUS_ENGINE_API_LOAD_H_
#define ANNULUS_ENGINE_API_LOAD_H_

// The state of an engine: its model, its memory, its load and its metrics.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/api/request.h"
#include "engine/api/ring.h"
#include "engine/api/workers.h"
#include "engine/base/process_memory.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus {

struct ModelInfo {
  std::string architecture;  // "LlamaForCausalLM", "builtin:recall"
  std::string description;   // one sentence for people; says so if it is the builtin recall model
  int64_t parameters = 0;
  int32_t layers = 0;
  int32_t hidden_size = 0;
  int32_t vocabulary = 0;
  int64_t max_context = 0;            // tokens, prompt and answer together
  DType weights_dtype = DType::kF32;  // of the layers' matrices; if they differ, the most frequent
  size_t weights_bytes = 0;           // of the packed weights, counted once for all ranks
  Activations activations = Activations::kFloat;
  double weights_error = 0;  // |w - w'| / |w| of the matrices quantised while loading; 0 if none
  std::optional<double> conversion_error;  // the same of an earlier conversion, if there was one
  DType kv_dtype = DType::kF32;
  int64_t kv_bytes_per_token = 0;  // of the cache groups that keep every token, all ranks together
  std::string kernels;             // name of the OpTable in use
  bool has_chat_template = false;
  // Whether documents of conversations get a frame. False for the builtin models, which only
  // continue text.
  bool frames_documents = true;
  // Whose attention evidence is taken from, for people; empty: the model cannot give evidence.
  std::string evidence_heads;
  std::vector<int32_t> end_of_text_ids;
  // For fields that a request leaves out; the model's own defaults if it has any.
  SamplingParams default_sampling;
  // Problems with the model's files that the operator should know of.
  std::vector<std::string> warnings;
};

// The state of one rank.
struct RankLoad {
  int rank = 0;
  bool up = true;
  std::string device;
  int node = -1;  // NUMA node of its memory and threads; -1: not bound
  std::map<std::string, int64_t> memory_bytes;  // kind ("weights", "kv_full", ..) -> bytes held
  int64_t kv_bytes_used = 0;  // of pages in use, without reserved, cached and free ones
  int64_t kv_bytes_total = 0;
};

// The highest memory need of the process since the engine started, in bytes, as admission predicts
// it: the resident size once every planned byte has been touched.
struct MemoryForecast {
  int64_t program = 0;  // resident after loading, without weights: code, tokenizer
  int64_t weights = 0;
  int64_t kv = 0;       // pages taken: once written they stay resident
  int64_t kv_host = 0;  // pages in the host tier, likewise
  int64_t step = 0;     // step arenas of all ranks
  int64_t ring = 0;     // buffers for messages between ranks; 0 if ranks share memory
  // Scratch memory of kernels, its largest size so far, and of threads that read experts.
  int64_t workspace = 0;
  // Token ids, page tables and evidence of requests, and cached prefixes.
  int64_t requests = 0;

  int64_t total() const {
    return program + weights + kv + kv_host + step + ring + workspace + requests;
  }
};

// Bytes that the ranks of one device take for their whole lifetime. Describes the device with the
// most ranks.
struct MemoryPlan {
  bool of_host = true;  // the device uses the host's memory
  int ranks = 1;        // on this device
  size_t total = 0;
  // Free after loading: what the device reported; for the host total - program - weights.
  size_t free = 0;
  size_t weights = 0;
  size_t program = 0;    // held by the process besides weights; 0 unless of_host
  size_t kv = 0;         // keys and values
  size_t kv_host = 0;    // keys and values in the host tier; 0 unless of_host
  size_t step = 0;       // activations
  size_t workspace = 0;  // scratch memory of kernels; on the host allocated on demand
  size_t slots = 0;      // receive buffers for ranks on other devices
  // Of the threads that read experts (EngineOptions::expert_memory_bytes), allocated at the start
  // and written on demand. 0: all experts are in memory.
  size_t expert_readers = 0;
  // Evidence of answers, of the host's memory and allocated on demand: all that its ranks can take
  // at once. Requests that find no room in it wait.
  size_t evidence = 0;
  size_t reserve = 0;  // left unused for the driver
  // Of the host's memory, for pages that leave a device: the host tier, and pinned memory on the
  // way to the tiers. 0 if of_host.
  size_t host_tiers = 0;

  size_t needed() const {  // of `free`
    return kv + kv_host + step + workspace + slots + expert_readers + reserve +
           (of_host ? evidence : 0);
  }
};

// Where pages are kept below the ranks' memory: kv_host or kv_disk.
enum class TierKind : uint8_t { kHost, kDisk };

// The state of a tier.
struct TierLoad {
  TierKind kind = TierKind::kDisk;
  std::string off;         // why it was turned off; empty: it is on
  int64_t mismatches = 0;  // pages from there that were not what computing gives
  // A folder that has the name of a page's file, so that this page is never kept; empty: none.
  std::string obstacle;
};

// A snapshot of the engine's work.
struct EngineLoad {
  int running = 0;
  int waiting = 0;
  double kv_usage = 0;  // share of pages in use, 0..1: see PageCounts::in_use
  // Time since the engine last made progress; idle turns count as progress.
  double seconds_since_step = 0;
  bool healthy = true;  // every rank is up, and work either progresses or none is due
  std::vector<RankLoad> ranks;
  ExchangeRates exchange;
  // EngineOptions::stall_budget and the time of the least that a step can compute of a prompt (one
  // layer of one page), in seconds. If the second is larger, the budget cannot be kept. 0: unknown.
  double stall_budget_seconds = 0;
  double smallest_chunk_seconds = 0;
  std::vector<TierLoad> tiers;  // those that are set
  std::string exchange_source;  // where `exchange` comes from, for people
  std::string ring_transport;   // how messages travel between ranks, for people
  RingLoad ring;                // which of them are in other processes
  MemoryForecast memory;
  MemoryPlan plan;
  ProcessMemory process;
};

// Metrics as plain data; the server converts them to its own format.
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

// The engine's state and its metrics, both taken from one snapshot, so that their figures agree.
struct EngineReport {
  EngineLoad load;
  std::vector<MetricFamily> metrics;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_LOAD_H_
