#include "engine/runner/block_chooser.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/base/clock.h"
#include "engine/runner/list_exchange.h"
#include "engine/runner/score_exchange.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Ask = ChoiceQuery::Ask;

constexpr float kNothing = -std::numeric_limits<float>::infinity();

}  // namespace

class BlockChooser::LayerChoice {
 public:
  LayerChoice(const ChoiceContext& context, const ChoiceLayer& layer,
              std::span<const ChoosingItem> choosing)
      : context_(context), layer_(layer) {
    for (const ChoosingItem& item : choosing) {
      if (item.item < layer.items.size()) choices_.push_back(MakeChoice(layer, item));
    }
  }

  absl::Status Run(std::vector<LayerAttention>& report) {
    if (choices_.empty()) return absl::OkStatus();
    const SteadyTime start = std::chrono::steady_clock::now();
    ANNULUS_RETURN_IF_ERROR(ScoreExchange(context_, layer_, choices_).Run());
    for (Choice& item : choices_) Rank(item);
    ANNULUS_RETURN_IF_ERROR(AgreeOnContract());
    for (Choice& item : choices_) Choose(item);
    ANNULUS_RETURN_IF_ERROR(ListExchange(context_, layer_, choices_).Run());
    // Whoever asked for scores has read them before it sent its lists, and queries before that.
    context_.messages.layer.clear();
    const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
    for (const Choice& item : choices_) {
      if (item.own_rows() == 0) continue;
      report.push_back(Report(item));
      report.back().estimate_seconds = seconds / static_cast<double>(choices_.size());
    }
    return absl::OkStatus();
  }

 private:
  void Rank(Choice& item) {
    if (item.own_rows() == 0) return;
    if (item.kind == ChoiceKind::kRanking) {
      const bool antidiagonal = item.policy().estimator == Estimator::kAntidiagonal;
      const ChoiceQuery* query = item.Find(antidiagonal ? Ask::kAntidiagonal : Ask::kSummary);
      ANNULUS_CHECK(query != nullptr && query->scores.has_value()) << "rows that nobody scored";
      std::vector<int32_t> group_block;
      const int32_t stride = antidiagonal ? item.policy().score_stride : 1;
      int32_t last = -1;
      for (const int32_t position : query->positions[item.index()]) {
        if (position / stride == last) continue;
        last = position / stride;
        group_block.push_back(antidiagonal ? position / item.policy().block : position);
      }
      item.ranking.emplace(*query->scores, context_.kv_heads(), group_block);
    } else {
      item.pattern = OwnLists(item);
    }
    item.covered.assign(item.ladder.size() + 1, 0.0);
    for (size_t rung = 0; rung < item.ladder.size(); ++rung) {
      item.covered[rung] = ProbeCoverage(item, rung, nullptr);
    }
    const ChoiceQuery* const probes = item.Find(Ask::kExact);
    if (probes != nullptr) {
      item.covered.back() =
          static_cast<double>(probes->positions[item.index()].size()) * context_.heads();
    }
  }

  // What the policy itself chooses, where no tau is involved.
  BlockPattern OwnLists(const Choice& item) const {
    const AttentionPolicy& policy = item.policy();
    if (item.kind == ChoiceKind::kLists) {
      const BlockPattern& lists = *item.ring->pattern;
      return MakePattern(item.query_blocks, context_.kv_heads(), policy.block,
                         [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                           const auto keys = lists.keys(lists.shape.head_groups == 1 ? 0 : kv_head,
                                                        item.query_blocks[q]);
                           blocks.assign(keys.begin(), keys.end());
                         });
    }
    const ChoiceQuery* const query = item.Find(Ask::kSummary);
    return MakePattern(
        item.query_blocks, context_.kv_heads(), policy.block,
        [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
          const int32_t diagonal = item.query_blocks[q];
          std::vector<float> best(static_cast<size_t>(diagonal) + 1, kNothing);
          const int group = context_.heads() / context_.kv_heads();
          for (int head = kv_head * group; query->scores && head < (kv_head + 1) * group; ++head) {
            const auto row = query->scores->row(static_cast<int64_t>(q), head);
            for (size_t b = 0; b < best.size(); ++b) best[b] = std::max(best[b], row[b]);
          }
          if (item.kind == ChoiceKind::kTop) {
            PickTop(best, policy.pages, blocks);
          } else {
            AppendHierarchical(
                policy, diagonal,
                [&](int32_t begin, int32_t end) {
                  return static_cast<int32_t>(
                      std::max_element(best.begin() + begin, best.begin() + end) - best.begin());
                },
                blocks);
          }
        });
  }

  // The diagonal and the `count` blocks with the highest scores.
  static void PickTop(std::span<const float> scores, int32_t count, std::vector<int32_t>& blocks) {
    const auto diagonal = static_cast<int32_t>(scores.size()) - 1;
    for (int32_t b = 0; b < diagonal; ++b) blocks.push_back(b);
    if (count < diagonal) {
      std::nth_element(blocks.begin(), blocks.begin() + count, blocks.end(),
                       [&](int32_t a, int32_t b) {
                         return scores[a] != scores[b] ? scores[a] > scores[b] : a > b;
                       });
      blocks.resize(static_cast<size_t>(count));
      std::sort(blocks.begin(), blocks.end());
    }
    blocks.push_back(diagonal);
  }

  // Sum of the coverage of own probes over their heads under a rung; `by_head` gains its parts.
  double ProbeCoverage(const Choice& item, size_t rung, std::vector<double>* by_head) const {
    const ChoiceQuery* const probes = item.Find(Ask::kExact);
    if (probes == nullptr || !probes->scores.has_value()) return 0;
    double sum = 0;
    const std::vector<int32_t>& positions = probes->positions[item.index()];
    for (size_t n = 0; n < positions.size(); ++n) {
      const int32_t block = positions[n] / item.policy().block;
      for (int head = 0; head < context_.heads(); ++head) {
        const int kv_head = head / (context_.heads() / context_.kv_heads());
        double coverage = 1;
        if (item.ladder[rung] < 1) {
          const std::span<const int32_t> chosen = ChosenAt(item, rung, block, kv_head);
          const auto exact = probes->scores->row(static_cast<int64_t>(n), head);
          const float sink = layer_.sinks.empty() ? kNothing : layer_.sinks[head];
          coverage = Coverage(exact.first(static_cast<size_t>(block) + 1), chosen, sink);
        }
        sum += coverage;
        if (by_head != nullptr) (*by_head)[head] += coverage;
      }
    }
    return sum;
  }

  std::span<const int32_t> ChosenAt(const Choice& item, size_t rung, int32_t block,
                                    int kv_head) const {
    if (!item.ranking.has_value()) return item.pattern.keys(kv_head, block);
    const size_t q = item.ranking->Find(block);
    return item.ranking->order(q, kv_head)
        .first(static_cast<size_t>(item.ranking->Count(q, kv_head, item.ladder[rung])));
  }

  // All ranks with rows add up what each rung would cover and take the first that is enough.
  absl::Status AgreeOnContract() {
    const auto bound = [](const Choice& item) { return item.policy().coverage > 0; };
    std::vector<std::vector<double>> totals;
    for (const Choice& item : choices_) totals.push_back(item.covered);
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      for (const Choice& item : choices_) {
        const int other = IndexOf(*item.ring, peer);
        if (!bound(item) || other < 0 || item.own_rows() == 0 || item.positions(other).empty()) {
          continue;
        }
        std::vector<std::byte>& sums =
            context_.messages.step.emplace_back(item.covered.size() * sizeof(double));
        std::memcpy(sums.data(), item.covered.data(), sums.size());
        parts.push_back({sums.data(), sums.size()});
      }
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      for (const Choice& item : choices_) {
        const int other = IndexOf(*item.ring, peer);
        if (!bound(item) || other < 0 || item.own_rows() == 0 || item.positions(other).empty()) {
          continue;
        }
        bytes.push_back((item.ladder.size() + 1) * sizeof(double));
      }
    };
    const auto take = [&](int peer, std::span<const RingPart> parts) {
      size_t next = 0;
      for (size_t n = 0; n < choices_.size(); ++n) {
        const Choice& item = choices_[n];
        const int other = IndexOf(*item.ring, peer);
        if (!bound(item) || other < 0 || item.own_rows() == 0 || item.positions(other).empty()) {
          continue;
        }
        std::vector<double> sums(totals[n].size());
        std::memcpy(sums.data(), parts[next++].data, sums.size() * sizeof(double));
        for (size_t s = 0; s < sums.size(); ++s) totals[n][s] += sums[s];
      }
      return absl::OkStatus();
    };
    ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 3, give, expect, take));
    for (size_t n = 0; n < choices_.size(); ++n) {
      Choice& item = choices_[n];
      if (!bound(item) || item.own_rows() == 0) continue;
      const double wanted = item.policy().coverage * totals[n].back();
      while (item.rung + 1 < item.ladder.size() && totals[n][item.rung] < wanted) ++item.rung;
    }
    return absl::OkStatus();
  }

  void Choose(Choice& item) {
    if (item.own_rows() == 0) return;
    const int32_t block = item.policy().block;
    if (item.ladder[item.rung] >= 1) {
      item.pattern = MakePattern(item.query_blocks, context_.kv_heads(), block,
                                 [&](size_t q, int, std::vector<int32_t>& blocks) {
                                   for (int32_t b = 0; b <= item.query_blocks[q]; ++b) {
                                     blocks.push_back(b);
                                   }
                                 });
    } else if (item.ranking.has_value()) {
      item.pattern = PatternOf(*item.ranking, block, item.ladder[item.rung]);
    }
  }

  LayerAttention Report(const Choice& item) {
    LayerAttention report;
    report.sequence = item.choosing->sequence;
    report.layer = layer_.layer;
    report.begin = item.ring->begin;
    report.pairs = CountPairs(item.pattern, item.positions(item.index()));
    report.raised = item.rung > 0 && item.ladder[item.rung] < 1;
    report.dense = item.rung > 0 && item.ladder[item.rung] >= 1;
    if (item.choosing->report_lists) {
      report.rows = item.positions(item.index());
      report.lists = std::make_shared<const BlockPattern>(item.pattern);
    }
    const ChoiceQuery* const probes = item.Find(Ask::kExact);
    if (probes != nullptr) {
      report.covered.assign(static_cast<size_t>(context_.heads()), 0.0);
      report.probes = static_cast<int32_t>(probes->positions[item.index()].size());
      ProbeCoverage(item, item.rung, &report.covered);
    }
    if (!item.ranking.has_value()) return report;
    for (size_t q = 0; q < item.query_blocks.size(); ++q) {
      for (int kv_head = 0; kv_head < context_.kv_heads(); ++kv_head) {
        const int32_t count = item.ranking->Count(q, kv_head, item.ladder[item.rung]);
        report.estimated += item.ranking->Mass(q, kv_head, count);
        report.estimates += 1;
      }
    }
    return report;
  }

  const ChoiceContext& context_;
  const ChoiceLayer& layer_;
  std::vector<Choice> choices_;
};

absl::Status BlockChooser::Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                               std::vector<LayerAttention>& report) {
  return LayerChoice(context_, layer, choosing).Run(report);
}

}  // namespace annulus
