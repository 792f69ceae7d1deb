#ifndef ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_
#define ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_

#include <span>

#include "absl/status/status.h"
#include "engine/ring/ring_attention.h"

namespace annulus {

// Watches a single rank attend, to learn from a model's own attention (used to fit gates).
class AttentionObserver {
 public:
  // The rows of one item in a layer without a window. Their keys and values are already in the
  // pages.
  struct Observation {
    int layer = 0;
    const RingAttentionConfig& config;
    const OpTable& ops;
    Stream& stream;
    std::span<const int32_t> positions;  // of the rows
    ConstMatrixView query;               // [rows, heads * k_dim], rotated
    std::span<const KvPageView> pages;   // all pages up to the last row
  };

  virtual ~AttentionObserver() = default;
  // Called on the rank's thread. An error ends the step.
  virtual absl::Status Observe(const Observation& seen) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_
