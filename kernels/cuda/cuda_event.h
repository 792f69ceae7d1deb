#ifndef ANNULUS_KERNELS_CUDA_CUDA_EVENT_H_
#define ANNULUS_KERNELS_CUDA_CUDA_EVENT_H_

#include <memory>

#include "absl/status/statusor.h"
#include "kernels/base/status_macros.h"
#include "kernels/cuda/runtime.h"
#include "kernels/device_link.h"

namespace annulus::cuda {

// An event of one device. Every Event passed to this backend is a CudaEvent.
class CudaEvent final : public Event {
 public:
  static absl::StatusOr<std::unique_ptr<CudaEvent>> Create(int ordinal, bool timed) {
    ANNULUS_ASSIGN_OR_RETURN(const EventHandle handle, OpenEvent(ordinal, timed));
    return std::unique_ptr<CudaEvent>(new CudaEvent(handle));
  }
  ~CudaEvent() override { CloseEvent(handle_); }
  CudaEvent(const CudaEvent&) = delete;

  EventHandle handle() const { return handle_; }

 private:
  explicit CudaEvent(EventHandle handle) : handle_(handle) {}

  const EventHandle handle_;
};

inline EventHandle HandleOf(const Event& event) {
  return static_cast<const CudaEvent&>(event).handle();
}

}  // namespace annulus::cuda

#endif  // ANNULUS_KERNELS_CUDA_CUDA_EVENT_H_
