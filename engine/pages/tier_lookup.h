#ifndef ANNULUS_ENGINE_PAGES_TIER_LOOKUP_H_
#define ANNULUS_ENGINE_PAGES_TIER_LOOKUP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/api/request.h"
#include "engine/memory/page_book.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/page_marks.h"
#include "engine/scheduler/placement.h"

namespace annulus {

// A beginning of a prompt that the levels have.
struct SavedBeginning {
  int32_t tokens = 0;                         // whole pages; 0: nothing
  std::optional<AttentionAssignment> policy;  // that its pages were computed under; absent: dense
  int64_t rope_length = 0;
  std::vector<PageMark> marks;  // [page] with group 0
  // The only ring to which it can be read, because pages are kept beside their ranks; empty: any.
  std::vector<int32_t> ring;
};

// Numbers of tokens by tier.
struct TokensByTier {
  int64_t host = 0;
  int64_t disk = 0;
  int64_t all() const { return host + disk; }
};

// Says what the levels have of a prompt. Changes nothing. Used by the coordinator's thread alone.
class TierLookup {
 public:
  struct Options {
    // HashOf of other identities, under which the levels may have pages of earlier daemons.
    std::vector<ContentHash> other_identities;
    bool others_are_used = true;  // false: HasUnderAnotherIdentity always returns false
  };
  // The references must outlive the object.
  TierLookup(Options options, const PageMarks& marks, const PageLevels& levels,
             const PlanLimits& limits, const PageBook& book)
      : options_(std::move(options)),
        marks_(marks),
        levels_(levels),
        limits_(limits),
        book_(book) {}

  // Returns the longest beginning of the prompt that the levels have, dense or under `policy`
  // (null: dense). Never includes the prompt's last token, except for RequestSpec::prefill_only.
  // `rope`: PrefixReuse::RopeLengthOf.
  SavedBeginning Find(const RequestSpec& spec, const AttentionAssignment* policy,
                      int64_t rope) const;
  // Whether the levels have the prompt's page after its first `known` tokens, a whole number of
  // pages, and all before it, under another identity: so another model, build or setting wrote
  // them. Looks for dense pages and those of `policy`. Never includes the prompt's last token.
  // Hashes no page after the first one that is missing, and no more than 16,384: false beyond.
  bool HasUnderAnotherIdentity(const RequestSpec& spec, const AttentionAssignment* policy,
                               int64_t rope, int32_t known) const;
  // The tiers that the beginning would be read from. If a position's groups are in several, the
  // slowest counts.
  TokensByTier Where(const SavedBeginning& beginning) const;
  // Adds up levels of the same tier. `tokens`: [level].
  TokensByTier ByTier(const PageLevels::Counts& tokens) const;
  // [level] How many pages a restore of the beginning's tokens from `from` on reads there.
  PageLevels::Counts CountPages(const SavedBeginning& beginning, int32_t from) const;
  // The most tokens of the beginning that a restore may leave to memory. For these, memory needs
  // the pages of full groups only. The rest includes all window pages that the row after the
  // beginning sees, and at least one page of every group; all of them are read.
  int32_t MostBefore(const SavedBeginning& beginning) const;

 private:
  // Whether the levels have the page of every group that has a window, or of every other group.
  bool HasPage(const ContentHash& chain, bool windows) const;
  int32_t LengthWithWindows(const std::vector<PageMark>& marks) const;
  // If pages are kept beside their ranks: cuts the beginning where the ring ends that has most of
  // it, and says which that is.
  void CutToRing(SavedBeginning& beginning) const;
  // A bit for each rank beside which the levels have the page of every group without a window; of
  // every group of which they have it, if all have one.
  uint64_t RanksWith(const ContentHash& chain) const;
  // A bit for each rank that PageBook::is_usable; they are at most 64.
  uint64_t UsableRanks() const;

  const Options options_;
  const PageMarks& marks_;
  const PageLevels& levels_;
  const PlanLimits& limits_;
  const PageBook& book_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_TIER_LOOKUP_H_
