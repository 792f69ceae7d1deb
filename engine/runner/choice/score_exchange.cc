#include "engine/runner/choice/score_exchange.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "engine/runner/choice/antidiagonals.h"
#include "engine/runner/choice/own_queries.h"
#include "engine/runner/choice/sum_exchange.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Ask = ChoiceQuery::Ask;

constexpr float kNoScore = -std::numeric_limits<float>::infinity();

// Whether pages are scored, and not blocks.
bool ScoresPages(const ChoiceQuery& query) {
  return query.kind == Ask::kBounds || query.kind == Ask::kMeans || query.kind == Ask::kGates;
}

// A sampled row's own key may still be on its way: it is left out of its page.
void LeaveOutOwnKey(const RingItem& item, std::vector<KvPageView>& pages) {
  if (!item.sampled || pages.empty()) return;
  KvPageView& last = pages.back();
  last.tokens = std::min(last.tokens, item.begin - last.first_position);
}

// Columns of scores that `holder` returns for own rows, or this rank for those of `runner`.
size_t Places(const ChoiceQuery& query, const std::vector<ShardPage>& pages,
              const std::vector<int32_t>& blocks) {
  if (query.kept != nullptr) return 1;
  return ScoresPages(query) ? pages.size() : blocks.size();
}

}  // namespace

absl::Status ScoreExchange::Run() {
  for (Choice& item : choices_) {
    if (item.probes.has_value()) {
      ANNULUS_RETURN_IF_ERROR(TakeOwnQueries(context_, layer_, item, *item.probes));
    }
    for (PartChoice& part : item.parts) {
      if (!part.estimate.has_value()) continue;
      ANNULUS_RETURN_IF_ERROR(TakeOwnQueries(context_, layer_, item, *part.estimate));
    }
  }
  ANNULUS_RETURN_IF_ERROR(context_.stream.Synchronize());
  const StepArena::Position before = context_.arena.Mark();
  ANNULUS_RETURN_IF_ERROR(SendQueries());
  ANNULUS_RETURN_IF_ERROR(SumExchange(context_, layer_, choices_).Run());
  context_.arena.Rewind(before);
  return ReturnScores();
}

absl::Status ScoreExchange::Acknowledge() {
  static constexpr std::byte kRead[1] = {};
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    bool asked = false;
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      asked = asked || Asks(item, query, other);
    });
    if (asked) parts.push_back({kRead, sizeof(kRead)});
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    bool owed = false;
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      owed = owed || Owes(item, query, other);
    });
    if (owed) bytes.push_back(sizeof(kRead));
  };
  const auto take = [](int, const RingParts&) { return absl::OkStatus(); };
  return ChoiceRound(context_, layer_, 3, give, expect, take);
}

size_t ScoreExchange::AskedFloats(const Choice& item, const ChoiceQuery& query, int holder) const {
  return static_cast<size_t>(query.lists[item.index()]) *
         Places(query, item.choosing->candidates.held_by[holder], item.held[holder]);
}
size_t ScoreExchange::OwedFloats(const Choice& item, const ChoiceQuery& query, int runner) const {
  return static_cast<size_t>(query.lists[runner]) *
         Places(query, item.choosing->candidates.seen_by[runner], item.seen[runner]);
}

absl::Status ScoreExchange::SendQueries() {
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Asks(item, query, other)) return;
      ANNULUS_CHECK(query.own.stride == query.own.cols) << "rows of a message are dense";
      parts.push_back(
          PartOf({query.own.data, static_cast<size_t>(query.own.rows * context_.columns())}));
    });
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Owes(item, query, other)) return;
      bytes.push_back(query.positions[other].size() * static_cast<size_t>(context_.columns()) *
                      sizeof(float));
    });
  };
  const auto take = [&](int peer, const RingParts& parts) {
    absl::Status status;
    size_t next = 0;
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (!Owes(item, query, other) || !status.ok()) return;
      status = Score(item, query, other, FloatsOf(parts[next++]).data());
    });
    return status;
  };
  ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 1, give, expect, take));
  absl::Status status;
  ForEachQuery(choices_, context_.link.rank(), [&](Choice& item, ChoiceQuery& query, int own) {
    if (!Asks(item, query, own) || !status.ok()) return;
    status = Score(item, query, own, query.own.data);
  });
  return status;
}

// Scores the rows of ring index `runner` against own pages.
absl::Status ScoreExchange::Score(Choice& item, ChoiceQuery& query, int runner, const float* rows) {
  absl::Status status;
  if (query.antidiagonal()) {
    status = ScoreAntidiagonals(item, query, runner, rows);
  } else {
    const auto count = static_cast<int64_t>(query.positions[runner].size());
    const ConstMatrixView view{rows, count, context_.columns(), context_.columns()};
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> scores,
                             context_.Keep(OwedFloats(item, query, runner)));
    query.owed[runner] = scores;
    std::vector<KvPageView> pages;
    for (const ShardPage& page : item.choosing->candidates.seen_by[runner]) {
      pages.push_back({layer_.page_data(page.page), page.first_position, page.tokens});
    }
    if (query.kept != nullptr) {
      status = ScoreKept(item, query, runner, view, pages, scores);
    } else if (ScoresPages(query)) {
      status = ScorePages(item, query, view, pages, scores);
    } else {
      status = ScoreBlocks(item, query, runner, view, std::move(pages), scores);
    }
  }
  if (status.ok()) status = context_.stream.Synchronize();
  context_.link.Beat();
  return status;
}

// All of a ring of one rank; else what can be known before the sums of all ranks are.
absl::Status ScoreExchange::ScoreAntidiagonals(const Choice& item, ChoiceQuery& query, int runner,
                                               const float* rows) {
  const Antidiagonals scores(context_, layer_, item, query, runner);
  if (item.ring->degree() > 1) return scores.Sum(rows, SpareBytes(), query.scored[runner]);
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> masses,
                           context_.Keep(OwedFloats(item, query, runner)));
  query.owed[runner] = masses;
  return scores.SumAndPool(rows, masses);
}

// Bytes of the arena for the scores of any runner's rows and one block: what must be left.
size_t ScoreExchange::SpareBytes() const {
  int64_t groups = 0;
  for (const Choice& item : choices_) {
    for (const PartChoice& part : item.parts) {
      if (!part.estimate.has_value() || !part.estimate->antidiagonal()) continue;
      for (const int64_t each : part.estimate->groups) groups = std::max(groups, each);
    }
  }
  return StepArena::BytesFor<float>(static_cast<size_t>(groups * context_.heads()));
}

absl::Status ScoreExchange::ScoreBlocks(const Choice& item, const ChoiceQuery& query, int runner,
                                        const ConstMatrixView& rows, std::vector<KvPageView> pages,
                                        std::span<float> scores) {
  LeaveOutOwnKey(*item.ring, pages);
  BlockScoresItem scored;
  scored.query = rows;
  scored.positions = query.positions[runner];
  scored.pages = pages;
  scored.branches = query.branches;
  scored.scores = scores.data();
  return context_.ScoreBlocks(scored, item.block, /*stride=*/1);
}

// One score for each row and head: over all keys in the blocks that the row's lists keep. Rows of a
// list are scored together, against its pages alone.
absl::Status ScoreExchange::ScoreKept(const Choice& item, const ChoiceQuery& query, int runner,
                                      const ConstMatrixView& rows,
                                      std::span<const KvPageView> pages, std::span<float> scores) {
  struct Scored {
    int list = 0;
    std::span<const float> masses;  // [rows of the list][heads][parts]
  };
  const std::vector<int32_t>& positions = query.positions[runner];
  const PageLists lists =
      MakePageLists(*query.kept, positions, item.choosing->candidates.seen_by[runner]);
  const auto blocks = static_cast<int>(std::ssize(lists.query_block_rows)) - 1;
  std::vector<Scored> scored;
  for (int list = 0; list < lists.head_groups * blocks; ++list) {
    std::vector<KvPageView> kept;
    for (int32_t p = lists.offsets[list]; p < lists.offsets[list + 1]; ++p) {
      kept.push_back(pages[lists.pages[p]]);
    }
    if (kept.empty()) continue;
    const int32_t first = lists.query_block_rows[list % blocks];
    const int32_t count = lists.query_block_rows[list % blocks + 1] - first;
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> masses,
                             context_.Keep(static_cast<size_t>(count * context_.heads() *
                                                               CountBlocks(kept, item.block))));
    BlockScoresItem asked;
    asked.query = rows.row_range(first, count);
    asked.positions = std::span(positions).subspan(first, count);
    asked.pages = kept;
    asked.scores = masses.data();
    ANNULUS_RETURN_IF_ERROR(context_.ScoreBlocks(asked, item.block, /*stride=*/1));
    scored.push_back({list, masses});
  }
  ANNULUS_RETURN_IF_ERROR(context_.stream.Synchronize());
  std::fill(scores.begin(), scores.end(), kNoScore);
  const int heads = context_.heads() / lists.head_groups;  // of a list
  for (const auto& [list, masses] : scored) {
    const int32_t first = lists.query_block_rows[list % blocks];
    const int32_t end = lists.query_block_rows[list % blocks + 1];
    const size_t parts = masses.size() / static_cast<size_t>((end - first) * context_.heads());
    for (int32_t row = first; row < end; ++row) {
      for (int head = list / blocks * heads; head < (list / blocks + 1) * heads; ++head) {
        const auto own = static_cast<size_t>((row - first) * context_.heads() + head);
        float& mass = scores[static_cast<size_t>(row * context_.heads() + head)];
        for (const float part : masses.subspan(own * parts, parts)) mass = LogAdd(mass, part);
      }
    }
  }
  return absl::OkStatus();
}

// This layer's part of the pages that hold the item's summaries.
SummaryPlaces ScoreExchange::PlacesOf(const ChoosingItem& item) const {
  std::vector<std::byte*> parts;
  for (const int32_t page : item.summary_pages) parts.push_back(layer_.page_data(page));
  const RingAttentionConfig& config = context_.config;
  return {item.summary_kinds, config.shape, config.layer_page_bytes, parts};
}

// One score for each row, head and page; pages that are not complete have none.
absl::Status ScoreExchange::ScorePages(const Choice& item, const ChoiceQuery& query,
                                       const ConstMatrixView& rows,
                                       std::span<const KvPageView> pages, std::span<float> scores) {
  const KvPageShape& shape = context_.config.shape;
  const auto layer = static_cast<size_t>(layer_.layer);
  LayerSummaries& summaries = (*item.choosing->summaries)[layer];
  std::vector<KvPageView> written(pages.begin(), pages.end());
  LeaveOutOwnKey(*item.ring, written);
  std::fill(scores.begin(), scores.end(), kNoScore);
  const auto lists = static_cast<size_t>(rows.rows * context_.heads());
  const auto known_of = [&](int64_t summarised) {
    return std::min<int64_t>(summarised, static_cast<int64_t>(pages.size()));
  };
  std::span<float> dense;  // [lists, known]
  int64_t known = 0;
  float scale = 1;
  if (query.kind == Ask::kGates) {
    const GateLayer& gates = context_.gates->layers[layer];
    ANNULUS_RETURN_IF_ERROR(summaries.gates.Extend(context_.backend, context_.ops, context_.stream,
                                                   shape, gates, written));
    known = known_of(summaries.gates.pages());
    ANNULUS_ASSIGN_OR_RETURN(dense, context_.Keep(lists * static_cast<size_t>(known)));
    summaries.gates.Score(gates, rows, context_.heads(), context_.kv_heads(), known, dense.data());
  } else {
    PageSummaries& kept = query.kind == Ask::kBounds ? summaries.bounds : summaries.means;
    const SummaryPlaces places = PlacesOf(*item.choosing);
    ANNULUS_RETURN_IF_ERROR(kept.Extend(context_.ops, context_.stream, shape, written, places));
    known = known_of(kept.pages());
    ANNULUS_ASSIGN_OR_RETURN(dense, context_.Keep(lists * static_cast<size_t>(known)));
    scale = context_.config.scale;
    ANNULUS_RETURN_IF_ERROR(kept.Score(context_.ops, context_.stream, shape, context_.heads(), rows,
                                       known, places, dense.data()));
    ANNULUS_RETURN_IF_ERROR(context_.stream.Synchronize());
  }
  const float* from = dense.data();
  for (size_t list = 0; list < lists; ++list) {
    float* const to = scores.data() + list * pages.size();
    for (int64_t page = 0; page < known; ++page) to[page] = scale * *from++;
  }
  return absl::OkStatus();
}

absl::Status ScoreExchange::ReturnScores() {
  const auto give = [&](int peer, std::vector<RingPart>& parts) {
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (Owes(item, query, other)) parts.push_back(PartOf(query.owed[other]));
    });
  };
  const auto expect = [&](int peer, std::vector<size_t>& bytes) {
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (Asks(item, query, other)) {
        bytes.push_back(AskedFloats(item, query, other) * sizeof(float));
      }
    });
  };
  const auto take = [&](int peer, const RingParts& parts) {
    size_t next = 0;
    ForEachQuery(choices_, peer, [&](Choice& item, ChoiceQuery& query, int other) {
      if (Asks(item, query, other)) Merge(item, query, other, FloatsOf(parts[next++]));
    });
    return absl::OkStatus();
  };
  ANNULUS_RETURN_IF_ERROR(ChoiceRound(context_, layer_, 2, give, expect, take));
  ForEachQuery(choices_, context_.link.rank(), [&](Choice& item, ChoiceQuery& query, int own) {
    if (Asks(item, query, own)) Merge(item, query, own, query.owed[own]);
  });
  return absl::OkStatus();
}

void ScoreExchange::Merge(Choice& item, ChoiceQuery& query, int holder,
                          std::span<const float> scores) const {
  if (query.antidiagonal()) {
    if (!query.masses.has_value()) query.masses.emplace(item.query_blocks, context_.kv_heads());
    query.masses->Add(scores, item.held[holder]);
    return;
  }
  if (!query.scores.has_value()) {
    const int32_t blocks = query.kept != nullptr ? 1 : item.query_blocks.back() + 1;
    query.scores.emplace(query.groups[item.index()], context_.heads(), blocks);
  }
  if (query.kept != nullptr) {
    query.scores->Merge(scores, {{0}}, /*largest=*/false);
    return;
  }
  const bool pages = ScoresPages(query);
  query.scores->Merge(scores, pages ? item.held_page_blocks[holder] : item.held[holder], pages);
}

}  // namespace annulus
