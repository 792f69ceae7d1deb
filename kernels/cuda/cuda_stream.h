#ifndef ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_
#define ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/kept_attention.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/replay.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/sm80/rows/rows_op.h"
#include "kernels/cuda/tuning/workspace_plan.h"

namespace annulus::cuda {

// A queue of one device. Ops enqueue their work and return. Host arrays in their Params may then be
// freed, because ops copy them to a pinned area that the stream owns (uploads). Used by one thread
// at a time.
//
// While a graph holds launches back, the area is filled from its start, so that similar steps have
// their arrays at the same addresses. One copy sends all of them when the launches go out.
class CudaStream final : public Stream {
 public:
  // `with_library`: whether to leave products of many rows to cuBLASLt.
  static absl::StatusOr<std::unique_ptr<CudaStream>> Create(const DeviceInfo& device,
                                                            std::shared_ptr<DeviceWaits> waits,
                                                            bool with_library);
  ~CudaStream() override;

  absl::Status Synchronize() override;
  absl::Status Record(Event& event) override;
  absl::Status Await(const Event& event) override;
  absl::Status Mark(Event& event) override;
  absl::StatusOr<std::unique_ptr<StepGraph>> BeginGraph() override;
  GraphCounts graph_counts() const override { return replay_.counts(); }
  absl::Status UseWorkspace(std::byte* memory, const WorkspaceBytes& planned) override;
  size_t workspace_bytes() const override { return workspace_bytes_; }

  // Call it before the launches and copies of each op (about five at most). If the device is
  // kOpsAhead ops behind, it blocks as DeviceWaits does.
  absl::Status BeginWork();
  static constexpr int kOpsAhead = 128;

  // For launches only; they may be held back. All other work needs the handle that HandOver
  // returns.
  StreamHandle handle() const { return handle_; }
  // Hands over what is held, if anything, and counts a cut of the given kind. Returns the handle
  // for work that must come after it.
  absl::StatusOr<StreamHandle> HandOver(GraphCut cut);
  // Implements Backend::Copy.
  absl::Status Copy(void* destination, const void* source, size_t bytes);
  const DeviceInfo& device() const { return device_; }
  Products* products() const { return products_.get(); }  // null: without a library

  // Makes room for arrays of `bytes` in total, counting kUploadAlignment more for each. Call it
  // before the first Upload of an op. If the area is full, waits for the stream. If the area is
  // still too small, it grows. An area that was planned grows only for a single op that needs more;
  // a held step that does not fit is cut instead.
  absl::Status BeginUpload(size_t bytes);
  // Puts an array into the area and returns its device address. The address is valid for kernels
  // that are enqueued after SendUpload and before upload_turn() changes.
  template <class T>
  const T* Upload(std::span<const T> values) {
    return reinterpret_cast<const T*>(UploadBytes(values.data(), values.size_bytes()));
  }
  // Enqueues the copy of everything uploaded since BeginUpload. While launches are held, leaves it
  // to be sent with them.
  absl::Status SendUpload();
  // BeginUpload, Upload and SendUpload of one array.
  template <class T>
  absl::StatusOr<const T*> UploadOne(std::span<const T> values) {
    if (absl::Status status = BeginUpload(values.size_bytes() + kUploadAlignment); !status.ok()) {
      return status;
    }
    const T* const address = Upload(values);
    if (absl::Status status = SendUpload(); !status.ok()) return status;
    return address;
  }
  static constexpr size_t kUploadAlignment = cuda::kUploadAlignment;
  // Changes when the area is filled anew, moves, or loses arrays that were not sent.
  uint64_t upload_turn() const { return upload_turn_; }
  // Issues an op, after BeginWork, but keeps it back until the next op. That one may take it before
  // its own BeginWork, if it reads just the op's output, and must then launch it; everything else
  // that the stream is given launches it first. So the order of work does not change.
  void KeepRows(const RowsOp& op) { kept_rows_ = op; }
  // The op that is kept back, if its output is `rows`.
  std::optional<RowsOp> TakeRows(const ConstMatrixView& rows);
  KeptAttention& kept_attention() { return kept_attention_; }

  // Device workspace of at least `bytes`, kept and reused by all ops; holds whatever earlier ops
  // left there. If it must grow, waits for the stream; if it cannot, the stream keeps just the
  // planned workspace.
  absl::StatusOr<std::byte*> Scratch(size_t bytes);
  // If this value changes, Scratch has moved.
  size_t scratch_bytes() const { return scratch_.bytes; }

 private:
  class Held;

  CudaStream(const DeviceInfo& device, std::shared_ptr<DeviceWaits> waits)
      : device_(device), waits_(std::move(waits)), replay_(device.ordinal) {}
  absl::Status CountWork();
  absl::Status LaunchRows();
  absl::Status SendHeld();
  absl::Status WaitForMemory();
  absl::Status LaunchHeld();
  void DropHeld();
  bool holding() const { return handle_->held != nullptr; }
  const std::byte* UploadBytes(const void* source, size_t bytes);
  absl::Status Grow(size_t bytes);
  void FillAnew();
  void CountWorkspace();
  absl::StatusOr<bool> IsPageable(const void* memory) const;

  const DeviceInfo device_;
  const std::shared_ptr<DeviceWaits> waits_;
  StreamHandle handle_ = nullptr;
  std::unique_ptr<CudaEvent> mark_;  // recorded before the last `since_mark_` ops
  int since_mark_ = 0;
  Replay replay_;
  std::unique_ptr<Products> products_;
  // An area for uploads (pinned host memory and as much device memory) or for scratch (no
  // `pinned`). The stream does not own planned device memory.
  struct Area {
    std::byte* data = nullptr;
    std::byte* pinned = nullptr;
    size_t bytes = 0;
  };
  Area planned_uploads_;
  Area own_uploads_;
  Area uploads_;  // the one in use: planned or own
  size_t used_ = 0;
  size_t sent_ = 0;
  uint64_t upload_turn_ = 0;
  KeptAttention kept_attention_;
  std::optional<RowsOp> kept_rows_;
  Area planned_scratch_;
  Area own_scratch_;
  Area scratch_;
  std::atomic<size_t> workspace_bytes_{0};  // on the device, uploads and scratch together
};

// The CudaStream behind the stream that an op of this backend receives.
inline CudaStream& AsCudaStream(Stream& stream) { return static_cast<CudaStream&>(stream); }

// Every op begins with this: makes the stream's device the calling thread's, so that launches go
// there.
inline absl::StatusOr<CudaStream*> BeginWork(Stream& stream) {
  CudaStream& own = AsCudaStream(stream);
  if (absl::Status status = UseDevice(own.device().ordinal); !status.ok()) return status;
  if (absl::Status status = own.BeginWork(); !status.ok()) return status;
  return &own;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_
