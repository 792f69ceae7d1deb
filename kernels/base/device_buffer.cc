#include "kernels/base/device_buffer.h"

namespace annulus {

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  if (this != &other) {
    Reset();
    data_ = std::exchange(other.data_, nullptr);
    bytes_ = std::exchange(other.bytes_, 0);
    device_ = other.device_;
    release_ = std::exchange(other.release_, nullptr);
  }
  return *this;
}

void DeviceBuffer::Reset() {
  if (data_ != nullptr) release_(data_);
  data_ = nullptr;
  bytes_ = 0;
  release_ = nullptr;
}

}  // namespace annulus
