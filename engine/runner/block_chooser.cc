#include "engine/runner/block_chooser.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>

#include "engine/base/clock.h"
#include "engine/sparse/draw.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr float kNothing = -std::numeric_limits<float>::infinity();
// Steps of the ladder before all blocks: what is left out is halved each time.
constexpr int kRaises = 5;

bool HasProbes(int32_t end, int32_t block) { return end >= kProbeBlocks * block; }

// The blocks of pages, each once, ascending.
std::vector<int32_t> BlocksOf(std::span<const ShardPage> pages, int32_t block_tokens) {
  std::vector<int32_t> blocks;
  for (const ShardPage& page : pages) {
    const int32_t block = page.first_position / block_tokens;
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }
  return blocks;
}

// The blocks of rows, each once, ascending.
std::vector<int32_t> BlocksOf(std::span<const int32_t> positions, int32_t block_tokens) {
  std::vector<int32_t> blocks;
  for (const int32_t position : positions) {
    const int32_t block = position / block_tokens;
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }
  return blocks;
}

int IndexOf(const RingItem& item, int rank) {
  const auto found = std::find(item.ring.begin(), item.ring.end(), rank);
  return found == item.ring.end() ? -1 : static_cast<int>(found - item.ring.begin());
}

RingPart PartOf(std::span<const float> data) {
  return {reinterpret_cast<const std::byte*>(data.data()), data.size_bytes()};
}

std::span<const float> FloatsOf(const RingPart& part) {
  return {reinterpret_cast<const float*>(part.data), part.bytes / sizeof(float)};
}

}  // namespace

ChoiceKind HowToChoose(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end) {
  const bool probes = !sampled && HasProbes(end, policy.block) && begin < end;
  switch (policy.kind) {
    case PolicyKind::kDense:
    case PolicyKind::kDilated:  // its lists only say what it may need
      return ChoiceKind::kNone;
    case PolicyKind::kAdaptive:
      return probes ? ChoiceKind::kRanking : ChoiceKind::kNone;
    case PolicyKind::kTopPages:
      return sampled ? ChoiceKind::kTop : ChoiceKind::kNone;
    case PolicyKind::kHierarchical:
      return policy.coverage > 0 && !probes ? ChoiceKind::kNone : ChoiceKind::kGroups;
    default:
      return probes ? ChoiceKind::kLists : ChoiceKind::kNone;
  }
}

bool UsesPattern(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end) {
  if (policy.kind == PolicyKind::kDense || ChoosesByContent(policy)) return false;
  return policy.coverage == 0 || HowToChoose(policy, sampled, begin, end) == ChoiceKind::kLists;
}

class BlockChooser::LayerChoice {
 public:
  LayerChoice(BlockChooser& chooser, const ChoiceLayer& layer,
              std::span<const ChoosingItem> choosing)
      : chooser_(chooser), link_(chooser.link_), layer_(layer) {
    for (const ChoosingItem& item : choosing) {
      if (item.item < layer.items.size()) AddItem(item);
    }
  }

  absl::Status Run(std::vector<LayerAttention>& report) {
    if (items_.empty()) return absl::OkStatus();
    const SteadyTime start = std::chrono::steady_clock::now();
    for (Item& item : items_) {
      for (Query& query : item.queries) ANNULUS_RETURN_IF_ERROR(TakeOwnQueries(item, query));
    }
    ANNULUS_RETURN_IF_ERROR(chooser_.stream_.Synchronize());
    ANNULUS_RETURN_IF_ERROR(SendQueries());
    ANNULUS_RETURN_IF_ERROR(ReturnScores());
    for (Item& item : items_) Rank(item);
    ANNULUS_RETURN_IF_ERROR(AgreeOnContract());
    for (Item& item : items_) Choose(item);
    ANNULUS_RETURN_IF_ERROR(SendLists());
    // Whoever asked for scores has read them before it sent its lists, and queries before that.
    chooser_.messages_.layer.clear();
    const double seconds = SecondsBetween(start, std::chrono::steady_clock::now());
    for (Item& item : items_) {
      if (item.own_rows() == 0) continue;
      Report(item);
      item.report.estimate_seconds = seconds / static_cast<double>(items_.size());
      report.push_back(std::move(item.report));
    }
    return absl::OkStatus();
  }

 private:
  // One kind of scores that the rows of an item want.
  enum class Ask : uint8_t { kExact, kAntidiagonal, kSummary };
  struct Query {
    Ask kind = Ask::kExact;
    std::vector<std::vector<int32_t>> positions;  // [ring index] of the rows that are scored
    std::vector<int64_t> groups;                  // [ring index] rows of scores
    ConstMatrixView own;                          // [own positions, heads * k_dim]
    std::optional<BlockScores> scores;
    std::vector<std::span<const float>> owed;  // [ring index] computed here for others
  };
  struct Item {
    const ChoosingItem* choosing = nullptr;
    const RingItem* ring = nullptr;
    ChoiceKind kind = ChoiceKind::kNone;
    std::vector<int32_t> query_blocks;       // of own rows
    std::vector<std::vector<int32_t>> held;  // [ring index] candidate blocks of own rows there
    std::vector<std::vector<int32_t>> seen;  // [ring index] own blocks for rows of that index
    std::vector<std::vector<int32_t>> held_page_blocks;  // [ring index] block of each page
    std::vector<Query> queries;
    std::optional<BlockRanking> ranking;
    std::vector<double> ladder;  // [rung] tau; the last is 1: all blocks
    size_t rung = 0;
    std::vector<double> covered;  // [rung] sums over own probes and heads, then the number of them
    BlockPattern pattern;         // of own rows, once chosen
    LayerAttention report;

    const AttentionPolicy& policy() const { return *choosing->policy; }
    int index() const { return ring->index; }
    int64_t own_rows() const { return ring->own_rows(); }
    const std::vector<int32_t>& positions(int i) const { return ring->positions[i]; }
    const Query* Find(Ask kind) const {
      for (const Query& query : queries) {
        if (query.kind == kind) return &query;
      }
      return nullptr;
    }
  };

  int heads() const { return chooser_.config_.heads; }
  int kv_heads() const { return chooser_.config_.shape.kv_heads; }
  int64_t columns() const { return int64_t{heads()} * chooser_.config_.shape.k_dim; }

  absl::StatusOr<std::span<float>> Keep(size_t count) {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                             chooser_.backend_.AllocateHost(count * sizeof(float)));
    chooser_.messages_.layer.push_back(std::move(buffer));
    return std::span<float>(chooser_.messages_.layer.back().as<float>(), count);
  }

  void AddItem(const ChoosingItem& choosing) {
    Item item;
    item.choosing = &choosing;
    item.ring = &layer_.items[choosing.item];
    const RingItem& ring = *item.ring;
    const AttentionPolicy& policy = item.policy();
    item.kind = HowToChoose(policy, ring.sampled, ring.begin, ring.end);
    item.query_blocks = BlocksOf(item.positions(item.index()), policy.block);
    for (int i = 0; i < ring.degree(); ++i) {
      item.held.push_back(BlocksOf(choosing.candidates.held_by[i], policy.block));
      item.seen.push_back(BlocksOf(choosing.candidates.seen_by[i], policy.block));
      std::vector<int32_t>& pages = item.held_page_blocks.emplace_back();
      for (const ShardPage& page : choosing.candidates.held_by[i]) {
        pages.push_back(page.first_position / policy.block);
      }
    }
    const double tau = policy.coverage > 0                    ? policy.coverage
                       : policy.kind == PolicyKind::kAdaptive ? policy.tau
                                                              : 1;
    if (item.kind == ChoiceKind::kRanking) {
      item.ladder.push_back(tau);
      for (int raise = 1; policy.coverage > 0 && raise <= kRaises; ++raise) {
        item.ladder.push_back(1 - (1 - item.ladder.back()) / 2);
      }
    } else {
      item.ladder.push_back(0);  // the policy's own lists
    }
    if (policy.coverage > 0) item.ladder.push_back(1);
    if (item.kind == ChoiceKind::kRanking) {
      AddQuery(item,
               policy.estimator == Estimator::kAntidiagonal ? Ask::kAntidiagonal : Ask::kSummary);
    } else if (item.kind == ChoiceKind::kGroups || item.kind == ChoiceKind::kTop) {
      AddQuery(item, Ask::kSummary);
    }
    if (!ring.sampled && HasProbes(ring.end, policy.block)) AddQuery(item, Ask::kExact);
    items_.push_back(std::move(item));
  }

  void AddQuery(Item& item, Ask kind) {
    const RingItem& ring = *item.ring;
    const AttentionPolicy& policy = item.policy();
    Query query;
    query.kind = kind;
    query.owed.resize(static_cast<size_t>(ring.degree()));
    std::vector<int32_t> probes;
    if (kind == Ask::kExact) {
      const uint64_t seed = Mix(static_cast<uint64_t>(ring.begin)) + layer_.layer;
      probes = ProbeRows(ring.begin, ring.end, policy.block, seed);
    }
    for (int i = 0; i < ring.degree(); ++i) {
      const std::vector<int32_t>& rows = ring.positions[i];
      std::vector<int32_t>& positions = query.positions.emplace_back();
      int64_t groups = 0;
      if (kind == Ask::kExact) {
        std::set_intersection(probes.begin(), probes.end(), rows.begin(), rows.end(),
                              std::back_inserter(positions));
        groups = static_cast<int64_t>(positions.size());
      } else if (kind == Ask::kAntidiagonal) {
        positions = rows;
        groups = CountRowGroups(rows, policy.score_stride);
      } else {
        positions = BlocksOf(rows, policy.block);
        groups = static_cast<int64_t>(positions.size());
      }
      query.groups.push_back(groups);
    }
    item.queries.push_back(std::move(query));
  }

  // The rows that are scored: all own ones, some of them, or the mean of each query block.
  absl::Status TakeOwnQueries(const Item& item, Query& query) {
    const RingItem& ring = *item.ring;
    const std::vector<int32_t>& wanted = query.positions[ring.index];
    if (wanted.empty()) return absl::OkStatus();
    const ConstMatrixView own = layer_.query.row_range(ring.first_row, ring.own_rows());
    query.own = own;
    if (query.kind == Ask::kAntidiagonal) return absl::OkStatus();
    const auto count = static_cast<int64_t>(wanted.size());
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> data,
                             Keep(wanted.size() * static_cast<size_t>(columns())));
    query.own = {data.data(), count, columns(), columns()};
    if (query.kind == Ask::kExact) {
      return TakeRows(own, ring.positions[ring.index], wanted,
                      {data.data(), count, columns(), columns()});
    }
    return TakeMeans(item, own, wanted, data);
  }

  // The rows at the positions `wanted`, which are among `positions`.
  absl::Status TakeRows(const ConstMatrixView& own, std::span<const int32_t> positions,
                        std::span<const int32_t> wanted, const MatrixView& to) {
    std::vector<int32_t> rows;
    for (const int32_t position : wanted) {
      const auto at = std::lower_bound(positions.begin(), positions.end(), position);
      rows.push_back(static_cast<int32_t>(at - positions.begin()));
    }
    return chooser_.ops_.gather_rows(chooser_.stream_, {own, rows, to});
  }

  // The mean of the rows of each query block in `wanted`, added up on the host.
  absl::Status TakeMeans(const Item& item, const ConstMatrixView& own,
                         std::span<const int32_t> wanted, std::span<float> data) {
    ANNULUS_ASSIGN_OR_RETURN(const ConstMatrixView seen, OnHost(own));
    const std::vector<int32_t>& rows = item.positions(item.index());
    size_t row = 0;
    for (size_t n = 0; n < wanted.size(); ++n) {
      float* const to = data.data() + n * static_cast<size_t>(columns());
      std::fill_n(to, columns(), 0.0f);
      const size_t first = row;
      for (; row < rows.size() && rows[row] / item.policy().block == wanted[n]; ++row) {
        const float* const from = seen.row(static_cast<int64_t>(row));
        for (int64_t c = 0; c < columns(); ++c) to[c] += from[c];
      }
      for (int64_t c = 0; c < columns(); ++c) to[c] /= static_cast<float>(row - first);
    }
    return absl::OkStatus();
  }

  // Dense rows where the host can read them: in place, or in a copy.
  absl::StatusOr<ConstMatrixView> OnHost(const ConstMatrixView& rows) {
    if (chooser_.backend_.capabilities().host_accessible) return rows;
    ANNULUS_CHECK(rows.stride == rows.cols) << "rows to copy are dense";
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> copy,
                             Keep(static_cast<size_t>(rows.rows * rows.cols)));
    ANNULUS_RETURN_IF_ERROR(
        chooser_.backend_.Copy(chooser_.stream_, copy.data(), rows.data, copy.size_bytes()));
    ANNULUS_RETURN_IF_ERROR(chooser_.stream_.Synchronize());
    return ConstMatrixView{copy.data(), rows.rows, rows.cols, rows.cols};
  }

  // Visits the queries that the rows of ring index `runner` of an item put to this rank's pages,
  // or, with runner the item's own, those put to `holder`.
  template <class Visit>
  void ForEach(int peer, const Visit& visit) {
    for (Item& item : items_) {
      const int other = IndexOf(*item.ring, peer);
      if (other < 0) continue;
      for (Query& query : item.queries) visit(item, query, other);
    }
  }

  static bool Asks(const Item& item, const Query& query, int holder) {
    return !query.positions[item.index()].empty() && !item.held[holder].empty();
  }
  static bool Owes(const Item& item, const Query& query, int runner) {
    return !query.positions[runner].empty() && !item.seen[runner].empty();
  }

  // Columns of scores that `holder` returns for own rows, or this rank for those of `runner`.
  static size_t Places(const Query& query, const std::vector<ShardPage>& pages,
                       const std::vector<int32_t>& blocks) {
    return query.kind == Ask::kSummary ? pages.size() : blocks.size();
  }
  size_t AskedFloats(const Item& item, const Query& query, int holder) const {
    return static_cast<size_t>(query.groups[item.index()]) * heads() *
           Places(query, item.choosing->candidates.held_by[holder], item.held[holder]);
  }
  size_t OwedFloats(const Item& item, const Query& query, int runner) const {
    return static_cast<size_t>(query.groups[runner]) * heads() *
           Places(query, item.choosing->candidates.seen_by[runner], item.seen[runner]);
  }

  absl::Status SendQueries() {
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (!Asks(item, query, other)) return;
        ANNULUS_CHECK(query.own.stride == query.own.cols) << "rows of a message are dense";
        parts.push_back(PartOf({query.own.data, static_cast<size_t>(query.own.rows * columns())}));
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (!Owes(item, query, other)) return;
        bytes.push_back(query.positions[other].size() * static_cast<size_t>(columns()) *
                        sizeof(float));
      });
    };
    const auto take = [&](int peer, std::span<const RingPart> parts) {
      absl::Status status;
      size_t next = 0;
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (!Owes(item, query, other) || !status.ok()) return;
        status = Score(item, query, other, FloatsOf(parts[next++]).data());
      });
      return status;
    };
    ANNULUS_RETURN_IF_ERROR(Round(1, give, expect, take));
    absl::Status status;
    ForEach(link_.rank(), [&](Item& item, Query& query, int own) {
      if (!Asks(item, query, own) || !status.ok()) return;
      status = Score(item, query, own, query.own.data);
    });
    return status;
  }

  // Scores the rows of ring index `runner` against own pages.
  absl::Status Score(Item& item, Query& query, int runner, const float* rows) {
    const auto count = static_cast<int64_t>(query.positions[runner].size());
    const ConstMatrixView view{rows, count, columns(), columns()};
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> scores, Keep(OwedFloats(item, query, runner)));
    query.owed[runner] = scores;
    std::vector<KvPageView> pages;
    for (const ShardPage& page : item.choosing->candidates.seen_by[runner]) {
      pages.push_back({layer_.page_data(page.page), page.first_position, page.tokens});
    }
    const RingAttentionConfig& config = chooser_.config_;
    absl::Status status;
    if (query.kind == Ask::kSummary) {
      status = ScoreSummaries(item, view, pages, scores);
    } else {
      BlockScoresItem scored;
      scored.query = view;
      scored.positions = query.positions[runner];
      scored.pages = pages;
      scored.scores = scores.data();
      BlockScoresParams params;
      params.shape = config.shape;
      params.heads = config.heads;
      params.scale = config.scale;
      params.soft_cap = config.soft_cap;
      params.block_tokens = item.policy().block;
      params.stride = query.kind == Ask::kExact ? 1 : item.policy().score_stride;
      params.items = {&scored, 1};
      status = chooser_.ops_.block_scores(chooser_.stream_, params);
    }
    if (status.ok()) status = chooser_.stream_.Synchronize();
    link_.Beat();
    return status;
  }

  // One score for each row, head and page; pages that are not complete have none.
  absl::Status ScoreSummaries(Item& item, const ConstMatrixView& rows,
                              std::span<const KvPageView> pages, std::span<float> scores) {
    const RingAttentionConfig& config = chooser_.config_;
    PageSummaries& summaries = (*item.choosing->summaries)[static_cast<size_t>(layer_.layer)];
    const auto kind =
        item.kind == ChoiceKind::kTop ? PageSummaries::Kind::kBounds : PageSummaries::Kind::kMean;
    // A sampled row's own key may still be on its way: its page is not complete for a summary.
    std::vector<KvPageView> written(pages.begin(), pages.end());
    if (item.ring->sampled && !written.empty()) {
      KvPageView& last = written.back();
      last.tokens = std::min(last.tokens, item.ring->begin - last.first_position);
    }
    ANNULUS_RETURN_IF_ERROR(summaries.Extend(chooser_.backend_, chooser_.ops_, chooser_.stream_,
                                             config.shape, kind, written));
    std::fill(scores.begin(), scores.end(), kNothing);
    const int64_t known = std::min<int64_t>(summaries.pages(), static_cast<int64_t>(pages.size()));
    if (known == 0) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> dense,
                             Keep(static_cast<size_t>(rows.rows * heads() * known)));
    SummaryScoresParams params;
    params.kv_heads = config.shape.kv_heads;
    params.heads = config.heads;
    params.k_dim = config.shape.k_dim;
    params.pages = known;
    params.query = rows;
    params.least = summaries.least();
    params.greatest = summaries.greatest();
    params.scores = dense.data();
    ANNULUS_RETURN_IF_ERROR(chooser_.ops_.summary_scores(chooser_.stream_, params));
    ANNULUS_RETURN_IF_ERROR(chooser_.stream_.Synchronize());
    for (size_t list = 0; list < static_cast<size_t>(rows.rows * heads()); ++list) {
      for (size_t page = 0; page < static_cast<size_t>(known); ++page) {
        scores[list * pages.size() + page] =
            config.scale * dense[list * static_cast<size_t>(known) + page];
      }
    }
    return absl::OkStatus();
  }

  absl::Status ReturnScores() {
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (Owes(item, query, other)) parts.push_back(PartOf(query.owed[other]));
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (Asks(item, query, other)) {
          bytes.push_back(AskedFloats(item, query, other) * sizeof(float));
        }
      });
    };
    const auto take = [&](int peer, std::span<const RingPart> parts) {
      size_t next = 0;
      ForEach(peer, [&](Item& item, Query& query, int other) {
        if (Asks(item, query, other)) Merge(item, query, other, FloatsOf(parts[next++]));
      });
      return absl::OkStatus();
    };
    ANNULUS_RETURN_IF_ERROR(Round(2, give, expect, take));
    ForEach(link_.rank(), [&](Item& item, Query& query, int own) {
      if (Asks(item, query, own)) Merge(item, query, own, query.owed[own]);
    });
    return absl::OkStatus();
  }

  void Merge(Item& item, Query& query, int holder, std::span<const float> scores) {
    if (!query.scores.has_value()) {
      query.scores.emplace(query.groups[item.index()], heads(), item.query_blocks.back() + 1);
    }
    const bool summary = query.kind == Ask::kSummary;
    query.scores->Merge(scores, summary ? item.held_page_blocks[holder] : item.held[holder],
                        summary);
  }

  void Rank(Item& item) {
    if (item.own_rows() == 0) return;
    if (item.kind == ChoiceKind::kRanking) {
      const bool antidiagonal = item.policy().estimator == Estimator::kAntidiagonal;
      const Query* query = item.Find(antidiagonal ? Ask::kAntidiagonal : Ask::kSummary);
      ANNULUS_CHECK(query != nullptr && query->scores.has_value()) << "rows that nobody scored";
      std::vector<int32_t> group_block;
      const int32_t stride = antidiagonal ? item.policy().score_stride : 1;
      int32_t last = -1;
      for (const int32_t position : query->positions[item.index()]) {
        if (position / stride == last) continue;
        last = position / stride;
        group_block.push_back(antidiagonal ? position / item.policy().block : position);
      }
      item.ranking.emplace(*query->scores, kv_heads(), group_block);
    } else {
      item.pattern = OwnLists(item);
    }
    item.covered.assign(item.ladder.size() + 1, 0.0);
    for (size_t rung = 0; rung < item.ladder.size(); ++rung) {
      item.covered[rung] = ProbeCoverage(item, rung, nullptr);
    }
    const Query* const probes = item.Find(Ask::kExact);
    if (probes != nullptr) {
      item.covered.back() = static_cast<double>(probes->positions[item.index()].size()) * heads();
    }
  }

  // What the policy itself chooses, where no tau is involved.
  BlockPattern OwnLists(const Item& item) const {
    const AttentionPolicy& policy = item.policy();
    if (item.kind == ChoiceKind::kLists) {
      const BlockPattern& lists = *item.ring->pattern;
      return MakePattern(item.query_blocks, kv_heads(), policy.block,
                         [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
                           const auto keys = lists.keys(lists.shape.head_groups == 1 ? 0 : kv_head,
                                                        item.query_blocks[q]);
                           blocks.assign(keys.begin(), keys.end());
                         });
    }
    const Query* const query = item.Find(Ask::kSummary);
    return MakePattern(
        item.query_blocks, kv_heads(), policy.block,
        [&](size_t q, int kv_head, std::vector<int32_t>& blocks) {
          const int32_t diagonal = item.query_blocks[q];
          std::vector<float> best(static_cast<size_t>(diagonal) + 1, kNothing);
          const int group = heads() / kv_heads();
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
  double ProbeCoverage(const Item& item, size_t rung, std::vector<double>* by_head) const {
    const Query* const probes = item.Find(Ask::kExact);
    if (probes == nullptr || !probes->scores.has_value()) return 0;
    double sum = 0;
    const std::vector<int32_t>& positions = probes->positions[item.index()];
    for (size_t n = 0; n < positions.size(); ++n) {
      const int32_t block = positions[n] / item.policy().block;
      for (int head = 0; head < heads(); ++head) {
        const int kv_head = head / (heads() / kv_heads());
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

  std::span<const int32_t> ChosenAt(const Item& item, size_t rung, int32_t block,
                                    int kv_head) const {
    if (!item.ranking.has_value()) return item.pattern.keys(kv_head, block);
    const size_t q = item.ranking->Find(block);
    return item.ranking->order(q, kv_head)
        .first(static_cast<size_t>(item.ranking->Count(q, kv_head, item.ladder[rung])));
  }

  // All ranks with rows add up what each rung would cover and take the first that is enough.
  absl::Status AgreeOnContract() {
    const auto bound = [](const Item& item) { return item.policy().coverage > 0; };
    std::vector<std::vector<double>> totals;
    for (const Item& item : items_) totals.push_back(item.covered);
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      for (const Item& item : items_) {
        const int other = IndexOf(*item.ring, peer);
        if (!bound(item) || other < 0 || item.own_rows() == 0 || item.positions(other).empty()) {
          continue;
        }
        std::vector<std::byte>& sums =
            chooser_.messages_.step.emplace_back(item.covered.size() * sizeof(double));
        std::memcpy(sums.data(), item.covered.data(), sums.size());
        parts.push_back({sums.data(), sums.size()});
      }
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      for (const Item& item : items_) {
        const int other = IndexOf(*item.ring, peer);
        if (!bound(item) || other < 0 || item.own_rows() == 0 || item.positions(other).empty()) {
          continue;
        }
        bytes.push_back((item.ladder.size() + 1) * sizeof(double));
      }
    };
    const auto take = [&](int peer, std::span<const RingPart> parts) {
      size_t next = 0;
      for (size_t n = 0; n < items_.size(); ++n) {
        const Item& item = items_[n];
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
    ANNULUS_RETURN_IF_ERROR(Round(3, give, expect, take));
    for (size_t n = 0; n < items_.size(); ++n) {
      Item& item = items_[n];
      if (!bound(item) || item.own_rows() == 0) continue;
      const double wanted = item.policy().coverage * totals[n].back();
      while (item.rung + 1 < item.ladder.size() && totals[n][item.rung] < wanted) ++item.rung;
    }
    return absl::OkStatus();
  }

  void Choose(Item& item) {
    if (item.own_rows() == 0) return;
    const int32_t block = item.policy().block;
    if (item.ladder[item.rung] >= 1) {
      item.pattern = MakePattern(item.query_blocks, kv_heads(), block,
                                 [&](size_t q, int, std::vector<int32_t>& blocks) {
                                   for (int32_t b = 0; b <= item.query_blocks[q]; ++b) {
                                     blocks.push_back(b);
                                   }
                                 });
    } else if (item.ranking.has_value()) {
      item.pattern = PatternOf(*item.ranking, block, item.ladder[item.rung]);
    }
  }

  // Which of `blocks` every (kv head, query block) chose, a bit each.
  static size_t ListBytes(size_t lists, size_t blocks) { return (lists * blocks + 7) / 8; }

  absl::Status SendLists() {
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      for (const Item& item : items_) {
        const int other = IndexOf(*item.ring, peer);
        if (other < 0 || item.own_rows() == 0 || item.held[other].empty()) continue;
        const std::vector<std::byte>& bits =
            chooser_.messages_.step.emplace_back(Encode(item, item.held[other]));
        parts.push_back({bits.data(), bits.size()});
      }
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      for (const Item& item : items_) {
        const int other = IndexOf(*item.ring, peer);
        if (other < 0 || item.positions(other).empty() || item.seen[other].empty()) continue;
        const size_t rows = BlocksOf(item.positions(other), item.policy().block).size();
        bytes.push_back(ListBytes(static_cast<size_t>(kv_heads()) * rows, item.seen[other].size()));
      }
    };
    const auto take = [&](int peer, std::span<const RingPart> parts) {
      size_t next = 0;
      for (Item& item : items_) {
        const int other = IndexOf(*item.ring, peer);
        if (other < 0 || item.positions(other).empty() || item.seen[other].empty()) continue;
        UseLists(item, other, Decode(item, other, parts[next++].data));
      }
      return absl::OkStatus();
    };
    for (Item& item : items_) PlaceOwnLists(item);
    return Round(4, give, expect, take);
  }

  std::vector<std::byte> Encode(const Item& item, const std::vector<int32_t>& blocks) const {
    std::vector<std::byte> bits(
        ListBytes(static_cast<size_t>(kv_heads()) * item.query_blocks.size(), blocks.size()));
    size_t list = 0;
    for (int kv_head = 0; kv_head < kv_heads(); ++kv_head) {
      for (const int32_t query_block : item.query_blocks) {
        const size_t first = list++ * blocks.size();
        size_t b = 0;
        for (const int32_t key : item.pattern.keys(kv_head, query_block)) {
          while (b < blocks.size() && blocks[b] < key) ++b;
          if (b == blocks.size()) break;
          if (blocks[b] != key) continue;
          bits[(first + b) / 8] |= std::byte{1} << (first + b) % 8;
        }
      }
    }
    return bits;
  }

  BlockPattern Decode(const Item& item, int runner, const std::byte* bits) const {
    const std::vector<int32_t> rows = BlocksOf(item.positions(runner), item.policy().block);
    const std::vector<int32_t>& blocks = item.seen[runner];
    return MakePattern(rows, kv_heads(), item.policy().block,
                       [&](size_t q, int kv_head, std::vector<int32_t>& chosen) {
                         const size_t list = static_cast<size_t>(kv_head) * rows.size() + q;
                         for (size_t b = 0; b < blocks.size(); ++b) {
                           const size_t bit = list * blocks.size() + b;
                           if ((bits[bit / 8] >> bit % 8 & std::byte{1}) != std::byte{0}) {
                             chosen.push_back(blocks[b]);
                           }
                         }
                       });
  }

  void PlaceOwnLists(Item& item) {
    ItemShards& shards = layer_.shards[item.choosing->item];
    const auto degree = static_cast<size_t>(item.ring->degree());
    shards = ItemShards();
    shards.held_by.resize(degree);
    shards.held_lists.resize(degree);
    shards.seen_by.resize(degree);
    shards.seen_lists.resize(degree);
    if (item.own_rows() == 0) return;
    const std::span<const int32_t> rows = item.positions(item.index());
    for (size_t j = 0; j < degree; ++j) {
      shards.held_by[j] = ChosenPages(item.pattern, rows, item.choosing->candidates.held_by[j]);
      shards.held_lists[j] = MakePageLists(item.pattern, rows, shards.held_by[j]);
    }
  }

  void UseLists(Item& item, int runner, const BlockPattern& pattern) {
    ItemShards& shards = layer_.shards[item.choosing->item];
    const std::span<const int32_t> rows = item.positions(runner);
    shards.seen_by[runner] = ChosenPages(pattern, rows, item.choosing->candidates.seen_by[runner]);
    shards.seen_lists[runner] = MakePageLists(pattern, rows, shards.seen_by[runner]);
  }

  void Report(Item& item) {
    LayerAttention& report = item.report;
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
    const Query* const probes = item.Find(Ask::kExact);
    if (probes != nullptr) {
      report.covered.assign(static_cast<size_t>(heads()), 0.0);
      report.probes = static_cast<int32_t>(probes->positions[item.index()].size());
      ProbeCoverage(item, item.rung, &report.covered);
    }
    if (!item.ranking.has_value()) return;
    for (size_t q = 0; q < item.query_blocks.size(); ++q) {
      for (int kv_head = 0; kv_head < kv_heads(); ++kv_head) {
        const int32_t count = item.ranking->Count(q, kv_head, item.ladder[item.rung]);
        report.estimated += item.ranking->Mass(q, kv_head, count);
        report.estimates += 1;
      }
    }
  }

  template <class Give, class Expect, class Take>
  absl::Status Round(uint64_t number, const Give& give, const Expect& expect, const Take& take) {
    ANNULUS_ASSIGN_OR_RETURN(const int64_t sent,
                             link_.Exchange({layer_.tag | 0x8000 | number, give, expect, take}));
    link_.counters().bytes_estimate += sent;
    return absl::OkStatus();
  }

  BlockChooser& chooser_;
  RingLink& link_;
  const ChoiceLayer& layer_;
  std::vector<Item> items_;
};

absl::Status BlockChooser::Run(const ChoiceLayer& layer, std::span<const ChoosingItem> choosing,
                               std::vector<LayerAttention>& report) {
  return LayerChoice(*this, layer, choosing).Run(report);
}

}  // namespace annulus
