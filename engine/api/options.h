#ifndef ANNULUS_ENGINE_API_OPTIONS_H_
#define ANNULUS_ENGINE_API_OPTIONS_H_

// What an engine is made with.

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

// Whether tokens are guessed ahead: not, or as what followed the same tokens in the request's own
// prompt and answer (prompt lookup). The answer is the same either way.
enum class Speculation : uint8_t { kOff, kNgram };

struct EngineOptions {
  // A directory; "builtin:recall" or "builtin:recall3"; "random:CONFIG.json" for seeded random
  // weights of the shape that a Hugging Face config.json describes, to measure speed.
  std::string model = "builtin:recall";
  int ranks = 1;    // 1..64
  int threads = 0;  // all ranks together; 0: the processor's
  // All ranks together; 0: a quarter of the memory, of GPUs as far as that is free.
  size_t kv_memory_bytes = 0;
  DType kv_dtype = DType::kF32;
  std::optional<DType> weights_dtype;  // absent: each matrix as the checkpoint stores it
  // How layers take their inputs; int8 and fp8_e4m3 need weights in the same (WeightsFor). The
  // head, the choice of experts, and single matrices that are stored in another dtype take float
  // whatever this says.
  Activations activations = Activations::kFloat;
  int max_context = 0;      // tokens; 0: the model's own
  int page_tokens = 64;     // 16, 32, 64, 128 or 256
  int chunk_tokens = 2048;  // prompt tokens of one step, all ranks together; at least a page each
  int tokens_per_rank = 2048;  // a sequence takes one more rank for each of these
  // The longest that a running stream should wait between two tokens while prompts are computed
  // beside it: chunks are made to fit, see engine/scheduler/quantum.h. Absent: 250 ms, on GPUs 50;
  // 0: chunk_tokens alone bounds them.
  std::optional<std::chrono::milliseconds> stall_budget = std::chrono::milliseconds(0);
  int max_running = 64;   // most requests computed at once; those with slow readers aside
  int max_waiting = 256;  // most requests in the queue
  RingMode ring_mode = RingMode::kAuto;
  RingTransport ring_transport = RingTransport::kAuto;
  // Of requests that do not say. Absent: kNgram on processors, kOff on GPUs, where the bits of a
  // row may depend on the rows beside it.
  std::optional<Speculation> speculation = Speculation::kOff;
  bool device_graphs = true;  // steps that decode go to a device as graphs, where it has them
  // File of measured exchange rates: read where it exists, else written after measuring at start.
  // Empty: measured at every start.
  std::string profile;
  // A folder where complete pages of prompts are kept, so that they outlive the process: see
  // engine/tiers. Empty: none. Only where ranks' memory is the host's.
  std::string kv_disk;
  int64_t kv_disk_bytes = 0;  // that its files may take; with kv_disk at least 1 MiB
  // A call to the disk that takes longer turns kv_disk off.
  std::chrono::milliseconds kv_disk_timeout{30'000};
  // For tests: what stands for the system's calls to the disk; it outlives the engine. Null: none.
  DiskCalls* kv_disk_calls = nullptr;
  // How much of all ranks' pages pinned documents take at most, of all tenants and of one: 0..1.
  double max_pinned = 0.5;
  double max_pinned_by_tenant = 0.25;
  AttentionAssignment attention;  // of requests that name none
  // A safetensors file with the gates of the policy `learned`: see engine/sparse/gates.h. Empty:
  // that policy is not to be had.
  std::string attention_gates;
  std::string kernels;               // force one OpTable by name; empty: the best
  bool steps_through_bytes = false;  // plans and results become bytes and back: for tests
  // Longest silence of all ranks while one waits for another; work that goes on is no silence.
  std::chrono::milliseconds exchange_timeout{600'000};
  std::chrono::milliseconds slow_reader_timeout{30'000};  // longest a full sink may stall a request
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_OPTIONS_H_
