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
#include "engine/tiers/page_lane.h"

namespace annulus {

// Compares pages of the ranks' memory bit for bit: in place if the host can access them. Otherwise
// a thread of the comparer's own copies them to the host, so that no device keeps the caller for
// longer than it allows.
class PageComparer {
 public:
  // As for PageLane::Open.
  static absl::StatusOr<std::unique_ptr<PageComparer>> Open(std::span<Backend* const> devices,
                                                            size_t page_bytes);
  // Waits for a copy under way.
  ~PageComparer();
  PageComparer(const PageComparer&) = delete;
  PageComparer& operator=(const PageComparer&) = delete;

  struct Place {
    int rank = 0;
    PagePieces pieces;
  };
  // Whether two complete pages have the same bytes. Errors: DEADLINE_EXCEEDED if the copies take
  // longer than `most`, then and in all later calls; otherwise those of the copies. After an error,
  // the pages may still be read for a while; they need not stay as they are for that.
  //
  // One thread at a time.
  absl::StatusOr<bool> Same(Place one, Place other, std::chrono::milliseconds most);

  // Bytes of all buffers.
  int64_t buffer_bytes() const {
    return one_ == nullptr ? 0 : 2 * static_cast<int64_t>(one_->buffer().size());
  }

 private:
  PageComparer() = default;

  struct Pair {
    Place one;
    Place other;
  };
  absl::StatusOr<bool> CopyAndCompare(const Pair& pair);
  void Loop();

  std::unique_ptr<PageLane> one_;  // null: the host can access the pages
  std::unique_ptr<PageLane> other_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  absl::Status late_;         // not OK once a call ran out of time
  std::optional<Pair> pair_;  // to be compared
  std::optional<absl::StatusOr<bool>> same_;
  std::thread thread_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_COMPARER_H_
