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

#include "engine/base/steady_time.h"
#include "engine/tiers/page_store.h"

namespace annulus {

// A page where it lies in memory, in pieces: [layer].
using PagePieces = std::vector<std::span<std::byte>>;

// Carries pages between memory and a store on threads of its own, and from another store to this
// one, so that nobody else ever waits for a disk. Each thread reads and writes in a buffer of its
// own and touches a page in memory only to copy it, with the lock held. So a caller gets its pages
// back at once, whatever the disk does: CancelReads and DropWrites never wait for it.
//
// The rate of writes is limited. A page that is read is copied to its place only once it has been
// checked: until then, and if it is refused, the place is not touched.
//
// All public calls are of one thread.
class PageMover {
 public:
  struct Options {
    size_t page_bytes = 0;              // of every page, all pieces together
    int readers = 2;                    // threads
    bool compares = false;              // pages may be compared: one more buffer
    double write_bytes_per_second = 0;  // 0: any
    std::function<void()> wake;         // after each job, from the mover's threads; short
  };
  // `store` must outlive the mover.
  PageMover(PageStore& store, Options options);
  // Jobs under way are waited for, those that wait are dropped.
  ~PageMover();
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  // The bytes of a page's buffers here: each thread has one, and comparing takes one.
  int64_t buffer_bytes() const {
    return static_cast<int64_t>(buffers_.size() * options_.page_bytes);
  }

  struct Page {
    uint64_t ticket = 0;
    PageMark mark;
    PagePieces pieces;
    int64_t use = 0;
    // Of a write: what the store has of the page is compared with it. If it differs, it goes, and
    // this is written.
    bool compare = false;
    // Of a write: another store that has the page, which is read there and not from `pieces`; must
    // outlive the mover. Null: none.
    PageStore* from = nullptr;
  };

  // Without memory for it, a call throws, and nothing has changed; no job is lost.
  //
  // The pieces must stay as they are until TakeDone or DropWrites returns the ticket.
  void Write(Page page);
  // Drops the writes that have not begun, and returns their tickets. The pieces of the one under
  // way are not needed any more either; TakeDone returns it when it has ended.
  std::vector<uint64_t> DropWrites();

  // Has files removed that the store has told of: PageStore::Distrust.
  void Remove(std::vector<EntryName> pages);

  // Reads of one batch belong together. Batches with fewer pages go first.
  struct Batch {
    uint64_t id = 0;
    int64_t pages = 0;
  };
  // Nobody else may touch the pieces until TakeDone returns the ticket or the batch is cancelled.
  void Read(Page page, Batch batch);
  // TakeDone will return nothing of the batch any more, and its pieces are not touched again.
  void CancelReads(uint64_t batch);

  struct Done {
    uint64_t ticket = 0;
    bool read = false;
    uint64_t batch = 0;  // of a read
    absl::Status status;
    std::optional<double> coverage;  // of a page that was read
    bool fresh = false;              // of a page that was written: it was not there before
    bool compared = false;           // of a page that was written: with what the store had
    double seconds = 0;
    // Of a read: for how long any read was under way since the end of the read before. These add up
    // to the wall-clock time of reading, however many threads read and wait.
    double busy_seconds = 0;
  };
  std::vector<Done> TakeDone();

  // Seconds since the oldest job under way began; 0: none is.
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
    std::optional<uint64_t> batch;  // of a read
    bool cancelled = false;
  };

  void WriteLoop();
  void RemoveOne(std::unique_lock<std::mutex>& lock);
  Done Put(const Page& page);
  bool Compare(const Page& page);
  void ReadLoop(size_t thread);
  // After a job, without the lock. A caller that it does not reach finds the job all the same.
  void Wake();
  // All with the lock held.
  size_t jobs() const { return writes_.size() + reads_.size() + under_way_.size(); }
  // Reserves a place in `done_` for one more job, so that no thread needs memory when a job ends.
  void MakePlace();
  double CountBusy(SteadyTime now);

  PageStore& store_;
  const Options options_;
  const absl::Status no_memory_;  // made when there is some
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<Page> writes_;
  std::vector<EntryName> removals_;
  std::map<ReadOrder, Page> reads_;
  std::vector<std::optional<UnderWay>> under_way_;  // [thread]; the first writes
  int reading_ = 0;                                 // threads that read just now
  SteadyTime busy_since_{};                         // while any does: counted up to then
  std::vector<Done> done_;                          // with places for all jobs
  std::vector<std::vector<std::byte>> buffers_;     // [thread], and one to compare with
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_
