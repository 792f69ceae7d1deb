#ifndef ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_
#define ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/backend.h"
#include "kernels/cuda/cuda_event.h"
#include "kernels/cuda/device_waits.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/replay.h"
#include "kernels/cuda/runtime.h"
#include "kernels/cuda/tuning/workspace_plan.h"

namespace annulus::cuda {

// A queue of one device. Ops enqueue and return; host arrays of their Params are free then, because
// they travel through a pinned area that the stream owns. Used by one thread at a time.
//
// While a graph holds launches back, the area fills from its beginning, so that arrays of steps
// that are alike lie at the same addresses; they travel by one copy when the launches go out.
class CudaStream final : public Stream {
 public:
  // `with_library`: products of many rows are left to a library.
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

  // Before the launches and copies of each op, about five at most. Waits, as DeviceWaits does,
  // where the device is kOpsAhead ops behind.
  absl::Status BeginWork();
  static constexpr int kOpsAhead = 128;

  // For launches, which may be held back. Everything else needs what HandOver returns.
  StreamHandle handle() const { return handle_; }
  // Hands over what is held, if anything is; then work of the kind that `cut` names may be
  // enqueued.
  absl::StatusOr<StreamHandle> HandOver(GraphCut cut);
  // Backend::Copy.
  absl::Status Copy(void* destination, const void* source, size_t bytes);
  const DeviceInfo& device() const { return device_; }
  Products* products() const { return products_.get(); }  // null: without a library

  // Makes room for arrays of together `bytes`, 64 more for each; before the first Upload of an op.
  // Waits for the stream where the area is full. The area grows where that does not do; one that
  // was planned does so for a single op alone, and steps that it does not hold as a whole are cut.
  absl::Status BeginUpload(size_t bytes);
  // Puts an array into the area; its device address, valid for kernels enqueued before the next
  // BeginUpload, once SendUpload has been called.
  template <class T>
  const T* Upload(std::span<const T> values) {
    return reinterpret_cast<const T*>(UploadBytes(values.data(), values.size_bytes()));
  }
  // Enqueues the copy of everything since BeginUpload, or leaves it to be sent with what is held.
  absl::Status SendUpload();
  // BeginUpload, Upload, SendUpload of one array.
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

  // Device workspace of at least `bytes`, kept and reused; its contents are those of earlier ops.
  // Waits for the stream where it must grow. Where it cannot it is what was planned.
  absl::StatusOr<std::byte*> Scratch(size_t bytes);
  // Where this has changed, the scratch is another.
  size_t scratch_bytes() const { return scratch_.bytes; }

 private:
  class Held;

  CudaStream(const DeviceInfo& device, std::shared_ptr<DeviceWaits> waits)
      : device_(device), waits_(std::move(waits)), replay_(device.ordinal) {}
  absl::Status CountWork();
  absl::Status SendHeld();
  absl::Status WaitForMemory();
  absl::Status LaunchHeld();
  void DropHeld();
  bool holding() const { return handle_->held != nullptr; }
  const std::byte* UploadBytes(const void* source, size_t bytes);
  absl::Status Grow(size_t bytes);
  void CountWorkspace();
  absl::StatusOr<bool> IsPageable(const void* memory) const;

  const DeviceInfo device_;
  const std::shared_ptr<DeviceWaits> waits_;
  StreamHandle handle_ = nullptr;
  std::unique_ptr<CudaEvent> mark_;  // behind the op before the last `since_mark_`
  int since_mark_ = 0;
  Replay replay_;
  std::unique_ptr<Products> products_;
  // Uploads, as long on the device; scratch has no `pinned`. Memory of a device that was planned is
  // not the stream's own.
  struct Area {
    std::byte* data = nullptr;
    std::byte* pinned = nullptr;
    size_t bytes = 0;
  };
  Area planned_uploads_;
  Area own_uploads_;
  Area uploads_;  // of the two the one in use
  size_t used_ = 0;
  size_t sent_ = 0;
  Area planned_scratch_;
  Area own_scratch_;
  Area scratch_;
  std::atomic<size_t> workspace_bytes_{0};  // of the device, both together
};

// Every stream of this backend is one.
inline CudaStream& AsCudaStream(Stream& stream) { return static_cast<CudaStream&>(stream); }

// What every op begins with: its device becomes that of the calling thread, which launches there.
inline absl::StatusOr<CudaStream*> BeginWork(Stream& stream) {
  CudaStream& own = AsCudaStream(stream);
  if (absl::Status status = UseDevice(own.device().ordinal); !status.ok()) return status;
  if (absl::Status status = own.BeginWork(); !status.ok()) return status;
  return &own;
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_CUDA_STREAM_H_
