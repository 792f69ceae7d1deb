#ifndef ANNULUS_ENGINE_API_OPTIONS_H_
#define ANNULUS_ENGINE_API_OPTIONS_H_

// Options of an engine.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/api/ring.h"
#include "engine/sparse/assignment.h"
#include "kernels/base/activations.h"
#include "kernels/base/dtype.h"

namespace annulus {

class DiskCalls;

// Whether to guess tokens ahead (speculative decoding). kNgram guesses what followed the same
// tokens earlier in the request's own prompt and answer (prompt lookup). The answer is the same
// either way.
enum class Speculation : uint8_t { kOff, kNgram };

// Whether pages from kv_host and kv_disk are compared with what computing gives, besides their
// checksum, identity and chain, which are always checked.
enum class KvVerify : uint8_t {
  kOff,
  kSample,  // recomputes one page of each restored prefix before the prefix is used
  kAll,     // restores nothing; compares every computed page with the stored one
};

// How many pages a request takes when it begins. kWorst: enough for the longest answer that it may
// give. kExpected: enough for the answer that it is expected to give (scheduler/answer_length.h);
// it takes more as the answer grows. If no page is left then, the request that would be served last
// is preempted: it gives up its pages, waits, and goes on with the same answer.
enum class AdmissionMode : uint8_t { kWorst, kExpected };

struct EngineOptions {
  // A model directory; "builtin:recall" or "builtin:recall3"; or "random:CONFIG.json": random
  // seeded weights in the shape that a Hugging Face config.json describes, for speed measurements.
  std::string model = "builtin:recall";
  int ranks = 1;    // 1..64
  int threads = 0;  // all ranks together; 0: as many as the processor has
  // All ranks together. 0: a quarter of the memory; on GPUs at most what is free.
  size_t kv_memory_bytes = 0;
  std::optional<DType> kv_dtype;       // absent: f32 if the weights are held in f32, else bf16
  std::optional<DType> weights_dtype;  // absent: keep each matrix as stored
  // How layers take their inputs. int8 needs integer weights, fp8_e4m3 weights in fp8_e4m3
  // (WeightsFor). The output head, expert routing, and matrices stored in another dtype always take
  // float inputs.
  Activations activations = Activations::kFloat;
  int max_context = 0;   // tokens; 0: the model's limit
  int page_tokens = 64;  // 16, 32, 64, 128 or 256
  // Most prompt tokens in a step, all ranks together; at least a page per rank.
  int chunk_tokens = 2048;
  int tokens_per_rank = 2048;  // a sequence is spread over one more rank for each of these
  // How long a running stream should wait between two tokens at most while prompts are computed at
  // the same time. Chunks fit into it, or are suspended between layers: see scheduler/quantum.h.
  // Absent: 250 ms, on GPUs 50 ms. 0: only chunk_tokens bounds the chunks.
  std::optional<std::chrono::milliseconds> stall_budget = std::chrono::milliseconds(0);
  AdmissionMode admission = AdmissionMode::kWorst;
  int max_running = 64;   // most requests computed at once, without those parked for slow readers
  int max_waiting = 256;  // most requests in the queue
  RingMode ring_mode = RingMode::kAuto;
  RingTransport ring_transport = RingTransport::kAuto;
  // Default for requests that do not choose. Absent: kNgram on CPUs, kOff on GPUs, where the bits
  // of a row may depend on the rows computed with it.
  std::optional<Speculation> speculation = Speculation::kOff;
  bool device_graphs = true;  // run decode steps as device graphs if the device supports them
  // File with measured exchange rates. Read if it exists; otherwise written after measuring at
  // start. Empty: measure at every start.
  std::string profile;
  // Bytes of the host's memory that keep complete pages of prompts after they have left the ranks'
  // memory: see engine/tiers. 0: none; else at least 1 MiB. Needs kernels that are row_invariant.
  int64_t kv_host_bytes = 0;
  // The host's memory that the process may use, against which kv_host_bytes are checked if the
  // ranks are on a device. 0: not known.
  size_t host_memory_bytes = 0;
  // Folder that keeps complete pages of prompts so that they survive a restart: see engine/tiers.
  // Empty: none. Needs kernels that are row_invariant.
  std::string kv_disk;
  int64_t kv_disk_bytes = 0;               // limit for its files; at least 1 MiB if kv_disk is set
  KvVerify kv_verify = KvVerify::kSample;  // of pages from kv_host and kv_disk
  // If a disk call takes longer than this, kv_disk is turned off. If a device takes longer to copy
  // a page for a tier (kv_host or kv_disk), that tier is turned off.
  std::chrono::milliseconds kv_disk_timeout{30'000};
  // For tests: replaces the system's disk calls; must outlive the engine. Null: the system's.
  DiskCalls* kv_disk_calls = nullptr;
  // Largest share of all ranks' pages that pinned documents may take, 0..1: in total and per
  // tenant.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  AttentionAssignment attention;  // default for requests that name none
  // Safetensors file with gate weights for the policy `learned`: see engine/sparse/gates.h. If
  // empty, requests for `learned` are rejected.
  std::string attention_gates;
  std::string kernels;  // name of the OpTable to use; empty: the best one for this machine
  bool steps_through_bytes = false;  // for tests: encode and decode every plan and result
  // How long a rank may wait for another while no rank makes progress. A long computation counts as
  // progress, so only a real hang trips this.
  std::chrono::milliseconds exchange_timeout{600'000};
  std::chrono::milliseconds slow_reader_timeout{30'000};  // how long a full sink may park a request
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_OPTIONS_H_
