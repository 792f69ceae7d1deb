#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/error.h"

namespace annulus::cuda {
namespace {

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
  // that of a device which is lost: it keeps all. An op that is still kept
  // back is dropped: nobody has waited for it.
  if (handle_ != nullptr) waits_->ForStream(handle_).IgnoreError();
  waits_->FreePinned(device_.ordinal, planned_uploads_.pinned);
  waits_->FreePinned(device_.ordinal, own_uploads_.pinned);
  waits_->FreeDevice(device_.ordinal, own_uploads_.data);
  waits_->FreeDevice(device_.ordinal, own_scratch_.data);
  if (waits_->is_lost()) {
    replay_.Leave();
    static_cast<void>(products_.release());
    return;
  }
  CloseStream(handle_);
}

absl::Status CudaStream::UseWorkspace(std::byte* memory, const WorkspaceBytes& planned) {
  ANNULUS_CHECK(uploads_.bytes == 0 && scratch_.bytes == 0) << "workspace for ops that have begun";
  ANNULUS_CHECK(reinterpret_cast<uintptr_t>(memory) % 256 == 0) << "workspace that is not aligned";
  if (planned.uploads > 0) {
    ANNULUS_ASSIGN_OR_RETURN(planned_uploads_.pinned,
                             waits_->AllocatePinned(device_.ordinal, planned.uploads));
  }
  planned_scratch_ = {memory, nullptr, planned.scratch};
  planned_uploads_.data = memory + planned.scratch;
  planned_uploads_.bytes = planned.uploads;
  scratch_ = planned_scratch_;
  uploads_ = planned_uploads_;
  CountWorkspace();
  return absl::OkStatus();
}

void CudaStream::CountWorkspace() {
  workspace_bytes_ =
      planned_uploads_.bytes + own_uploads_.bytes + planned_scratch_.bytes + own_scratch_.bytes;
}

void CudaStream::FillAnew() {
  used_ = sent_ = 0;
  ++upload_turn_;
}

absl::Status CudaStream::Grow(size_t bytes) {
  waits_->FreePinned(device_.ordinal, own_uploads_.pinned);
  waits_->FreeDevice(device_.ordinal, own_uploads_.data);
  own_uploads_ = {};
  uploads_ = planned_uploads_;
  FillAnew();
  CountWorkspace();
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const data, waits_->AllocateDevice(device_.ordinal, bytes));
  own_uploads_.data = data;
  ANNULUS_ASSIGN_OR_RETURN(own_uploads_.pinned, waits_->AllocatePinned(device_.ordinal, bytes));
  own_uploads_.bytes = bytes;
  uploads_ = own_uploads_;
  CountWorkspace();
  return absl::OkStatus();
}

absl::Status CudaStream::BeginWork() {
  ANNULUS_RETURN_IF_ERROR(LaunchRows());
  return holding() ? absl::OkStatus() : CountWork();
}

std::optional<RowsOp> CudaStream::TakeRows(const ConstMatrixView& rows) {
  if (!kept_rows_.has_value()) return std::nullopt;
  const MatrixView output = kept_rows_->output();
  const bool same = output.data == rows.data && output.rows == rows.rows &&
                    output.cols == rows.cols && output.stride == rows.stride;
  return same ? std::exchange(kept_rows_, std::nullopt) : std::nullopt;
}

absl::Status CudaStream::LaunchRows() {
  if (!kept_rows_.has_value()) return absl::OkStatus();
  const RowsOp op = *std::exchange(kept_rows_, std::nullopt);
  ANNULUS_RETURN_IF_ERROR(UseDevice(device_.ordinal));
  return StatusOf(LaunchRowsOp(handle_, op), op.is_norm() ? "norm" : "gated_mul");
}

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
  ANNULUS_RETURN_IF_ERROR(LaunchRows());
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
  ANNULUS_RETURN_IF_ERROR(LaunchRows());
  ANNULUS_RETURN_IF_ERROR(waits_->ForStream(handle_));
  FillAnew();
  if (uploads_.bytes == 0) ANNULUS_RETURN_IF_ERROR(Grow(kLeastUploads));
  replay_.Begin();
  handle_->held = &replay_.log();
  return std::make_unique<Held>(*this);
}

absl::StatusOr<StreamHandle> CudaStream::HandOver(GraphCut cut) {
  ANNULUS_RETURN_IF_ERROR(LaunchRows());
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
  absl::Status status = LaunchRows();
  if (status.ok()) status = SendHeld();
  handle_->held = nullptr;
  if (status.ok()) replay_.End();
  return status;
}

// Arrays that were not sent belong to launches that will not be.
void CudaStream::DropHeld() {
  kept_rows_.reset();
  handle_->held = nullptr;
  replay_.log().Clear();
  used_ = sent_;
  ++upload_turn_;
}

// Once what is held has gone out and is done, memory that it uses may go.
absl::Status CudaStream::WaitForMemory() {
  ANNULUS_ASSIGN_OR_RETURN(const StreamHandle own, HandOver(GraphCut::kMemory));
  return waits_->ForStream(own);
}

absl::Status CudaStream::BeginUpload(size_t bytes) {
  ANNULUS_CHECK(sent_ == used_ || holding()) << "an upload that was not sent";
  if (used_ + bytes <= uploads_.bytes) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(WaitForMemory());
  FillAnew();
  // Without a plan the area becomes large enough for steps as a whole, which are then not cut.
  const bool planned = planned_uploads_.bytes > 0;
  if (bytes <= uploads_.bytes && (planned || !holding())) return absl::OkStatus();
  const size_t least = planned ? 0 : std::max(kLeastUploads, 2 * uploads_.bytes);
  return Grow(Rounded(std::max(bytes, least), kUploadAlignment));
}

const std::byte* CudaStream::UploadBytes(const void* source, size_t bytes) {
  used_ = Rounded(used_, kUploadAlignment);
  ANNULUS_CHECK(used_ + bytes <= uploads_.bytes) << "an upload beyond what was begun";
  if (bytes > 0) std::memcpy(uploads_.pinned + used_, source, bytes);
  const std::byte* const address = uploads_.data + used_;
  used_ += bytes;
  return address;
}

absl::Status CudaStream::SendUpload() {
  if (used_ == sent_ || holding()) return absl::OkStatus();
  const size_t begin = sent_;
  sent_ = used_;
  absl::Status status =
      CopyAsync(handle_, uploads_.data + begin, uploads_.pinned + begin, used_ - begin);
  if (!status.ok()) ++upload_turn_;
  return status;
}

absl::StatusOr<std::byte*> CudaStream::Scratch(size_t bytes) {
  if (bytes <= scratch_.bytes) return scratch_.data;
  ANNULUS_RETURN_IF_ERROR(WaitForMemory());
  waits_->FreeDevice(device_.ordinal, own_scratch_.data);
  own_scratch_ = {};
  scratch_ = planned_scratch_;
  CountWorkspace();
  ANNULUS_ASSIGN_OR_RETURN(own_scratch_.data, waits_->AllocateDevice(device_.ordinal, bytes));
  own_scratch_.bytes = bytes;
  scratch_ = own_scratch_;
  CountWorkspace();
  return scratch_.data;
}

}  // namespace annulus::cuda
