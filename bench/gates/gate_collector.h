#ifndef ANNULUS_BENCH_GATES_GATE_COLLECTOR_H_
#define ANNULUS_BENCH_GATES_GATE_COLLECTOR_H_

#include <vector>

#include "engine/runner/attention_observer.h"
#include "engine/sparse/gate_fitting.h"

namespace annulus::bench {

// Watches a model read one document after another, and collects the data that gates are fitted to:
// the mean query of some query blocks, how much attention each page got from some of the block's
// rows (exactly), and what summaries say about the pages' keys. Blocks are pages.
class GateCollector : public AttentionObserver {
 public:
  struct Options {
    int layers = 0;
    int query_blocks = 64;  // approximate number per document
    int rows = 8;           // per query block, evenly spread
  };
  explicit GateCollector(const Options& options) : options_(options), layers_(options.layers) {}

  // Starts the next document, which has `tokens` tokens.
  void Begin(int64_t tokens);
  absl::Status Observe(const Observation& seen) override;

  // [kv_head][document]; empty for layers with a window.
  const std::vector<std::vector<GateExamples>>& layer(int layer) const { return layers_[layer]; }

 private:
  absl::Status AddFeatures(const Observation& seen,
                           std::vector<std::vector<GateExamples>>& heads) const;
  absl::Status AddBlock(const Observation& seen, int32_t block, int64_t first_row,
                        std::vector<std::vector<GateExamples>>& heads) const;

  const Options options_;
  size_t documents_ = 0;  // started so far
  int64_t tokens_ = 0;    // of the current document
  std::vector<std::vector<std::vector<GateExamples>>> layers_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GATES_GATE_COLLECTOR_H_
