#ifndef ANNULUS_ENGINE_PAGES_PROMPT_SAVER_H_
#define ANNULUS_ENGINE_PAGES_PROMPT_SAVER_H_

#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "engine/api/options.h"
#include "engine/base/clock.h"
#include "engine/pages/page_levels.h"
#include "engine/pages/page_marks.h"
#include "engine/pages/page_writes.h"
#include "engine/pages/prefix_reuse.h"
#include "engine/request/request.h"
#include "engine/scheduler/save_pace.h"
#include "engine/tiers/document_set.h"

namespace annulus {

// Offers the pages of prompts that are being computed to the levels, each as soon as it is
// complete, and says when a prompt must not get further ahead of the disk. What becomes of an
// offered page: see PageWrites. Used by the coordinator's thread alone.
class PromptSaver {
 public:
  // What the saver works with. All of it must outlive the saver.
  struct Parts {
    const PlanLimits& limits;
    const PageMarks& marks;
    const Clock& clock;
    PageBook& book;
    PrefixReuse& prefixes;
    PageLevels& levels;
    PageWrites& writes;
  };
  // `compares`: newly computed pages that a level has already are compared with its copies
  // (KvVerify::kAll).
  PromptSaver(bool compares, const Parts& parts) : compares_(compares), use_(parts) {}

  // Offers the complete pages of a prompt. Call after each step. `checkpoints`: prefix lengths
  // whose window pages have just been made known: see PrefixReuse::Keep. Tries again at the next
  // call if memory runs out.
  void Offer(const Sequence& sequence, Request& request, const std::vector<int32_t>& checkpoints);

  // Whether the prompt's next chunk must wait until the disk has earlier ones: see SavePace. Always
  // false if there is no disk, or it is off.
  bool HoldsBack(RequestId id);
  // When the first wait ends that HoldsBack has begun since the last call of BeginTurn.
  SteadyTime held_until() const { return held_until_; }
  void BeginTurn() { held_until_ = SteadyTime::max(); }

  // Call when the request has ended or was preempted.
  void Forget(RequestId id) { offered_.erase(id); }
  // Forgets all prompts: all levels are off.
  void ForgetAll() { offered_.clear(); }

  // Heap bytes of bookkeeping.
  int64_t bytes() const;

 private:
  struct PlacedKey {
    PageKey key;
    int32_t first_position = 0;
  };
  // A checkpoint at the end of a chunk, for models with windows. It keeps the window pages cached
  // until they are written, so that the prompt can continue from there after a restart. Then it is
  // dropped, and the pages return to the sequence's reserve. A sequence has at most one at a time,
  // since only that much more is reserved (PlanLimits::passing_checkpoints).
  struct Passing {
    struct Lent {
      int group = 0;
      PrefixPage page;
    };
    std::vector<Lent> lent;  // window pages not yet back in the reserve; empty: no checkpoint
    ContentHash end{};       // PrefixIndex::Mark::digest
    bool is_known = false;   // the prefix index has the checkpoint because of this
    bool is_stuck = false;   // all pages are written, but others use some of them
    // Window pages in the levels that no other checkpoint needs. `written`: those of the latest
    // passing checkpoint. `stale`: those of earlier ones, dropped once the latest is written.
    std::vector<PlacedKey> written;
    std::vector<PageKey> stale;
  };
  // How far the prompt of a running request was offered.
  struct Offered {
    bool never = false;      // its pages are never offered: see OfferNow
    int32_t tokens = 0;      // pages of full groups were offered up to here
    int64_t use = 0;         // PageStore::NextUse, one for all its pages
    PrefixIndex::Mark kept;  // of the longest prefix that the saver has made known
    int32_t saved = 0;       // no page below this position waits to be written
    int32_t reached = 0;     // models with windows: the end of the last chunk
    SavePace pace;
    Passing passing;
    PageMark last;                   // of the page that ends at `tokens`
    std::vector<ContentHash> chain;  // [page] up to `tokens`
    // For each document of the prompt, ascending: its first position, and the set of all documents
    // that begin no later.
    std::vector<std::pair<int32_t, DocumentSet>> documents;

    // The key of an offered page.
    PageKey KeyAt(int group, int32_t first, int32_t page_tokens) const {
      return {chain[first / page_tokens], group};
    }
  };

  void OfferNow(const Sequence& sequence, Request& request,
                const std::vector<int32_t>& checkpoints);
  // Models with windows: offers the end of a chunk, by a passing checkpoint.
  void OfferChunk(const Sequence& sequence, Request& request, Offered& state);
  // Whether one of the request's own checkpoints, up to `computed`, needs the group's window page
  // that begins at `first`.
  bool IsAtCheckpoint(const RequestSpec& spec, int32_t computed, int group, int32_t first) const;
  // Updates Passing::written and stale after a passing checkpoint at `length` was offered.
  void NoteWritten(const RequestSpec& spec, int32_t length, Offered& state) const;
  // Drops stale pages from the levels if the disk has the latest passing checkpoint.
  void DropStale(Offered& state);
  // Drops the passing checkpoint if its pages are written. Returns whether there is none now.
  bool EndPassing(const Sequence& sequence, const RequestSpec& spec, Offered& state);
  // Returns a page of a dropped checkpoint to the sequence's reserve, unless it is still in a page
  // table. False if others use the page, so the reserve still lacks it.
  bool TakeBack(const Sequence& sequence, const RequestSpec& spec, const Passing::Lent& lent);
  void OfferPages(const Sequence& sequence, const Request& request, int32_t length, Offered& state);
  void OfferPage(const Sequence& sequence, const Request& request, int group, PageMark mark,
                 const Offered& state);
  PageLevels::Counts TenantBytes(const TenantRoom& room) const;
  // Whether a page of any group waits to be written, or is being written.
  bool WaitsToBeWritten(const ContentHash& chain) const;

  const bool compares_;
  const Parts use_;
  std::map<RequestId, Offered> offered_;
  SteadyTime held_until_ = SteadyTime::max();
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PROMPT_SAVER_H_
