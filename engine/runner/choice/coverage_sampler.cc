#include "engine/runner/choice/coverage_sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "engine/base/clock.h"
#include "engine/runner/choice/score_exchange.h"
#include "engine/sparse/dilated.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Distinct from the tags of BlockChooser in the same layer.
constexpr uint64_t kTag = 0x4000;

// Log of the sum of a row's masses and its sink.
double LogMass(std::span<const float> masses, float sink) {
  const float most = std::max(sink, *std::max_element(masses.begin(), masses.end()));
  if (std::isinf(most)) return most;
  double sum = std::exp(double{sink} - most);
  for (const float mass : masses) sum += std::exp(double{mass} - most);
  return most + std::log(sum);
}

}  // namespace

absl::Status CoverageSampler::Run(const ChoiceLayer& layer, std::span<const ChoosingItem> items,
                                  std::vector<LayerAttention>& report) {
  std::vector<Choice> choices;
  for (const ChoosingItem& choosing : items) {
    if (choosing.item >= layer.items.size()) continue;
    const int32_t blocks = (layer.items[choosing.item].end - 1) / choosing.block() + 1;
    const int32_t together = (blocks - 1) / kMostParts + 1;
    Choice item = MakeChoice(context_, layer, choosing, together * choosing.block());
    if (!item.probes.has_value()) continue;
    PartChoice& part = item.parts.front();
    part.estimate.emplace(*item.probes);
    part.estimate->kind = ChoiceQuery::Ask::kKept;
    part.estimate->branches = DilatedBranches(part.policy());
    if (part.estimate->branches.empty()) part.estimate->kept = part.part->pattern.get();
    choices.push_back(std::move(item));
  }
  if (choices.empty()) return absl::OkStatus();
  const SteadyTime start = std::chrono::steady_clock::now();
  ChoiceLayer own = layer;
  own.tag |= kTag;
  ScoreExchange exchange(context_, own, choices);
  ANNULUS_RETURN_IF_ERROR(exchange.Run());
  ANNULUS_RETURN_IF_ERROR(exchange.Acknowledge());
  context_.messages.layer.clear();
  const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
  for (const Choice& item : choices) {
    if (item.own_rows() == 0) continue;
    report.push_back(Report(layer, item));
    report.back().estimate_seconds = seconds / static_cast<double>(choices.size());
  }
  return absl::OkStatus();
}

LayerAttention CoverageSampler::Report(const ChoiceLayer& layer, const Choice& item) const {
  LayerAttention report;
  report.sequence = item.choosing->sequence;
  report.layer = layer.layer;
  report.begin = item.ring->begin;
  report.covered.assign(static_cast<size_t>(context_.heads()), 0.0);
  const std::vector<int32_t>& rows = item.probes->positions[item.index()];
  report.probes = static_cast<int32_t>(rows.size());
  for (size_t n = 0; n < rows.size(); ++n) {
    for (int head = 0; head < context_.heads(); ++head) {
      const float sink =
          layer.sinks.empty() ? -std::numeric_limits<float>::infinity() : layer.sinks[head];
      const auto mass = [&](const ChoiceQuery& query) {
        return LogMass(query.scores->row(static_cast<int64_t>(n), head), sink);
      };
      report.covered[head] += std::exp(mass(*item.parts.front().estimate) - mass(*item.probes));
    }
  }
  return report;
}

}  // namespace annulus
