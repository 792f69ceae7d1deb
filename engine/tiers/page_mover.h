#ifndef ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_
#define ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "engine/api.h"
#include "engine/tiers/disk_store.h"

namespace annulus {

// A page where it lies in memory, in pieces: [layer].
using PagePieces = std::vector<std::span<std::byte>>;

// Carries pages between memory and a store on threads of its own, so that nobody else ever waits
// for the disk. Writes are held to a rate. A page that is read arrives in its place only once it
// has been checked: until then, and where it is refused, the place is not touched.
//
// The pieces of a job must stay until TakeDone gives its ticket back or the mover has ended; those
// of a write must not change, those of a read nobody else may touch. Write, Read and TakeDone are
// of one thread.
class PageMover {
 public:
  struct Options {
    size_t page_bytes = 0;              // of every page, all pieces together
    int readers = 2;                    // threads, each with memory for one page
    double write_bytes_per_second = 0;  // 0: any
    std::function<void()> wake;         // after each job, from the mover's threads; short
  };
  // `store` must outlive the mover.
  PageMover(DiskStore& store, Options options);
  // Jobs under way are waited for, those that wait are dropped.
  ~PageMover();
  PageMover(const PageMover&) = delete;
  PageMover& operator=(const PageMover&) = delete;

  void Write(uint64_t ticket, PageMark mark, PagePieces pieces, int64_t use);
  void Read(uint64_t ticket, PageMark mark, PagePieces pieces, int64_t use);

  struct Done {
    uint64_t ticket = 0;
    bool read = false;
    absl::Status status;
    std::optional<double> coverage;  // of a page that was read
    double seconds = 0;
  };
  std::vector<Done> TakeDone();

  // Seconds since the oldest read under way began; 0: none is.
  double OldestRead() const;

 private:
  struct Job {
    uint64_t ticket = 0;
    PageMark mark;
    PagePieces pieces;
    int64_t use = 0;
  };
  void WriteLoop();
  void ReadLoop(size_t reader);
  // Waits for a job; nothing: the mover ends.
  std::optional<Job> Next(std::deque<Job>& jobs, std::optional<SteadyTime>* begun);
  void Finish(Done done, std::optional<SteadyTime>* begun);

  DiskStore& store_;
  const Options options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;
  std::deque<Job> writes_;
  std::deque<Job> reads_;
  std::vector<std::optional<SteadyTime>> begun_;  // [reader]
  std::vector<Done> done_;
  std::vector<std::thread> threads_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_PAGE_MOVER_H_
