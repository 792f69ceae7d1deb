#include "engine/runner/block_chooser.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <utility>

#include "engine/base/clock.h"
#include "engine/runner/list_exchange.h"
#include "engine/runner/score_exchange.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();

}  // namespace

class BlockChooser::LayerChoice {
 public:
  LayerChoice(const ChoiceContext& context, const ChoiceLayer& layer,
              std::span<const ChoosingItem> choosing)
      : context_(context), layer_(layer) {
    for (const ChoosingItem& item : choosing) {
      if (item.item < layer.items.size()) {
        choices_.push_back(MakeChoice(context, layer, item, item.block()));
      }
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
    for (PartChoice& part : item.parts) {
      if (part.kind == ChoiceKind::kRanking) {
        RankPart(item, part);
      } else if (part.ladder.front() < 1) {
        part.pattern = OwnLists(item, part);
      }
      Probe(item, part);
    }
  }

  void RankPart(const Choice& item, PartChoice& part) const {
    const ChoiceQuery& query = *part.estimate;
    ANNULUS_CHECK(query.masses.has_value() || query.scores.has_value()) << "rows nobody scored";
    if (query.masses.has_value()) {
      part.ranking.emplace(*query.masses);
    } else {
      part.ranking.emplace(MassesOf(*query.scores, context_.kv_heads(), item.query_blocks));
    }
  }

  // What the policy itself chooses, where no tau is involved.
  BlockPattern OwnLists(const Choice& item, const PartChoice& part) const {
    if (part.part->pattern != nullptr) {
      const BlockPattern& lists = *part.part->pattern;
      return MakePattern(item.query_blocks, context_.kv_heads(), item.block,
                         [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                           const auto keys = lists.keys(lists.shape.head_groups == 1 ? 0 : kv_head,
                                                        item.query_blocks[q]);
                           blocks.assign(keys.begin(), keys.end());
                         });
    }
    const AttentionPolicy& policy = part.policy();
    PolicyType::PickBlocks* const pick = TypeOf(policy.kind).pick;
    return MakePattern(item.query_blocks, context_.kv_heads(), item.block,
                       [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                         pick(policy, BestScores(part, q, kv_head, item.query_blocks[q]), blocks);
                       });
  }

  // The highest score of each block up to the diagonal among the query heads of a kv head.
  std::vector<float> BestScores(const PartChoice& part, size_t q, int kv_head,
                                int32_t diagonal) const {
    std::vector<float> best(static_cast<size_t>(diagonal) + 1, kNothing);
    const std::optional<BlockScores>& scores = part.estimate->scores;
    const int group = context_.group();
    for (int head = kv_head * group; scores && head < (kv_head + 1) * group; ++head) {
      const auto row = scores->row(static_cast<int64_t>(q), head);
      for (size_t b = 0; b < best.size(); ++b) best[b] = std::max(best[b], row[b]);
    }
    return best;
  }

  // What own probes would cover under each rung.
  void Probe(const Choice& item, PartChoice& part) const {
    const auto heads = static_cast<size_t>(context_.heads());
    part.covered.assign(part.ladder.size() * heads, 0.0);
    if (!item.probes.has_value() || !item.probes->scores.has_value()) return;
    const std::vector<int32_t>& positions = item.probes->positions[item.index()];
    for (size_t n = 0; n < positions.size(); ++n) {
      const int32_t block = positions[n] / item.block;
      for (size_t head = 0; head < heads; ++head) {
        const int kv_head = static_cast<int>(head) / context_.group();
        if (!part.part->heads[kv_head]) continue;
        const auto exact = item.probes->scores->row(static_cast<int64_t>(n), head);
        const float sink = layer_.sinks.empty() ? kNothing : layer_.sinks[head];
        std::vector<int32_t> counts;
        for (size_t rung = 0; rung < part.ladder.size() && part.ladder[rung] < 1; ++rung) {
          counts.push_back(static_cast<int32_t>(ChosenAt(part, rung, block, kv_head).size()));
        }
        std::vector<double> shares;
        if (!counts.empty()) {
          shares = Coverage(exact.first(static_cast<size_t>(block) + 1),
                            ChosenAt(part, counts.size() - 1, block, kv_head), counts, sink);
        }
        shares.resize(part.ladder.size(), 1.0);  // all blocks
        for (size_t rung = 0; rung < shares.size(); ++rung) {
          part.covered[rung * heads + head] += shares[rung];
        }
      }
    }
  }

  // Over the part's heads and own probes: the coverage of each rung, then what all would be.
  std::vector<double> ProbeSums(const Choice& item, const PartChoice& part) const {
    const auto heads = static_cast<size_t>(context_.heads());
    std::vector<double> sums;
    for (size_t rung = 0; rung < part.ladder.size(); ++rung) {
      const auto by_head = std::span(part.covered).subspan(rung * heads, heads);
      sums.push_back(std::accumulate(by_head.begin(), by_head.end(), 0.0));
    }
    const auto rows = item.probes ? item.probes->positions[item.index()].size() : 0;
    const auto own = std::count(part.part->heads.begin(), part.part->heads.end(), true);
    sums.push_back(static_cast<double>(rows) * static_cast<double>(own * context_.group()));
    return sums;
  }

  static std::span<const int32_t> ChosenAt(const PartChoice& part, size_t rung, int32_t block,
                                           int kv_head) {
    if (!part.ranking.has_value()) return part.pattern.keys(kv_head, block);
    const size_t q = part.ranking->Find(block);
    return part.ranking->order(q, kv_head).first(static_cast<size_t>(part.Count(q, kv_head, rung)));
  }

  // Visits the parts under a contract whose sums this rank and `peer` tell each other.
  template <class Visit>
  void ForEachShared(int peer, const Visit& visit) {
    for (Choice& item : choices_) {
      const int other = IndexOf(*item.ring, peer);
      if (other < 0 || item.own_rows() == 0 || item.positions(other).empty()) continue;
      for (PartChoice& part : item.parts) {
        if (part.bound()) visit(item, part);
      }
    }
  }

  // All ranks with rows add up what each rung would cover and take the first that is enough.
  absl::Status AgreeOnContract() {
    std::map<const PartChoice*, std::vector<double>> totals;
    for (const Choice& item : choices_) {
      if (item.own_rows() == 0) continue;
      for (const PartChoice& part : item.parts) totals[&part] = ProbeSums(item, part);
    }
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEachShared(peer, [&](const Choice& item, const PartChoice& part) {
        const std::vector<double> own = ProbeSums(item, part);
        std::vector<std::byte>& sums =
            context_.messages.step.emplace_back(own.size() * sizeof(double));
        std::memcpy(sums.data(), own.data(), sums.size());
        parts.push_back({sums.data(), sums.size()});
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEachShared(peer, [&](const Choice&, const PartChoice& part) {
        bytes.push_back((part.ladder.size() + 1) * sizeof(double));
      });
    };
    const auto take = [&](int peer, const RingParts& parts) {
      size_t next = 0;
      ForEachShared(peer, [&](const Choice&, const PartChoice& part) {
        std::vector<double>& total = totals[&part];
        std::vector<double> sums(total.size());
        std::memcpy(sums.data(), parts[next++].data, sums.size() * sizeof(double));
        for (size_t s = 0; s < sums.size(); ++s) total[s] += sums[s];
      });
      return absl::OkStatus();
    };
    ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 3, give, expect, take));
    for (Choice& item : choices_) {
      for (PartChoice& part : item.parts) {
        if (!part.bound() || item.own_rows() == 0) continue;
        const std::vector<double>& total = totals[&part];
        const double wanted = part.policy().coverage * total.back();
        while (part.rung + 1 < part.ladder.size() && total[part.rung] < wanted) ++part.rung;
      }
    }
    return absl::OkStatus();
  }

  void Choose(Choice& item) {
    if (item.own_rows() == 0) return;
    item.pattern = MakePattern(item.query_blocks, context_.kv_heads(), item.block,
                               [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                                 const PartChoice& part = item.part_of(kv_head);
                                 if (part.all()) {
                                   for (int32_t b = 0; b <= item.query_blocks[q]; ++b)
                                     blocks.push_back(b);
                                   return;
                                 }
                                 const auto chosen =
                                     ChosenAt(part, part.rung, item.query_blocks[q], kv_head);
                                 blocks.assign(chosen.begin(), chosen.end());
                                 std::sort(blocks.begin(), blocks.end());
                               });
  }

  LayerAttention Report(const Choice& item) const {
    LayerAttention report;
    report.sequence = item.choosing->sequence;
    report.layer = layer_.layer;
    report.begin = item.ring->begin;
    report.pairs = CountPairs(item.pattern, item.positions(item.index()));
    if (item.choosing->report_lists) {
      report.rows = item.positions(item.index());
      report.lists = item.pattern;
    }
    if (item.probes.has_value()) {
      report.covered.assign(static_cast<size_t>(context_.heads()), 0.0);
      report.probes = static_cast<int32_t>(item.probes->positions[item.index()].size());
    }
    for (const PartChoice& part : item.parts) ReportPart(item, part, report);
    return report;
  }

  void ReportPart(const Choice& item, const PartChoice& part, LayerAttention& report) const {
    const std::vector<bool>& heads = part.part->heads;
    const auto own = std::count(heads.begin(), heads.end(), true);
    report.contract += part.policy().coverage * static_cast<double>(own) / context_.kv_heads();
    report.raised = report.raised || (part.rung > 0 && !part.all());
    report.dense = report.dense || (part.rung > 0 && part.all());
    for (size_t head = 0; head < report.covered.size(); ++head) {
      report.covered[head] += part.covered[part.rung * report.covered.size() + head];
    }
    if (!part.ranking.has_value()) return;
    for (size_t q = 0; q < item.query_blocks.size(); ++q) {
      for (int kv_head = 0; kv_head < context_.kv_heads(); ++kv_head) {
        if (!heads[kv_head]) continue;
        const int32_t count = part.Count(q, kv_head, part.rung);
        report.estimated += part.ranking->Mass(q, kv_head, count);
        report.estimates += 1;
      }
    }
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
