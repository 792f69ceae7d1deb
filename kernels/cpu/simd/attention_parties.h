#ifndef ANNULUS_KERNELS_CPU_SIMD_ATTENTION_PARTIES_H_
#define ANNULUS_KERNELS_CPU_SIMD_ATTENTION_PARTIES_H_

#include <algorithm>
#include <cstdint>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cpu/simd/attention_unit.h"

namespace annulus::cpu {

// Units that one thread attends together: sequences that share a beginning, as questions about one
// document do, have the same pages there. These are read once for all members, and a larger block
// of rows makes better use of the processor. Called cascade inference elsewhere (FlashInfer, Ye et
// al. 2025, arXiv 2501.01005, section 3.1.2). A row's bits are those that it has alone: see
// kernels/ops/attention.h.
struct Party {
  int32_t first = 0;         // index of the first member, see AttentionParties::members
  int32_t count = 1;         // members; 1: a unit by itself
  int64_t shared_pages = 0;  // the first so many pages of each member, in ascending order; with one
                             // member 0
};

// Groups the units of a call.
class AttentionParties {
 public:
  // The most rows of a party; the scratch memory of a call is planned for them. Of more rows, the
  // states that they keep for every shard would leave the second-level cache.
  static constexpr int kMostRows = 64;
  // The fewest pages that are worth a party.
  static constexpr int64_t kLeastPages = 8;

  // Only units of at most `few_rows` rows join. `units` must outlive this object.
  AttentionParties(const AttentionUnits& units, int group, int few_rows, int threads)
      : units_(units), group_(group), few_rows_(few_rows) {
    std::vector<int32_t> alone;
    for (int32_t i = 0; i < units.size(); ++i) (CanJoin(units[i]) ? members_ : alone).push_back(i);
    const auto key = [&](int32_t i) {
      const Unit& unit = units[i];
      return std::tuple(unit.kv_head, PageAt(unit, 0).data, unit.item->page_offset,
                        unit.item->first_leaf, unit.item->leaves, i);
    };
    std::sort(members_.begin(), members_.end(),
              [&](int32_t a, int32_t b) { return key(a) < key(b); });
    Form(kMostRows);
    // Fewer and larger parties read less, but each is one thread's work.
    const int32_t longest = LongestParty();
    for (int32_t parts = 2; parts <= longest; ++parts) {
      if (Balanced(std::ssize(parties_) + std::ssize(alone), threads)) break;
      Form(std::min<int64_t>(kMostRows, (longest + parts - 1) / parts * MostMemberRows()));
    }
    for (const int32_t unit : alone) {
      parties_.push_back({static_cast<int32_t>(members_.size()), 1, 0});
      members_.push_back(unit);
    }
  }

  std::span<const Party> all() const { return parties_; }
  // Indices of units.
  std::span<const int32_t> members(const Party& party) const {
    return std::span(members_).subspan(party.first, party.count);
  }
  // The most positions of a party of several members; 0: there is none.
  int most_positions() const { return most_positions_; }

 private:
  bool CanJoin(const Unit& unit) const {
    return unit.positions * group_ <= few_rows_ && unit.pages.chosen == nullptr &&
           unit.first_key == 0 && unit.pages.count >= kLeastPages;
  }

  static const KvPageView& PageAt(const Unit& unit, int64_t i) {
    return unit.pages.pages[unit.pages.Ascending(i)];
  }

  // How many of the first pages both have, of which every row sees all keys.
  static int64_t CountShared(const Unit& a, const Unit& b, int64_t most) {
    const int64_t seen_by_all = std::min(FirstRowEnd(a), FirstRowEnd(b));
    most = std::min({most, a.pages.count, b.pages.count});
    int64_t shared = 0;
    for (; shared < most; ++shared) {
      const KvPageView& page = PageAt(a, shared);
      const KvPageView& other = PageAt(b, shared);
      if (page.data != other.data || page.first_position != other.first_position ||
          page.tokens != other.tokens || page.first_position + page.tokens > seen_by_all) {
        break;
      }
    }
    return shared;
  }
  static int64_t FirstRowEnd(const Unit& unit) {
    return int64_t{unit.item->positions[unit.row]} + 1;
  }

  static bool SameWalk(const Unit& a, const Unit& b) {
    return a.kv_head == b.kv_head && a.item->page_offset == b.item->page_offset &&
           a.item->first_leaf == b.item->first_leaf && a.item->leaves == b.item->leaves;
  }

  // Parties of at most so many rows, of neighbours in members_.
  void Form(int64_t most_rows) {
    parties_.clear();
    most_positions_ = 0;
    for (int32_t begin = 0; begin < std::ssize(members_);) {
      const Unit& first = units_[members_[begin]];
      Party party{begin, 1, 0};
      int64_t shared = first.pages.count;
      int positions = first.positions;
      while (begin + party.count < std::ssize(members_)) {
        const Unit& next = units_[members_[begin + party.count]];
        if (!SameWalk(first, next) || (positions + next.positions) * group_ > most_rows) break;
        const int64_t pages = CountShared(first, next, shared);
        if (pages < kLeastPages) break;
        shared = pages;
        positions += next.positions;
        ++party.count;
      }
      if (party.count > 1) {
        party.shared_pages = shared;
        most_positions_ = std::max(most_positions_, positions);
      }
      parties_.push_back(party);
      begin += party.count;
    }
  }

  int32_t LongestParty() const {
    int32_t longest = 1;
    for (const Party& party : parties_) longest = std::max(longest, party.count);
    return longest;
  }
  int64_t MostMemberRows() const {
    int64_t rows = 1;
    for (const int32_t i : members_) {
      rows = std::max(rows, int64_t{units_[i].positions} * group_);
    }
    return rows;
  }

  // Whether tasks of about the same length keep the threads busy for most of the time.
  static bool Balanced(int64_t tasks, int64_t threads) {
    const int64_t turns = (tasks + threads - 1) / threads;
    return tasks * 8 >= turns * threads * 7;
  }

  const AttentionUnits& units_;
  const int group_;
  const int few_rows_;
  std::vector<int32_t> members_;
  std::vector<Party> parties_;
  int most_positions_ = 0;
};

}  // namespace annulus::cpu

#endif  // ANNULUS_KERNELS_CPU_SIMD_ATTENTION_PARTIES_H_
