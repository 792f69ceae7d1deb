#include "engine/workers/worker_shelves.h"

#include <chrono>

#include "engine/base/try_to.h"
#include "engine/codec/status_message.h"
#include "kernels/base/guarded.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr std::chrono::milliseconds kSayAgainAfter{20};

}  // namespace

absl::StatusOr<std::unique_ptr<LocalShelves>> ShelvesOf(const RankSet& ranks, const RankSpan& span,
                                                        int32_t slots) {
  LocalShelves::Options options;
  options.first_rank = span.first;
  options.ranks = span.local;
  options.pages = ranks.pool(0).page_count();
  options.page_bytes = ranks.pool(0).geometry().stored_bytes();
  options.slots = slots;
  options.pieces = [&ranks, first = span.first](PageId id) {
    const KvPool& pool = ranks.pool(id.rank - first);
    PagePieces pieces;
    for (int layer = 0; layer < pool.geometry().layers_per_page; ++layer) {
      pieces.emplace_back(pool.LayerPage(id.page, layer), pool.geometry().layer_page_bytes);
    }
    return pieces;
  };
  return LocalShelves::Create(std::move(options));
}

WorkerShelves::WorkerShelves(std::unique_ptr<LocalShelves> shelves,
                             std::function<void(const wire::FromWorker&)> say)
    : shelves_(std::move(shelves)), say_(std::move(say)), thread_([this] { Loop(); }) {}

WorkerShelves::~WorkerShelves() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

absl::Status WorkerShelves::Take(const wire::CopyPage& message) {
  ANNULUS_ASSIGN_OR_RETURN(const PageCopy copy, FromMessage(message));
  const bool compares = copy.kind == wire::CopyPage::KIND_SAME;
  ANNULUS_RETURN_IF_ERROR(compares ? shelves_->Check(copy.page)
                                   : shelves_->Check(copy.page, copy.slot));
  if (compares) ANNULUS_RETURN_IF_ERROR(shelves_->Check(copy.other));
  {
    std::lock_guard lock(mutex_);
    if (waiting_.size() >= kMostCopies) return NotDue("more copies of pages than it may");
    waiting_.push_back({message.ticket(), copy});
  }
  changed_.notify_all();
  return absl::OkStatus();
}

absl::StatusOr<bool> WorkerShelves::Copy(const PageCopy& copy) const {
  bool same = false;
  const auto act = [&]() -> absl::Status {
    if (copy.kind == wire::CopyPage::KIND_SAVE) {
      return shelves_->Save(copy.page, copy.slot, copy.key);
    }
    if (copy.kind == wire::CopyPage::KIND_LOAD) {
      return shelves_->Load(copy.page, copy.slot, copy.key);
    }
    ANNULUS_ASSIGN_OR_RETURN(same, shelves_->Same(copy.page, copy.other));
    return absl::OkStatus();
  };
  const auto no_memory = [] { return absl::Status(absl::StatusCode::kResourceExhausted, ""); };
  ANNULUS_RETURN_IF_ERROR(Guarded(act, no_memory));
  return same;
}

void WorkerShelves::Say(uint64_t ticket, const absl::StatusOr<bool>& same) const {
  wire::FromWorker message;
  wire::PageCopied& copied = *message.mutable_copied();
  copied.set_ticket(ticket);
  copied.set_same(same.ok() && *same);
  if (!same.ok()) *copied.mutable_status() = codec::ToMessage(same.status());
  say_(message);
}

void WorkerShelves::Loop() {
  std::unique_lock lock(mutex_);
  while (true) {
    changed_.wait(lock, [this] { return stop_ || !waiting_.empty(); });
    if (stop_) return;
    const Waiting next = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    const absl::StatusOr<bool> same = Copy(next.copy);
    const auto say = [&] { Say(next.ticket, same); };
    bool said = TryTo(say);
    lock.lock();
    // The coordinator waits for the answer, so it is said once there is memory for it.
    while (!said && !changed_.wait_for(lock, kSayAgainAfter, [this] { return stop_; })) {
      lock.unlock();
      said = TryTo(say);
      lock.lock();
    }
  }
}

}  // namespace annulus
