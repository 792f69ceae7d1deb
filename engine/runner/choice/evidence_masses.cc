#include "engine/runner/choice/evidence_masses.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

// Distinct from the tags of BlockChooser and CoverageSampler in the same layer.
constexpr uint64_t kEvidenceTag = 0x8000 | 0x2000;

// Cuts that are needed to know every part: the sum of a block's keys before each. A block's own
// beginning is none.
std::vector<int32_t> CutsOf(std::span<const RowRange> parts, int32_t block) {
  std::vector<int32_t> cuts;
  for (const RowRange& part : parts) {
    if (part.begin % block != 0) cuts.push_back(part.begin);
    cuts.push_back(part.end);
  }
  std::sort(cuts.begin(), cuts.end());
  cuts.erase(std::unique(cuts.begin(), cuts.end()), cuts.end());
  return cuts;
}

}  // namespace

std::vector<RowRange> EvidenceParts(std::span<const RowRange> ranges, int32_t block) {
  std::vector<RowRange> parts;
  for (const RowRange& range : ranges) {
    for (int32_t begin = range.begin; begin < range.end;) {
      const int32_t end = std::min<int32_t>(range.end, (begin / block + 1) * block);
      parts.push_back({begin, end});
      begin = end;
    }
  }
  return parts;
}

std::vector<EvidenceShare> EvidenceItem::SharesOf(size_t row) const {
  std::vector<EvidenceShare> shares;
  if (row >= sums.size()) return shares;
  const auto heads = static_cast<double>(terms->heads.size());
  for (size_t part = 0; part < parts.size() && shares.size() < kMostEvidenceShares; ++part) {
    const auto share = static_cast<float>(sums[row][part] / heads);
    // Not a number, if the row's activations are none: then nothing is said.
    if (!(share >= kLeastEvidenceShare)) continue;
    shares.push_back({parts[part].begin, parts[part].end, share});
  }
  return shares;
}

// One layer.
class EvidenceMasses::LayerRun {
 public:
  LayerRun(const ChoiceContext& context, const Layer& layer) : context_(context), layer_(layer) {}

  absl::Status Run(std::span<EvidenceItem> items) {
    for (EvidenceItem& item : items) {
      if (item.item < layer_.ring.items.size()) AddWork(item);
    }
    if (work_.empty()) return absl::OkStatus();
    for (Work& work : work_) ANNULUS_RETURN_IF_ERROR(TakeRows(work));
    ANNULUS_RETURN_IF_ERROR(context_.stream.Synchronize());
    ANNULUS_RETURN_IF_ERROR(SendRows());
    ANNULUS_RETURN_IF_ERROR(ReturnSums());
    for (Work& work : work_) AddParts(work);
    return absl::OkStatus();
  }

 private:
  // What one rank of the ring has of an item's cuts.
  struct Held {
    std::vector<size_t> columns;   // indices of cuts, ascending
    std::vector<PageEntry> pages;  // ascending
    std::span<const float> sums;   // [row][column]
  };
  struct Work {
    EvidenceItem* item = nullptr;
    const RingItem* ring = nullptr;
    std::vector<int> heads;     // of this layer
    std::vector<int32_t> cuts;  // ascending
    std::vector<Held> held;     // [ring index]
    std::span<float> rows;      // own: [rows, query columns], then [rows, heads] of lse
    std::vector<std::vector<double>> before;  // own: [row][cut] sums over the heads

    bool is_home() const { return ring->index == ring->home_index(); }
    size_t count() const { return ring->positions[ring->home_index()].size(); }
  };

  int heads() const { return layer_.shape.heads; }
  int64_t columns() const { return int64_t{heads()} * layer_.shape.shape.k_dim; }
  int32_t block() const { return EvidenceBlock(layer_.page_tokens); }
  size_t RowFloats(const Work& work) const {
    return work.count() * static_cast<size_t>(columns() + heads());
  }

  void AddWork(EvidenceItem& item) {
    Work work;
    for (const LayerHead& head : item.terms->heads) {
      if (head.layer == layer_.layer) work.heads.push_back(head.head);
    }
    if (work.heads.empty()) return;
    work.item = &item;
    work.ring = &layer_.ring.items[item.item];
    work.cuts = CutsOf(item.parts, block());
    work.held.resize(static_cast<size_t>(work.ring->degree()));
    ListHeld(layer_.entries(item.item), work);
    if (work.is_home()) {
      work.before.assign(work.count(), std::vector<double>(work.cuts.size(), 0.0));
      item.sums.resize(work.count(), std::vector<double>(item.parts.size(), 0.0));
    }
    work_.push_back(std::move(work));
  }

  // All ranks have the same table, so both ends of a message agree on its parts.
  void ListHeld(std::span<const PageEntry> entries, Work& work) const {
    size_t first = 0;  // the first entry that may lie in the block of the cut
    for (size_t cut = 0; cut < work.cuts.size(); ++cut) {
      const int32_t end = work.cuts[cut];
      const int32_t begin = (end - 1) / block() * block();
      while (first < entries.size() && entries[first].first_position < begin) ++first;
      for (size_t e = first; e < entries.size() && entries[e].first_position < end; ++e) {
        const int index = work.ring->index_of(entries[e].rank);
        ANNULUS_CHECK(index >= 0) << "a page of rank " << entries[e].rank;
        Held& held = work.held[static_cast<size_t>(index)];
        if (held.columns.empty() || held.columns.back() != cut) held.columns.push_back(cut);
        if (held.pages.empty() || held.pages.back().first_position < entries[e].first_position) {
          held.pages.push_back(entries[e]);
        }
      }
    }
  }

  absl::StatusOr<std::span<float>> Keep(size_t floats) const {
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer,
                             context_.backend.AllocateHost(floats * sizeof(float)));
    context_.messages.evidence.push_back(std::move(buffer));
    return std::span(context_.messages.evidence.back().as<float>(), floats);
  }

  // Own rows' queries and lse, side by side.
  absl::Status TakeRows(Work& work) const {
    if (!work.is_home()) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(work.rows, Keep(RowFloats(work)));
    const auto count = static_cast<int64_t>(work.count());
    std::vector<int32_t> rows;
    for (int64_t row = 0; row < count; ++row) {
      rows.push_back(static_cast<int32_t>(work.ring->first_row + row));
    }
    float* const lse = work.rows.data() + count * columns();
    const AttentionState& state = layer_.ring.state;
    ANNULUS_RETURN_IF_ERROR(context_.ops.gather_rows(
        context_.stream,
        {layer_.ring.query, rows, {work.rows.data(), count, columns(), columns()}}));
    return context_.ops.gather_rows(context_.stream,
                                    {{state.lse, work.ring->first_row + count, heads(), heads()},
                                     rows,
                                     {lse, count, heads(), heads()}});
  }

  // Round 1: queries to the ranks that hold keys, which sum up at once.
  absl::Status SendRows() {
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEach(peer, [&](Work& work, int other) {
        if (work.is_home() && !work.held[other].columns.empty()) parts.push_back(PartOf(work.rows));
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEach(peer, [&](Work& work, int other) {
        if (Owes(work, other)) bytes.push_back(RowFloats(work) * sizeof(float));
      });
    };
    const auto take = [&](int peer, const RingParts& parts) {
      absl::Status status;
      size_t next = 0;
      ForEach(peer, [&](Work& work, int other) {
        if (Owes(work, other) && status.ok()) status = Sum(work, FloatsOf(parts[next++]));
      });
      return status;
    };
    ANNULUS_RETURN_IF_ERROR(Round(1, give, expect, take));
    for (Work& work : work_) {
      if (work.is_home()) ANNULUS_RETURN_IF_ERROR(Sum(work, work.rows));
    }
    return absl::OkStatus();
  }

  // Round 2: the sums go home.
  absl::Status ReturnSums() {
    const auto give = [&](int peer, std::vector<RingPart>& parts) {
      ForEach(peer, [&](Work& work, int other) {
        if (Owes(work, other)) parts.push_back(PartOf(work.held[work.ring->index].sums));
      });
    };
    const auto expect = [&](int peer, std::vector<size_t>& bytes) {
      ForEach(peer, [&](Work& work, int other) {
        const size_t columns = work.held[other].columns.size();
        if (work.is_home() && columns > 0) bytes.push_back(work.count() * columns * sizeof(float));
      });
    };
    const auto take = [&](int peer, const RingParts& parts) {
      size_t next = 0;
      ForEach(peer, [&](Work& work, int other) {
        const Held& held = work.held[other];
        if (work.is_home() && !held.columns.empty()) Add(held, FloatsOf(parts[next++]), work);
      });
      return absl::OkStatus();
    };
    ANNULUS_RETURN_IF_ERROR(Round(2, give, expect, take));
    for (Work& work : work_) {
      const Held& own = work.held[work.ring->index];
      if (work.is_home()) Add(own, own.sums, work);
    }
    return absl::OkStatus();
  }

  // Whether own keys are summed for the rows of the ring index `other`, which is not this rank.
  static bool Owes(const Work& work, int other) {
    return other == work.ring->home_index() && !work.held[work.ring->index].columns.empty();
  }

  template <class Visit>
  void ForEach(int peer, const Visit& visit) {
    for (Work& work : work_) {
      const int other = work.ring->index_of(peer);
      if (other >= 0 && other != work.ring->index) visit(work, other);
    }
  }

  template <class Give, class Expect, class Take>
  absl::Status Round(uint64_t number, const Give& give, const Expect& expect, const Take& take) {
    const auto place = [&](size_t bytes) -> absl::StatusOr<std::byte*> {
      ANNULUS_ASSIGN_OR_RETURN(const std::span<float> memory, Keep(bytes / sizeof(float)));
      return reinterpret_cast<std::byte*>(memory.data());
    };
    const absl::StatusOr<int64_t> sent = context_.link.Exchange(
        {layer_.ring.tag | kEvidenceTag | number, give, expect, place, take});
    if (!sent.ok()) return sent.status();
    context_.link.counters().bytes_estimate += *sent;
    return absl::OkStatus();
  }

  // The pages of a held list that lie before `end`, from its block's beginning on.
  std::vector<KvPageView> PagesBefore(const Held& held, int32_t end) const {
    const int32_t begin = (end - 1) / block() * block();
    std::vector<KvPageView> views;
    auto page = std::lower_bound(
        held.pages.begin(), held.pages.end(), begin,
        [](const PageEntry& entry, int32_t value) { return entry.first_position < value; });
    for (; page != held.pages.end() && page->first_position < end; ++page) {
      views.push_back({layer_.ring.page_data(page->page) + layer_.ring.page_offset,
                       page->first_position,
                       std::min(layer_.page_tokens, end - page->first_position)});
    }
    return views;
  }

  // Scores rows against own pages: all whole blocks together, each other cut by itself.
  absl::Status Sum(Work& work, std::span<const float> rows) {
    Held& held = work.held[work.ring->index];
    if (held.columns.empty()) return absl::OkStatus();
    const auto count = static_cast<int64_t>(work.count());
    const ConstMatrixView query{rows.data(), count, columns(), columns()};
    const std::vector<int32_t>& positions = work.ring->positions[work.ring->home_index()];
    std::vector<std::vector<size_t>> taken;  // [scored item] its columns
    std::vector<std::vector<KvPageView>> pages;
    std::vector<size_t> whole;
    std::vector<KvPageView> whole_pages;
    for (size_t column = 0; column < held.columns.size(); ++column) {
      const int32_t end = work.cuts[held.columns[column]];
      std::vector<KvPageView> views = PagesBefore(held, end);
      if (end % block() == 0) {
        whole.push_back(column);
        whole_pages.insert(whole_pages.end(), views.begin(), views.end());
      } else {
        taken.push_back({column});
        pages.push_back(std::move(views));
      }
    }
    if (!whole.empty()) {
      taken.push_back(std::move(whole));
      pages.push_back(std::move(whole_pages));
    }
    ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer scores, context_.backend.AllocateHost(
                                                      work.count() * static_cast<size_t>(heads()) *
                                                      held.columns.size() * sizeof(float)));
    std::vector<BlockScoresItem> items;
    float* next = scores.as<float>();
    for (size_t i = 0; i < taken.size(); ++i) {
      items.push_back({query, positions, pages[i], {}, next});
      next += count * heads() * static_cast<int64_t>(taken[i].size());
    }
    ANNULUS_RETURN_IF_ERROR(Score(items));
    ANNULUS_ASSIGN_OR_RETURN(const std::span<float> sums, Keep(work.count() * held.columns.size()));
    const float* const lse = rows.data() + count * columns();
    for (size_t i = 0; i < taken.size(); ++i) {
      for (int64_t row = 0; row < count; ++row) {
        SumHeads(work.heads, {items[i].scores + row * heads() * std::ssize(taken[i]), taken[i]},
                 lse + row * heads(),
                 sums.subspan(static_cast<size_t>(row) * held.columns.size(), held.columns.size()));
      }
    }
    held.sums = sums;
    context_.link.Beat();
    return absl::OkStatus();
  }

  absl::Status Score(std::span<const BlockScoresItem> items) const {
    BlockScoresParams params;
    params.shape = layer_.shape.shape;
    params.heads = layer_.shape.heads;
    params.scale = layer_.shape.scale;
    params.soft_cap = context_.config.soft_cap;
    params.block_tokens = block();
    params.items = items;
    ANNULUS_RETURN_IF_ERROR(context_.ops.block_scores(context_.stream, params));
    return context_.stream.Synchronize();
  }

  // A row's scores, [heads][columns], and which of its sums they belong to.
  struct RowScores {
    const float* scores;
    std::span<const size_t> columns;
  };
  static void SumHeads(std::span<const int> heads, const RowScores& row, const float* lse,
                       std::span<float> sums) {
    for (size_t n = 0; n < row.columns.size(); ++n) {
      double sum = 0;
      for (const int head : heads) {
        const float score = row.scores[static_cast<size_t>(head) * row.columns.size() + n];
        sum += std::exp(double{score} - double{lse[head]});
      }
      sums[row.columns[n]] = static_cast<float>(sum);
    }
  }

  // Blocks whose pages lie on several ranks have a sum on each.
  static void Add(const Held& held, std::span<const float> sums, Work& work) {
    for (size_t row = 0; row < work.count(); ++row) {
      for (size_t column = 0; column < held.columns.size(); ++column) {
        work.before[row][held.columns[column]] += sums[row * held.columns.size() + column];
      }
    }
  }

  void AddParts(Work& work) const {
    if (!work.is_home()) return;
    const auto before = [&](size_t row, int32_t cut) {
      const auto at = std::lower_bound(work.cuts.begin(), work.cuts.end(), cut);
      return work.before[row][static_cast<size_t>(at - work.cuts.begin())];
    };
    for (size_t row = 0; row < work.count(); ++row) {
      for (size_t part = 0; part < work.item->parts.size(); ++part) {
        const RowRange& range = work.item->parts[part];
        const double outside = range.begin % block() == 0 ? 0 : before(row, range.begin);
        // Both sums are rounded, so the difference may fall below 0.
        work.item->sums[row][part] += std::max(0.0, before(row, range.end) - outside);
      }
    }
  }

  const ChoiceContext& context_;
  const Layer& layer_;
  std::vector<Work> work_;
};

absl::Status EvidenceMasses::Run(const Layer& layer, std::span<EvidenceItem> items) {
  return LayerRun(context_, layer).Run(items);
}

}  // namespace annulus
