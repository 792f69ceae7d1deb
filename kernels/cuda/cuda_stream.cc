#include "kernels/cuda/cuda_stream.h"

#include <algorithm>
#include <cstring>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus::cuda {
namespace {

constexpr size_t kFirstUploadBytes = size_t{1} << 20;

size_t Rounded(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

absl::StatusOr<std::unique_ptr<CudaStream>> CudaStream::Create(const DeviceInfo& device,
                                                               bool with_library) {
  std::unique_ptr<CudaStream> stream(new CudaStream(device));
  ANNULUS_ASSIGN_OR_RETURN(stream->handle_, OpenStream(device.ordinal));
  if (with_library) {
    ANNULUS_ASSIGN_OR_RETURN(stream->products_, OpenProducts());
  }
  ANNULUS_RETURN_IF_ERROR(stream->Grow(kFirstUploadBytes));
  return stream;
}

CudaStream::~CudaStream() {
  // Nothing may be freed that enqueued work still uses. An error leaves nothing to wait for.
  if (handle_ != nullptr) WaitFor(handle_).IgnoreError();
  FreePinned(pinned_);
  FreeDevice(device_.ordinal, uploaded_);
  FreeDevice(device_.ordinal, scratch_);
  CloseStream(handle_);
}

absl::Status CudaStream::Grow(size_t bytes) {
  FreePinned(pinned_);
  FreeDevice(device_.ordinal, uploaded_);
  pinned_ = uploaded_ = nullptr;
  upload_bytes_ = used_ = sent_ = 0;
  ANNULUS_ASSIGN_OR_RETURN(pinned_, AllocatePinned(bytes));
  ANNULUS_ASSIGN_OR_RETURN(uploaded_, AllocateDevice(device_.ordinal, bytes));
  upload_bytes_ = bytes;
  workspace_bytes_ = upload_bytes_ + scratch_bytes_;
  return absl::OkStatus();
}

absl::Status CudaStream::BeginUpload(size_t bytes) {
  ANNULUS_CHECK(sent_ == used_) << "an upload that was not sent";
  if (used_ + bytes <= upload_bytes_) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(WaitFor(handle_));
  used_ = sent_ = 0;
  if (bytes <= upload_bytes_) return absl::OkStatus();
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
  if (used_ == sent_) return absl::OkStatus();
  const size_t begin = sent_;
  sent_ = used_;
  return CopyAsync(handle_, uploaded_ + begin, pinned_ + begin, used_ - begin);
}

absl::StatusOr<std::byte*> CudaStream::Scratch(size_t bytes) {
  if (bytes > scratch_bytes_) {
    ANNULUS_RETURN_IF_ERROR(WaitFor(handle_));
    FreeDevice(device_.ordinal, scratch_);
    scratch_ = nullptr;
    scratch_bytes_ = 0;
    ANNULUS_ASSIGN_OR_RETURN(scratch_, AllocateDevice(device_.ordinal, bytes));
    scratch_bytes_ = bytes;
    workspace_bytes_ = upload_bytes_ + scratch_bytes_;
  }
  return scratch_;
}

}  // namespace annulus::cuda
