#ifndef ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_
#define ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_

#include <span>

#include "absl/status/status.h"
#include "engine/ring/ring_attention.h"

namespace annulus {

// Looks on while a lone rank attends, to learn from a model's own attention.
class AttentionObserver {
 public:
  // The rows of one item in a layer without a window, whose keys and values are in their pages.
  struct Look {
    int layer = 0;
    const RingAttentionConfig& config;
    const OpTable& ops;
    Stream& stream;
    std::span<const int32_t> positions;  // of the rows
    ConstMatrixView query;               // [rows, heads * k_dim], rotated
    std::span<const KvPageView> pages;   // all up to the rows' end
  };

  virtual ~AttentionObserver() = default;
  // An error ends the step. On the rank's thread.
  virtual absl::Status Observe(const Look& look) = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_ATTENTION_OBSERVER_H_
