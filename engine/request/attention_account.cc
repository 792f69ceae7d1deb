#include "engine/request/attention_account.h"

#include <algorithm>

namespace annulus {
namespace {

// Sums of a layer's coverage come in any order of ranks: the last bits are not a breach.
constexpr double kSlack = 1e-9;

}  // namespace

AttentionAccount::ItemOutcome AttentionAccount::Add(std::span<const LayerAttention* const> parts) {
  std::map<int32_t, std::vector<const LayerAttention*>> layers;
  for (const LayerAttention* part : parts) {
    layers[part->layer].push_back(part);
    if (details_.has_value()) details_->Add(*part);
  }
  ItemOutcome outcome;
  for (const auto& [layer, ranks] : layers) {
    if (!outcome.pairs.has_value()) outcome.pairs.emplace();
    Mean covered;
    double contract = 0;
    bool raised = false;
    bool dense = false;
    for (const LayerAttention* rank : ranks) {
      outcome.pairs->chosen += rank->pairs.chosen / static_cast<double>(layers.size());
      outcome.pairs->causal += rank->pairs.causal / static_cast<double>(layers.size());
      outcome.estimated += rank->estimated;
      outcome.estimates += static_cast<double>(rank->estimates);
      rows_ += rank->probes;
      contract = std::max(contract, rank->contract);
      raised = raised || rank->raised;
      dense = dense || rank->dense;
      estimate_seconds_ += rank->estimate_seconds;
      for (size_t head = 0; head < rank->covered.size() && rank->probes > 0; ++head) {
        Mean& mean = heads_[{layer, static_cast<int32_t>(head)}];
        mean.sum += rank->covered[head];
        mean.count += rank->probes;
        covered.sum += rank->covered[head];
        covered.count += rank->probes;
      }
    }
    ++outcome.layers;
    outcome.raised += raised ? 1 : 0;
    outcome.dense += dense ? 1 : 0;
    if (covered.count == 0) continue;
    outcome.covered += covered.sum;
    outcome.samples += covered.count;
    minimum_ = std::min(minimum_.value_or(1), covered.value());
    met_ = met_ && covered.value() >= contract - kSlack;
  }
  estimated_.sum += outcome.estimated;
  estimated_.count += outcome.estimates;
  sampled_.sum += outcome.covered;
  sampled_.count += outcome.samples;
  layer_steps_ += outcome.layers;
  raised_ += outcome.raised;
  dense_ += outcome.dense;
  return outcome;
}

std::optional<double> AttentionAccount::lowest() const {
  if (!minimum_.has_value()) return inherited_;
  return std::min(*minimum_, inherited_.value_or(1));
}

void AttentionAccount::Fill(AttentionReport& report) const {
  report.layer_steps = layer_steps_;
  report.layers_raised = raised_;
  report.layers_dense = dense_;
  report.contract_met = met_;
  report.inherited_coverage = inherited_;
  report.estimate_seconds = estimate_seconds_;
  report.estimate_wall_seconds = estimate_wall_seconds_;
  if (details_.has_value()) report.details = details_->Make();
  if (estimated_.count > 0) report.estimated_coverage = estimated_.value();
  if (sampled_.count == 0) return;
  AttentionReport::Sampled sampled;
  sampled.coverage = sampled_.value();
  sampled.minimum = *minimum_;
  sampled.rows = rows_;
  std::vector<double> means;
  for (const auto& [head, mean] : heads_) means.push_back(mean.value());
  const size_t nth = (means.size() + 99) / 100 - 1;  // of 1 to 100 heads: the smallest
  std::nth_element(means.begin(), means.begin() + static_cast<std::ptrdiff_t>(nth), means.end());
  sampled.first_percentile = means[nth];
  report.sampled = sampled;
}

}  // namespace annulus
