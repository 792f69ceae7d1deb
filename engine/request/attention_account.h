#ifndef ANNULUS_ENGINE_REQUEST_ATTENTION_ACCOUNT_H_
#define ANNULUS_ENGINE_REQUEST_ATTENTION_ACCOUNT_H_

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/result.h"
#include "engine/request/attention_details.h"
#include "engine/state/step_plan.h"

namespace annulus {

// What attention did for one request, added up over steps, layers and ranks. Used by the
// coordinator's thread alone.
class AttentionAccount {
 public:
  // Keeps details too from now on. Call before the first step.
  void KeepDetails(AttentionDetails details) { details_.emplace(std::move(details)); }

  // What one item did in one step, as all ranks of its ring report it. Pairs are the mean over
  // layers.
  struct ItemOutcome {
    std::optional<PairCount> pairs;  // absent: the ranks reported nothing
    double covered = 0;              // sum over sampled rows and heads
    double samples = 0;              // their number
    double estimated = 0;            // sum of the coverage that the policies estimated
    double estimates = 0;            // its number
    int64_t layers = 0;
    int64_t raised = 0;
    int64_t dense = 0;
  };
  ItemOutcome Add(std::span<const LayerAttention* const> parts);

  // Seconds of the slowest rank in a step; Add counts those of all ranks together.
  void AddEstimateWall(double seconds) { estimate_wall_seconds_ += seconds; }

  // Sets the mean coverage with which reused pages were computed.
  void Inherit(double coverage) { inherited_ = coverage; }
  // The smallest coverage of anything computed or reused so far; absent: everything was attended.
  std::optional<double> lowest() const;

  void Fill(AttentionReport& report) const;

 private:
  struct Mean {
    double sum = 0;
    double count = 0;
    double value() const { return count == 0 ? 1 : sum / count; }
  };

  std::optional<AttentionDetails> details_;
  Mean estimated_;
  Mean sampled_;
  std::optional<double> minimum_;
  std::optional<double> inherited_;
  int64_t rows_ = 0;
  int64_t layer_steps_ = 0;
  int64_t raised_ = 0;
  int64_t dense_ = 0;
  bool met_ = true;
  double estimate_seconds_ = 0;
  double estimate_wall_seconds_ = 0;
  std::map<std::pair<int32_t, int32_t>, Mean> heads_;  // (layer, query head)
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_ATTENTION_ACCOUNT_H_
