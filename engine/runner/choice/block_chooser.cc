#include "engine/runner/choice/block_chooser.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "engine/base/clock.h"
#include "engine/runner/choice/list_exchange.h"
#include "engine/runner/choice/score_exchange.h"
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
    // A rank that requested scores has read them before it sent its lists, and the queries before
    // that. What this rank posted must have left, too.
    ANNULUS_RETURN_IF_ERROR(context_.link.Flush());
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

  // What each rung would cover of own probes.
  void Probe(const Choice& item, PartChoice& part) const {
    const auto heads = static_cast<size_t>(context_.heads());
    part.covered.assign(part.ladder.size() * heads, 0.0);
    if (!item.probes.has_value()) return;
    const std::vector<int32_t>& positions = item.probes->positions[item.index()];
    for (const int32_t row : positions) part.sampled[row].assign(part.ladder.size(), 0.0);
    if (!item.probes->scores.has_value()) return;
    for (size_t n = 0; n < positions.size(); ++n) {
      const int32_t block = positions[n] / item.block;
      std::vector<double>& sampled = part.sampled.at(positions[n]);
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
          sampled[rung] += shares[rung];
        }
      }
    }
  }

  static std::span<const int32_t> ChosenAt(const PartChoice& part, size_t rung, int32_t block,
                                           int kv_head) {
    if (!part.ranking.has_value()) return part.pattern.keys(kv_head, block);
    const size_t q = part.ranking->Find(block);
    return part.ranking->order(q, kv_head).first(static_cast<size_t>(part.Count(q, kv_head, rung)));
  }

  // Visits the parts under a contract, with the positions of the sampled rows of which rank `from`
  // tells rank `to` what each rung covers. One of the two is this rank.
  template <class Visit>
  void ForEachTold(int from, int to, const Visit& visit) {
    for (Choice& item : choices_) {
      const int teller = IndexOf(*item.ring, from);
      const int listener = IndexOf(*item.ring, to);
      if (teller < 0 || listener < 0 || item.positions(listener).empty()) continue;
      if (!item.probes.has_value()) continue;
      const std::vector<int32_t>& rows = item.probes->positions[teller];
      if (rows.empty()) continue;
      for (PartChoice& part : item.parts) {
        if (part.bound()) visit(part, rows);
      }
    }
  }

  // Ranks tell each other what each rung covers of their sampled rows, so all take the same rung.
  absl::Status AgreeOnContract() {
    const int own = context_.link.rank();
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEachTold(own, peer, [&](const PartChoice& part, const std::vector<int32_t>& rows) {
        const size_t row_bytes = part.ladder.size() * sizeof(double);
        std::vector<std::byte>& told = context_.messages.step.emplace_back(rows.size() * row_bytes);
        for (size_t n = 0; n < rows.size(); ++n) {
          std::memcpy(told.data() + n * row_bytes, part.sampled.at(rows[n]).data(), row_bytes);
        }
        parts.push_back({told.data(), told.size()});
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEachTold(peer, own, [&](const PartChoice& part, const std::vector<int32_t>& rows) {
        bytes.push_back(rows.size() * part.ladder.size() * sizeof(double));
      });
    };
    const auto take = [&](int peer, const RingParts& parts) {
      size_t next = 0;
      ForEachTold(peer, own, [&](PartChoice& part, const std::vector<int32_t>& rows) {
        const std::byte* told = parts[next++].data;
        for (const int32_t position : rows) {
          std::vector<double>& sampled = part.sampled[position];
          sampled.resize(part.ladder.size());
          std::memcpy(sampled.data(), told, sampled.size() * sizeof(double));
          told += sampled.size() * sizeof(double);
        }
      });
      return absl::OkStatus();
    };
    ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 3, give, expect, take));
    for (Choice& item : choices_) {
      if (item.own_rows() == 0) continue;
      for (PartChoice& part : item.parts) {
        if (part.bound()) TakeRung(part);
      }
    }
    return absl::OkStatus();
  }

  // Takes the first rung that covers enough of the sampled rows of all ranks.
  void TakeRung(PartChoice& part) const {
    std::vector<double> totals(part.ladder.size(), 0.0);
    for (const auto& [position, covered] : part.sampled) {
      for (size_t rung = 0; rung < totals.size(); ++rung) totals[rung] += covered[rung];
    }
    const auto kv_heads = std::count(part.part->heads.begin(), part.part->heads.end(), true);
    const auto all = static_cast<double>(std::ssize(part.sampled) * kv_heads * context_.group());
    const double wanted = part.policy().coverage * all;
    while (part.rung + 1 < part.ladder.size() && totals[part.rung] < wanted) ++part.rung;
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
