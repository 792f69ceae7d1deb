#ifndef ANNULUS_ENGINE_RUNNER_STEP_STEP_BUFFERS_H_
#define ANNULUS_ENGINE_RUNNER_STEP_STEP_BUFFERS_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "engine/memory/step_arena.h"
#include "engine/ring/ring_attention.h"
#include "engine/runner/rank_model.h"
#include "kernels/base/candidates.h"
#include "kernels/base/tensor_view.h"

namespace annulus {

// How many rows of logits to compute at once. Bounds the buffer for large vocabularies: 19 MB for
// 152K tokens. Each time the head is read whole, and for 8 rows that takes longer than to multiply.
inline constexpr int64_t kLogitsRows = 32;
// Of these, how many tokens a device chooses at once. Bounds what is uploaded with each row, up to
// 13 bytes for each token of the vocabulary.
inline constexpr int64_t kSampledRows = 8;

// Bytes of the step arenas, for plans with at most `rows` rows on each rank, in a ring of at most
// `ranks` ranks on such a device. If the device uses host memory, `host` is 0 and `device` covers
// both.
struct StepBytes {
  size_t device = 0;
  size_t host = 0;
};
StepBytes CountStepBytes(const RankModel& model, int rows, int ranks,
                         const BackendCapabilities& device);

// Device bytes of RankParts::suspended, for chunks of at most `rows` rows on a rank and the row
// behind them that is sampled. 0 rows: none are suspended.
size_t CountSuspendedBytes(const RankModel& model, int rows);

// Rows [first, first + rows) of a buffer that is a dense matrix of so many columns.
inline MatrixView DenseRows(std::span<float> buffer, int64_t first, int64_t rows, int64_t columns) {
  return {buffer.data() + first * columns, rows, columns, columns};
}

// What decides how large a step's buffers are. "Own rows" are those that the rank computes.
struct StepSizes {
  const RankModel& model;
  int64_t rows = 0;       // own rows
  StateRows states = {};  // from RingAttention::Reserve
  int64_t wide_rows = 0;  // BackendCapabilities::wide_rows
  bool in_place = false;  // the host reads logits where the device wrote them
  bool suspends = false;  // the caller sets what layers pass on, which outlives the step
};

// The buffers of one step. A single list in step_buffers.cc says what they are: Take takes them
// from the arenas, and CountStepBytes adds up their bytes. An array is on the list as soon as an
// operation of the model's graph names it.
//
// All spans point into the arenas and are valid until these are reset or rewound.
struct StepBuffers {
  explicit StepBuffers(const StepSizes& sizes);

  // When a buffer is taken: at the step's start, to fill kLayerInputs or where a gated block begins
  // (rewind the arena after each), or at the step's end.
  enum class Phase : uint8_t { kStep, kInputs, kBlock, kHead };

  // Partial attention of rows: see AttentionState.
  struct State {
    std::span<float> o;    // [rows, state_columns]
    std::span<float> lse;  // [rows, state_heads]
  };
  struct RopeAngles {
    std::span<float> cosine, sine;  // [own rows, pairs]
  };
  // For one layer's mixture of experts. A choice is a pair of a row and one of its experts. few_*
  // are for steps of few rows (kMostChoosingRows), whose choices stay on the device; the others are
  // in host memory.
  struct Experts {
    std::span<int32_t> few_chosen;    // [choices of few rows] expert
    std::span<float> few_weights;     // [choices of few rows]
    std::span<int32_t> gate_chosen;   // [own rows of a slice] 0; see Operation::Kind::kAddGated
    std::span<float> gates;           // [own rows of a slice]
    std::span<int32_t> chosen;        // [choices] expert
    std::span<float> weights;         // [choices]
    std::span<int32_t> sorted_rows;   // [choices], by expert
    std::span<float> sorted_weights;  // [choices]
    std::span<int32_t> ends;          // [experts + 1] index of each expert's first sorted choice
  };
  // For a slice of rows, whose parts of kLayerInputs are made of these.
  struct Inputs {
    std::span<float> embedded;   // [rows, hidden]
    std::span<float> projected;  // [rows, layers * layer_input_size]
  };
  // For kLogitsRows rows.
  struct Head {
    std::span<float> normed;         // [rows, hidden]
    std::span<float> streams;        // [rows, streams * hidden]; of StreamsConfig
    std::span<float> projected;      // [rows, hidden]; likewise
    std::span<float> logits;         // [rows, vocabulary]
    std::span<float> seen;           // the same in host memory; StepSizes::in_place: not taken
    std::span<int32_t> tokens;       // [rows] readable by host and device
    std::span<Candidate> workspace;  // [vocabulary] host memory
  };

  const StepSizes sizes;
  const std::array<int64_t, kLayerArrays> values;  // [LayerArray] how many fit into the array
  const int64_t state_heads, state_columns;        // heads and heads * v_dim: the most of a layer
  std::array<std::span<float>, kLayerArrays> arrays;  // [LayerArray]
  std::span<float> lse;                               // of kAttended: [own rows, state_heads]
  State served, kept;                                 // see StateRows
  std::vector<RopeAngles> angles;                     // [rope setting]
  Experts experts;
  Inputs inputs;
  Head head;

  std::span<float>& of(LayerArray array) { return arrays[static_cast<size_t>(array)]; }
  MatrixView Rows(LayerArray array, int64_t first, int64_t rows, int64_t columns) {
    return DenseRows(of(array), first, rows, columns);
  }

  // Takes the buffers of `phase`. `host` is `device` if the device uses host memory.
  // RESOURCE_EXHAUSTED if an arena is smaller than CountStepBytes says.
  absl::Status Take(Phase phase, StepArena& device, StepArena& host);
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_STEP_STEP_BUFFERS_H_
