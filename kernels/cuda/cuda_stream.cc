#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus::cuda {
namespace {

constexpr size_t kFirstUploadBytes = size_t{1} << 20;

size_t Rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(const DeviceInfo& device,
                                                               std::shared_ptr<DeviceWaits> waits,
                                                               bool with_library) {
  if (waits->is_lost()) return waits->lost();
  std::unique_ptr<CudaStream> stream(new CudaStream(device, std::move(waits)));
  ANNULUS_ASSIGN_OR_RETURN(stream->handle_, OpenStream(device.ordinal));
  ANNULUS_ASSIGN_OR_RETURN(stream->mark_, CudaEvent::Create(device.ordinal, /*timed=*/false));
  if (with_library) {
    ANNULUS_ASSIGN_OR_RETURN(stream->products_, OpenProducts());
  }
  ANNULUS_RETURN_IF_ERROR(stream->Grow(kFirstUploadBytes));
  return stream;
}

// Launches of a step while they are held.
class CudaStream::Held final : public StepGraph {
 public:
  explicit Held(CudaStream& stream) : stream_(stream) {}
  ~Held() override {
    if (!launched_) stream_.DropHeld();
  }
  Held(const Held&) = delete;

  absl::Status Launch() override {
    ANNULUS_CHECK(!launched_) << "a graph that was launched already";
    launched_ = true;
    return stream_.LaunchHeld();
  }

 private:
  CudaStream& stream_;
  bool launched_ = false;
};

CudaStream::~CudaStream() {
  // Nothing may be freed that enqueued work still uses. An error leaves nothing to wait for, but
  // that of a device which is lost: it keeps all.
  if (handle_ != nullptr) waits_->ForStream(handle_).IgnoreError();
  waits_->FreePinned(device_.ordinal, pinned_);
  waits_->FreeDevice(device_.ordinal, uploaded_);
  waits_->FreeDevice(device_.ordinal, scratch_);
  if (waits_->is_lost()) {
    replay_.Leave();
    static_cast<void>(products_.release());
    return;
  }
  CloseStream(handle_);
}

absl::Status CudaStream::Grow(size_t bytes) {
  waits_->FreePinned(device_.ordinal, pinned_);
  waits_->FreeDevice(device_.ordinal, uploaded_);
  pinned_ = uploaded_ = nullptr;
  upload_bytes_ = used_ = sent_ = 0;
  ANNULUS_ASSIGN_OR_RETURN(pinned_, waits_->AllocatePinned(device_.ordinal, bytes));
  ANNULUS_ASSIGN_OR_RETURN(uploaded_, waits_->AllocateDevice(device_.ordinal, bytes));
  upload_bytes_ = bytes;
  workspace_bytes_ = upload_bytes_ + scratch_bytes_;
  return absl::OkStatus();
}

absl::Status CudaStream::BeginWork() { return holding() ? absl::OkStatus() : CountWork(); }

// The mark is set anew once it has been reached, so it is at most two marks ago; until then as much
// as lies between two of them is queued, and the device is not idle.
absl::Status CudaStream::CountWork() {
  if (++since_mark_ < kOpsAhead / 2) return absl::OkStatus();
  since_mark_ = 0;
  ANNULUS_RETURN_IF_ERROR(waits_->ForEvent(mark_->handle()));
  return RecordEvent(handle_, mark_->handle());
}

absl::Status CudaStream::Synchronize() {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kWait));
  return waits_->ForStream(own);
}

absl::Status CudaStream::Record(Event& event) {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kEvent));
  return RecordEvent(own, HandleOf(event));
}

absl::Status CudaStream::Await(const Event& event) {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kEvent));
  return WaitForEvent(own, HandleOf(event));
}

// With nothing held it goes out at once: alone it would be a piece, and a cut.
absl::Status CudaStream::Mark(Event& event) {
  if (!holding() || replay_.log().empty()) return RecordEvent(handle_, HandleOf(event));
  replay_.log().AddEvent(HandleOf(event));
  return absl::OkStatus();
}

// The backend's own memory is never pageable.
absl::StatusOr<bool> CudaStream::IsPageable(const void* memory) const {
  if (waits_->Holds(memory)) return false;
  return cuda::IsPageable(memory);
}

// CUDA waits for the stream where memory is pageable; this wait ends.
absl::Status CudaStream::Copy(void* destination, const void* source, size_t bytes) {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kCopy));
  ANNULUS_ASSIGN_OR_RETURN(const bool to_pageable, IsPageable(destination));
  ANNULUS_ASSIGN_OR_RETURN(const bool from_pageable, IsPageable(source));
  if (to_pageable || from_pageable) ANNULUS_RETURN_IF_ERROR(waits_->ForStream(own));
  return CopyAsync(own, destination, source, bytes);
}

// Nothing of the upload area may be in use when it is filled anew.
absl::StatusOr<std::unique_ptr<StepGraph>> CudaStream::BeginGraph() {
  ANNULUS_CHECK(!holding()) << "a graph inside of another";
  ANNULUS_RETURN_IF_ERROR(waits_->ForStream(handle_));
  used_ = sent_ = 0;
  replay_.Begin();
  handle_->held = &replay_.log();
  return std::make_unique<Held>(*this);
}

absl::StatusOr<StreamHandle> CudaStream::HandOver(GraphCut cut) {
  if (!holding()) return handle_;
  if (!replay_.log().empty()) replay_.CountCut(cut);
  ANNULUS_RETURN_IF_ERROR(SendHeld());
  return handle_;
}

absl::Status CudaStream::SendHeld() {
  LaunchLog* const log = std::exchange(handle_->held, nullptr);
  absl::Status status = SendUpload();
  handle_->held = log;
  if (status.ok()) status = replay_.HandOver(handle_);
  replay_.log().Clear();
  if (status.ok()) status = CountWork();
  return status;
}

absl::Status CudaStream::LaunchHeld() {
  const absl::Status status = SendHeld();
  handle_->held = nullptr;
  if (status.ok()) replay_.End();
  return status;
}

// Arrays that were not sent belong to launches that will not be.
void CudaStream::DropHeld() {
  handle_->held = nullptr;
  replay_.log().Clear();
  used_ = sent_;
}

// Once what is held has gone out and is done, memory that it uses may go.
absl::Status CudaStream::WaitForMemory() {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kMemory));
  return waits_->ForStream(own);
}

absl::Status CudaStream::BeginUpload(size_t bytes) {
  ANNULUS_CHECK(sent_ == used_ || holding()) << "an upload that was not sent";
  if (used_ + bytes <= upload_bytes_) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(WaitForMemory());
  used_ = sent_ = 0;
  // Steps whose arrays fit as a whole are not cut.
  if (bytes <= upload_bytes_ && !holding()) return absl::OkStatus();
  return Grow(Rounded(std::max(bytes, 2 * upload_bytes_), kUploadAlignment));
}

const std::byte* CudaStream::UploadBytes(const void* source, size_t bytes) {
  used_ = Rounded(used_, kUploadAlignment);
  ANNULUS_CHECK(used_ + bytes <= upload_bytes_) << "an upload beyond what was begun";
  if (bytes > 0) std::memcpy(pinned_ + used_, source, bytes);
  const std::byte* const address = uploaded_ + used_;
  used_ += bytes;
  return address;
}

absl::Status CudaStream::SendUpload() {
  if (used_ == sent_ || holding()) return absl::OkStatus();
  const size_t begin = sent_;
  sent_ = used_;
  return CopyAsync(handle_, uploaded_ + begin, pinned_ + begin, used_ - begin);
}

absl::StatusOr<std::byte*> CudaStream::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    ANNULUS_RETURN_IF_ERROR(WaitForMemory());
    waits_->FreeDevice(device_.ordinal, scratch_);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    ANNULUS_ASSIGN_OR_RETURN(scratch_, waits_->AllocateDevice(device_.ordinal, bytes));
    scratch_bytes_ = bytes;
    workspace_bytes_ = upload_bytes_ + scratch_bytes_;
  }
  return scratch_;
}

}  // namespace annulus::cuda
