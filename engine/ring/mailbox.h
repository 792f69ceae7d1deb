#ifndef ANNULUS_ENGINE_RING_MAILBOX_H_
#define ANNULUS_ENGINE_RING_MAILBOX_H_

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "engine/base/clock.h"
#include "kernels/base/check.h"

namespace annulus {

// Mail between ranks that are threads of one process: what they have sent and not yet received, in
// order for each pair. Thread-safe; each rank must take its own mail on one thread.
template <class Letter>
class Mailboxes {
 public:
  // `clock` must outlive the mail; deadlines are its times.
  Mailboxes(int ranks, const Clock& clock) : clock_(clock) {
    for (int rank = 0; rank < ranks; ++rank) {
      boxes_.push_back(std::make_unique<Box>());
      boxes_.back()->from.resize(static_cast<size_t>(ranks));
      for (auto& letters : boxes_.back()->from) letters.reserve(kUsualLetters);
    }
  }

  int ranks() const { return static_cast<int>(boxes_.size()); }

  absl::Status Put(int from, int to, Letter letter) {
    Box& box = *boxes_[to];
    {
      std::lock_guard lock(box.mutex);
      if (!box.aborted.ok()) return box.aborted;
      box.from[from].push_back(std::move(letter));
    }
    box.arrived.notify_one();
    return absl::OkStatus();
  }

  // Waits for the first letter from `from` to `to` and returns a copy; it stays in the box until
  // Pop. DEADLINE_EXCEEDED names both ranks.
  absl::StatusOr<Letter> Peek(int to, int from, SteadyTime deadline) {
    Box& box = *boxes_[to];
    std::unique_lock lock(box.mutex);
    const bool ready = clock_.WaitUntil(
        deadline, lock, box.arrived, [&] { return !box.aborted.ok() || !box.from[from].empty(); });
    if (!ready) {
      return absl::DeadlineExceededError(
          absl::StrCat("rank ", to, " waited too long for rank ", from));
    }
    if (!box.aborted.ok()) return box.aborted;
    return box.from[from].front();
  }

  Letter Pop(int to, int from) {
    Box& box = *boxes_[to];
    std::lock_guard lock(box.mutex);
    std::vector<Letter>& letters = box.from[from];
    Letter letter = std::move(letters.front());
    letters.erase(letters.begin());
    return letter;
  }

  absl::Status aborted(int rank) const {
    std::lock_guard lock(boxes_[rank]->mutex);
    return boxes_[rank]->aborted;
  }

  // Makes every call of every rank return `status` until Reset. The first status wins.
  void Abort(const absl::Status& status) {
    ANNULUS_CHECK(!status.ok()) << "an abort needs its reason";
    for (const auto& box : boxes_) {
      {
        std::lock_guard lock(box->mutex);
        if (box->aborted.ok()) box->aborted = status;
      }
      box->arrived.notify_all();
    }
  }

  void Reset() {
    for (const auto& box : boxes_) {
      std::lock_guard lock(box->mutex);
      for (auto& letters : box->from) letters.clear();
      box->aborted = absl::OkStatus();
    }
  }

 private:
  // More than one rank sends another in a layer.
  static constexpr size_t kUsualLetters = 16;

  struct Box {
    mutable std::mutex mutex;
    std::condition_variable arrived;
    // [sender] in their order. Few wait at a time, and unlike a deque a vector keeps its memory.
    std::vector<std::vector<Letter>> from;
    absl::Status aborted;
  };

  const Clock& clock_;
  std::vector<std::unique_ptr<Box>> boxes_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RING_MAILBOX_H_
