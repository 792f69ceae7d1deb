#ifndef ANNULUS_ENGINE_TIERS_PAGE_COMPARER_H_
#define ANNULUS_ENGINE_TIERS_PAGE_COMPARER_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <thread>

#include "absl/status/statusor.h"
#include "engine/base/clock.h"
#include "engine/tiers/page_lane.h"
#include "engine/tiers/rank_shelves.h"

namespace annulus {

// Compares pages in the ranks' memory bit for bit. If the host can access them, it does so in
// place. Otherwise the comparer's own thread copies them to the host, or has the processes of their
// ranks compare them, so that a hanging device or process cannot hold up the caller.
class PageComparer {
 public:
  // `devices`, `page_bytes` and errors: as for PageLane::Open. `clock`, the clock of Same's time
  // limit, must outlive the comparer.
  static absl::StatusOr<std::unique_ptr<PageComparer>> Open(std::span<Backend* const> devices,
                                                            size_t page_bytes,
                                                            const Clock& clock = Clock::Real());
  // For pages of ranks in any process, which are compared where they are: both must be of one rank.
  // `shelves` and `clock` must outlive the comparer.
  static std::unique_ptr<PageComparer> Beside(RankShelves& shelves, const Clock& clock);
  // Waits for a copy under way.
  ~PageComparer();
  PageComparer(const PageComparer&) = delete;
  PageComparer& operator=(const PageComparer&) = delete;

  // Where a page is.
  struct Place {
    int rank = 0;
    PagePieces pieces;
    int32_t page = 0;  // used if the pieces are not
  };
  // Whether two complete pages have the same bytes. Blocks for `most` at longest. Errors:
  // DEADLINE_EXCEEDED if the copies take longer, and at once in later calls until they have ended;
  // otherwise those of PageLane::CopyOut, or of RankShelves::Same. After an error the comparer may
  // still read the pages for a while, but the caller may change them. Not thread-safe.
  absl::StatusOr<bool> Same(Place one, Place other, std::chrono::milliseconds most);

  // Bytes of all buffers.
  int64_t buffer_bytes() const {
    return one_ == nullptr ? 0 : 2 * static_cast<int64_t>(one_->buffer().size());
  }

 private:
  explicit PageComparer(const Clock& clock) : clock_(clock) {}

  struct Pair {
    Place one;
    Place other;
  };
  absl::StatusOr<bool> CopyAndCompare(const Pair& pair);
  void Loop();

  const Clock& clock_;
  RankShelves* shelves_ = nullptr;  // null: all pages are of this process
  std::unique_ptr<PageLane> one_;   // null: the host can access the pages, or shelves_ is not null
  std::unique_ptr<PageLane> other_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::optional<Pair> pair_;  // to be compared
  bool busy_ = false;         // the thread compares a pair, whether or not Same still waits for it
  std::optional<absl::StatusOr<bool>> same_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_COMPARER_H_
