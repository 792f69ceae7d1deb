#include "kernels/cuda/nccl/communicator.h"

#include <mutex>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/copy_many.h"
#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/nccl/nccl.h"
#include "kernels/cuda/nccl/round_groups.h"
#include "kernels/cuda/runtime.h"

namespace annulus::cuda {
namespace {

// Polling interval: short compared with a message.
constexpr std::chrono::microseconds kLook{20};

absl::Status TooLate(int rank, absl::string_view what) {
  return absl::DeadlineExceededError(
      absl::StrCat("rank ", rank, " waited too long for its peers ", what));
}

// Calls of NCCL about one communicator come one at a time: the mutex is held for each alone, never
// while something is waited for, so that Abort comes in between.
class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Nccl> nccl, std::shared_ptr<DeviceWaits> waits,
                   NcclHandle handle, int rank, int ranks, int ordinal)
      : nccl_(std::move(nccl)),
        waits_(std::move(waits)),
        rank_(rank),
        ranks_(ranks),
        ordinal_(ordinal),
        handle_(handle) {}
  ~NcclCommunicator() override {
    Abort();  // nothing is under way at a good end; and a bad one must not wait for peers
    if (stream_ == nullptr) return;
    waits_->ForStream(stream_).IgnoreError();
    if (!waits_->is_lost()) CloseStream(stream_);
  }

  absl::Status Start(Deadline deadline) {
    ANNULUS_RETURN_IF_ERROR(Settle(deadline, "to open the group"));
    ANNULUS_ASSIGN_OR_RETURN(stream_, OpenStream(ordinal_));
    return absl::OkStatus();
  }

  // Groups and their sources use one stream, so the area is free when the next group is assembled.
  absl::Status Exchange(std::span<const Message> sends, std::span<const Message> receives,
                        std::span<std::byte> area, const Event& after, Event& done,
                        Deadline deadline) override {
    ANNULUS_ASSIGN_OR_RETURN(const std::vector<RoundGroup> groups,
                             CutRound(sends, receives, area, rank_, ranks_));
    ANNULUS_RETURN_IF_ERROR(UseDevice(ordinal_));
    ANNULUS_RETURN_IF_ERROR(WaitForEvent(stream_, HandleOf(after)));
    for (const RoundGroup& group : groups) {
      ANNULUS_RETURN_IF_ERROR(CopyMany(stream_, ordinal_, ordinal_, group.packs));
      ANNULUS_RETURN_IF_ERROR(Enqueue(group));
      ANNULUS_RETURN_IF_ERROR(Settle(deadline, "to take up an exchange"));
    }
    return RecordEvent(stream_, HandleOf(done));
  }

  absl::StatusOr<bool> Ended(const Event& done) override {
    ANNULUS_RETURN_IF_ERROR(Settled().status());
    return EventReached(HandleOf(done));
  }

  // Frees the library's resources, which may wait for a kernel that never ends: without the mutex,
  // because no other thread has the handle any more.
  void Abort() override {
    const NcclHandle handle = TakeHandle();
    if (handle == nullptr) return;
    const auto abort = [nccl = nccl_, handle] {
      nccl->Abort(handle);
      return absl::OkStatus();
    };
    waits_->Call("ending an exchange", abort).IgnoreError();
  }

 private:
  NcclHandle TakeHandle() {
    std::lock_guard lock(mutex_);
    return std::exchange(handle_, nullptr);
  }

  absl::Status Enqueue(const RoundGroup& group) {
    std::lock_guard lock(mutex_);
    if (handle_ == nullptr) return Aborted();
    return nccl_->Exchange(handle_, stream_, group.sends, group.receives);
  }

  absl::Status Aborted() const {
    return absl::AbortedError(absl::StrCat("the exchange of rank ", rank_, " was ended"));
  }

  absl::StatusOr<bool> Settled() {
    std::lock_guard lock(mutex_);
    if (handle_ == nullptr) return Aborted();
    return nccl_->Settled(handle_);
  }

  absl::Status Settle(Deadline deadline, absl::string_view what) {
    while (true) {
      ANNULUS_ASSIGN_OR_RETURN(const bool settled, Settled());
      if (settled) return absl::OkStatus();
      if (std::chrono::steady_clock::now() >= deadline) return TooLate(rank_, what);
      std::this_thread::sleep_for(kLook);
    }
  }

  const std::shared_ptr<Nccl> nccl_;
  const std::shared_ptr<DeviceWaits> waits_;
  const int rank_;
  const int ranks_;
  const int ordinal_;
  StreamHandle stream_ = nullptr;
  std::mutex mutex_;
  NcclHandle handle_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace

absl::StatusOr<std::vector<std::unique_ptr<Communicator>>> OpenNcclGroup(
    std::span<const int> ordinals, std::chrono::milliseconds timeout,
    std::shared_ptr<DeviceWaits> waits) {
  if (waits->is_lost()) return waits->lost();
  const Communicator::Deadline deadline = std::chrono::steady_clock::now() + timeout;
  ANNULUS_ASSIGN_OR_RETURN(std::shared_ptr<Nccl> nccl, OpenNccl());
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<NcclHandle> handles, nccl->Begin(ordinals));
  std::vector<std::unique_ptr<Communicator>> members;
  std::vector<NcclCommunicator*> started;
  for (size_t rank = 0; rank < handles.size(); ++rank) {
    auto member =
        std::make_unique<NcclCommunicator>(nccl, waits, handles[rank], static_cast<int>(rank),
                                           static_cast<int>(handles.size()), ordinals[rank]);
    started.push_back(member.get());
    members.push_back(std::move(member));
  }
  for (NcclCommunicator* const member : started) ANNULUS_RETURN_IF_ERROR(member->Start(deadline));
  return members;
}

}  // namespace annulus::cuda
