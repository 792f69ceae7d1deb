#ifndef ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_
#define ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/base/clock.h"
#include "engine/memory/page_book.h"
#include "engine/tiers/page_lane.h"
#include "engine/tiers/page_store.h"

namespace annulus {

// Copies pages between memory and a store, or from another store to this one, on its own threads:
// one writes, the others read. Callers never wait for a disk or a device. Each thread has a lane,
// whose buffer holds one page, and touches pages in memory only through it.
//
// DropWrites and CancelReads give a caller its pages back, even if the disk hangs. If the host can
// access the pages, they are free at once. If a device is copying one, that must end first: see
// IsCopying. So it is with a store that copies pages itself (PageStore::beside_ranks), which needs
// no lane but for the size of a page.
//
// The rate of writes is limited. A page that is read is copied to its place only after it passed
// all checks; a refused page leaves its place untouched. If a copy fails, the store is turned off.
//
// All public calls must come from one thread.
class PageMover {
 public:
  struct Options {
    // [thread]: the first one writes, the others read. At least two, for pages of the same size;
    // must outlive the mover.
    std::vector<PageLane*> lanes;
    bool compares = false;              // whether Page::compare is used; takes one more buffer
    double write_bytes_per_second = 0;  // limit of the write rate; 0: none
    // Called after each job, and when IsCopying changes to false, on the mover's threads; must be
    // short.
    std::function<void()> wake;
    // What jobs are timed by and the rate is kept by; must outlive the mover.
    const Clock* clock = &Clock::Real();
  };
  static constexpr int kThreads = 3;  // the usual number of lanes
  // `store` must outlive the mover.
  PageMover(PageStore& store, Options options);
  // Waits for jobs under way and drops those that have not begun.
  ~PageMover();
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // Bytes of all buffers.
  int64_t buffer_bytes() const {
    return static_cast<int64_t>(options_.lanes.size() * page_bytes_ + compared_.size());
  }

  struct Page {
    uint64_t ticket = 0;
    PageMark mark;
    PagePieces pieces;
    int64_t use = 0;
    // Writes only: compare the page with the store's copy first. If they differ, the copy is
    // dropped and the page is written.
    bool compare = false;
    // Writes only: another store to read the page from, instead of `pieces`. Must outlive the
    // mover. Null: use `pieces`.
    PageStore* from = nullptr;
    PageId id{};  // its rank has the pieces
  };

  // If memory runs out, a call throws and changes nothing; no job is lost.
  //
  // The pieces must not change until TakeDone or DropWrites returns the ticket.
  void Write(Page page);
  // Drops the writes that have not begun and returns their tickets. The write under way goes on
  // with its own copy of the page, and TakeDone returns it. So the mover no longer reads the pieces
  // of any write, unless IsCopying.
  std::vector<uint64_t> DropWrites();

  // Removes the pages that PageStore::Distrust returned, in the background.
  void Remove(std::vector<EntryName> pages);

  // A group of reads that can be cancelled together. Batches with fewer pages are read first.
  struct Batch {
    uint64_t id = 0;
    int64_t pages = 0;
  };
  // The caller must not touch the pieces until TakeDone returns the ticket or the batch is
  // cancelled.
  void Read(Page page, Batch batch);
  // After the call, TakeDone returns no read of the batch, and the mover does not touch its pieces,
  // unless IsCopying.
  void CancelReads(uint64_t batch);

  // A page that a device is copying. Its pieces must stay as they are until that has ended.
  struct Copy {
    uint64_t ticket = 0;
    PageId id;
  };
  // The copies for reads of the batch, even if it was cancelled.
  std::vector<Copy> CopiesOf(uint64_t batch) const;
  // Whether there is a copy for the batch, with this ticket, or any. These calls allocate nothing.
  bool IsCopyingFor(uint64_t batch) const;
  bool IsCopying(uint64_t ticket) const;
  bool IsCopying() const;

  struct Done {
    uint64_t ticket = 0;
    bool read = false;
    uint64_t batch = 0;  // reads only
    absl::Status status;
    std::optional<double> coverage;  // reads only
    bool fresh = false;              // writes only: the page was not there before
    bool compared = false;           // writes only: compared with the store's copy
    double seconds = 0;
    // Reads only: for how long at least one read was under way since the previous read ended. The
    // sum over all reads is the wall-clock time that was spent on reading, however many threads
    // read.
    double busy_seconds = 0;
  };
  // Returns the jobs that have ended since the previous call.
  std::vector<Done> TakeDone();

  // Seconds since the oldest job under way began; 0 if none is under way.
  double OldestJob() const;

 private:
  struct ReadOrder {
    int64_t pages = 0;  // of the batch
    uint64_t batch = 0;
    uint64_t ticket = 0;
    friend auto operator<=>(const ReadOrder&, const ReadOrder&) = default;
  };
  struct UnderWay {
    SteadyTime begun;
    Copy page{};
    std::optional<uint64_t> batch{};  // reads only
    bool cancelled = false;           // the caller wants the pieces back
    bool copying = false;             // without the lock
  };

  void WriteLoop();
  void RemoveOne(std::unique_lock<std::mutex>& lock);
  // Calls `act(lane)`, which copies a page, for the thread, which has a job under way. Drops the
  // lock meanwhile unless the host can access the pages.
  template <typename Act>
  absl::Status CopyPage(size_t thread, std::unique_lock<std::mutex>& lock, const Act& act);
  // Calls `act`, during which the thread's job IsCopying, without the lock.
  template <typename Act>
  void LetCopy(size_t thread, std::unique_lock<std::mutex>& lock, const Act& act);
  Done Put(const Page& page);
  Done PutBeside(const Page& page);
  bool Compare(const Page& page);
  void ReadLoop(size_t thread);
  Done ReadOne(size_t thread, const Page& page, std::unique_lock<std::mutex>& lock);
  // Called after a job, without the lock. If it fails, the caller still finds the job at its next
  // TakeDone.
  void Wake();
  // These require the lock.
  size_t jobs() const { return writes_.size() + reads_.size() + under_way_.size(); }
  // Reserves a place in `done_` for one more job, so that threads allocate nothing when it ends.
  void MakePlace();
  double CountBusy(SteadyTime now);

  PageStore& store_;
  const Options options_;
  const size_t page_bytes_;
  // Made in advance, as making them allocates.
  const absl::Status no_memory_;
  const absl::Status off_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<Page> writes_;
  std::vector<EntryName> removals_;
  std::map<ReadOrder, Page> reads_;
  std::vector<std::optional<UnderWay>> under_way_;  // [thread]; thread 0 writes
  int reading_ = 0;                                 // number of threads that are reading
  SteadyTime busy_since_{};                         // if any is: end of the time counted so far
  std::vector<Done> done_;                          // has capacity for all jobs
  std::vector<std::byte> compared_;                 // what the store has; empty: compares nothing
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_
