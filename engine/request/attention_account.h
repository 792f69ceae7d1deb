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

// Adds up what attention did for one request, over steps, layers and ranks, for its
// AttentionReport. Used by the coordinator's thread alone.
class AttentionAccount {
 public:
  // Collects AttentionReport::details too. Call before the first step.
  void KeepDetails(AttentionDetails details) { details_.emplace(std::move(details)); }

  // What one item did in one step, over all ranks and layers that reported.
  struct ItemOutcome {
    std::optional<PairCount> pairs;  // mean over layers; absent: no rank reported anything
    double covered = 0;              // sum of the coverage of sampled rows, for each head
    double samples = 0;              // number of terms in `covered`
    double estimated = 0;            // sum of the coverage that the policies estimated
    double estimates = 0;            // number of terms in `estimated`
    int64_t layers = 0;              // layers that reported
    int64_t raised = 0;              // of these: where a contract raised tau
    int64_t dense = 0;               // of these: where a contract required all blocks
  };
  // Adds an item. `parts`: its reports from all ranks and layers in one step.
  ItemOutcome Add(std::span<const LayerAttention* const> parts);

  // Adds the estimate seconds of the slowest rank in a step. Add counts those of all ranks
  // together.
  void AddEstimateWall(double seconds) { estimate_wall_seconds_ += seconds; }

  // Sets the lowest mean coverage with which reused pages were computed.
  void Inherit(double coverage) { inherited_ = coverage; }
  // The lowest mean coverage of any layer in any step so far, and of reused pages. Absent:
  // everything was attended.
  std::optional<double> lowest() const;

  // Sets all fields of the report that this class counts.
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
  std::map<std::pair<int32_t, int32_t>, Mean> heads_;  // (layer, query head): sampled coverage
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_ATTENTION_ACCOUNT_H_
