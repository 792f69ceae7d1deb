#include "kernels/cuda/nccl/links.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/copy_many.h"
#include "kernels/cuda/cuda_event.h"

namespace annulus::cuda {
namespace {

// A stream of copies that ends with its owner, once it is idle; of a lost device, never.
class CopyStream {
 public:
  explicit CopyStream(std::shared_ptr<DeviceWaits> waits) : waits_(std::move(waits)) {}
  CopyStream(const CopyStream&) = delete;
  ~CopyStream() {
    if (handle_ == nullptr) return;
    Drain().IgnoreError();  // an error leaves nothing to wait for
    if (!waits_->is_lost()) CloseStream(handle_);
  }
  absl::Status Open(int ordinal) {
    ANNULUS_ASSIGN_OR_RETURN(handle_, OpenStream(ordinal));
    return absl::OkStatus();
  }
  absl::Status Drain() { return waits_->ForStream(handle_); }
  StreamHandle handle() const { return handle_; }

 private:
  const std::shared_ptr<DeviceWaits> waits_;
  StreamHandle handle_ = nullptr;
};

absl::Status AwaitAll(StreamHandle stream, std::span<const Event* const> events) {
  for (const Event* const event : events) {
    ANNULUS_RETURN_IF_ERROR(WaitForEvent(stream, HandleOf(*event)));
  }
  return absl::OkStatus();
}

// From memory to memory; the receiving device pulls.
class PeerLink final : public DeviceLink {
 public:
  PeerLink(int from, int to, std::shared_ptr<DeviceWaits> waits)
      : from_(from), to_(to), stream_(std::move(waits)) {}

  absl::Status Start() {
    ANNULUS_RETURN_IF_ERROR(EnableReach(to_, from_));
    return stream_.Open(to_);
  }

  absl::Status Copy(std::span<const DeviceCopy> copies, std::span<const Event* const> after,
                    Event& arrived) override {
    ANNULUS_RETURN_IF_ERROR(AwaitAll(stream_.handle(), after));
    ANNULUS_RETURN_IF_ERROR(CopyMany(stream_.handle(), to_, from_, copies));
    return RecordEvent(stream_.handle(), HandleOf(arrived));
  }

  absl::Status Drain() override { return stream_.Drain(); }

 private:
  const int from_;
  const int to_;
  CopyStream stream_;
};

// Through two pieces of pinned memory in turn: a stream of the sending device fills them, one of
// the receiving device empties them, and events keep each from running ahead of the other. Copies
// whose targets follow each other share a piece, which leaves it by one copy; so pages that do not
// lie side by side are packed on their way, without memory of a device.
class StagedLink final : public DeviceLink {
 public:
  StagedLink(int from, int to, std::shared_ptr<DeviceWaits> waits)
      : from_(from), to_(to), waits_(std::move(waits)), fill_(waits_), empty_(waits_) {}
  ~StagedLink() override {
    Drain().IgnoreError();  // the pieces must not go before the copies have ended
    for (const Piece& piece : pieces_) waits_->FreePinned(to_, piece.memory);
  }

  absl::Status Start() {
    ANNULUS_RETURN_IF_ERROR(fill_.Open(from_));
    ANNULUS_RETURN_IF_ERROR(empty_.Open(to_));
    for (Piece& piece : pieces_) {
      ANNULUS_ASSIGN_OR_RETURN(piece.memory, waits_->AllocatePinned(to_, kStageBytes));
      ANNULUS_ASSIGN_OR_RETURN(piece.filled, CudaEvent::Create(from_, false));
      ANNULUS_ASSIGN_OR_RETURN(piece.emptied, CudaEvent::Create(to_, false));
    }
    return absl::OkStatus();
  }

  absl::Status Copy(std::span<const DeviceCopy> copies, std::span<const Event* const> after,
                    Event& arrived) override {
    ANNULUS_RETURN_IF_ERROR(AwaitAll(fill_.handle(), after));
    ANNULUS_RETURN_IF_ERROR(AwaitAll(empty_.handle(), after));
    Load load;
    for (const DeviceCopy& copy : copies) {
      for (size_t begin = 0; begin < copy.bytes;) {
        std::byte* const to = copy.to + begin;
        if (!load.Continues(to)) {
          ANNULUS_RETURN_IF_ERROR(Pass(load));
          load = {to, 0, {}};
        }
        const auto offset = static_cast<size_t>(to - load.to);
        const size_t bytes = std::min(kStageBytes - offset, copy.bytes - begin);
        load.parts.push_back({to, copy.from + begin, bytes});
        load.bytes = offset + bytes;
        begin += bytes;
      }
    }
    ANNULUS_RETURN_IF_ERROR(Pass(load));
    return RecordEvent(empty_.handle(), HandleOf(arrived));
  }

  absl::Status Drain() override {
    if (fill_.handle() == nullptr || empty_.handle() == nullptr) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(fill_.Drain());
    return empty_.Drain();
  }

 private:
  struct Piece {
    std::byte* memory = nullptr;
    std::unique_ptr<CudaEvent> filled;
    std::unique_ptr<CudaEvent> emptied;
    bool used = false;
  };

  // What goes through a piece at a time.
  struct Load {
    std::byte* to = nullptr;
    size_t bytes = 0;
    std::vector<DeviceCopy> parts;

    // Whether what is copied to `next` belongs to it. Targets may come in any order.
    bool Continues(const std::byte* next) const {
      const size_t offset = reinterpret_cast<uintptr_t>(next) - reinterpret_cast<uintptr_t>(to);
      return !parts.empty() && offset >= bytes && offset - bytes < kPartAlignment &&
             offset < kStageBytes;
    }
  };

  absl::Status Pass(Load& load) {
    if (load.parts.empty()) return absl::OkStatus();
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    if (piece.used) {
      ANNULUS_RETURN_IF_ERROR(WaitForEvent(fill_.handle(), piece.emptied->handle()));
    }
    piece.used = true;
    for (DeviceCopy& part : load.parts) part.to = piece.memory + (part.to - load.to);
    ANNULUS_RETURN_IF_ERROR(CopyMany(fill_.handle(), from_, from_, load.parts));
    ANNULUS_RETURN_IF_ERROR(RecordEvent(fill_.handle(), piece.filled->handle()));
    ANNULUS_RETURN_IF_ERROR(WaitForEvent(empty_.handle(), piece.filled->handle()));
    ANNULUS_RETURN_IF_ERROR(CopyAsync(empty_.handle(), load.to, piece.memory, load.bytes));
    return RecordEvent(empty_.handle(), piece.emptied->handle());
  }

  const int from_;
  const int to_;
  const std::shared_ptr<DeviceWaits> waits_;
  CopyStream fill_;
  CopyStream empty_;
  std::array<Piece, 2> pieces_;
  size_t next_ = 0;
};

template <class Link>
absl::StatusOr<std::unique_ptr<DeviceLink>> Started(int from, int to,
                                                    std::shared_ptr<DeviceWaits> waits) {
  if (waits->is_lost()) return waits->lost();
  auto link = std::make_unique<Link>(from, to, std::move(waits));
  ANNULUS_RETURN_IF_ERROR(link->Start());
  return link;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceLink>> OpenDeviceLink(const DeviceInfo& from,
                                                           const DeviceInfo& to, LinkKind kind,
                                                           std::shared_ptr<DeviceWaits> waits) {
  if (kind == LinkKind::kStaged) {
    return Started<StagedLink>(from.ordinal, to.ordinal, std::move(waits));
  }
  ANNULUS_ASSIGN_OR_RETURN(const bool can, CanReach(to.ordinal, from.ordinal));
  if (!can) {
    return absl::FailedPreconditionError(absl::StrCat(
        "GPU ", to.ordinal, " (", to.name, ") does not reach memory of GPU ", from.ordinal, " (",
        from.name, "): check nvidia-smi topo -m, or set --ring-transport to auto, staged or nccl"));
  }
  return Started<PeerLink>(from.ordinal, to.ordinal, std::move(waits));
}

}  // namespace annulus::cuda
