#ifndef ANNULUS_KERNELS_BASE_DEVICE_BUFFER_H_
#define ANNULUS_KERNELS_BASE_DEVICE_BUFFER_H_

#include <cstddef>
#include <functional>
#include <utility>

namespace annulus {

// Owner of one allocation of a backend's memory. Movable, not copyable; freed by the destructor.
// `data()` is a device address: readable on the host only where the backend says so
// (BackendCapabilities::host_accessible). Not thread-safe; the bytes themselves are not guarded.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  // `device`: see device().
  DeviceBuffer(std::byte* data, size_t bytes, std::function<void(std::byte*)> release,
               int device = 0)
      : data_(data), bytes_(bytes), device_(device), release_(std::move(release)) {}
  DeviceBuffer(DeviceBuffer&& other) noexcept { *this = std::move(other); }
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;
  ~DeviceBuffer() { Reset(); }

  // Frees the memory now; the buffer is then empty.
  void Reset();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // Which device the memory is of, by the number that its backend has for it; 0: the only one.
  int device() const { return device_; }

  template <typename T>
  T* as() {
    return reinterpret_cast<T*>(data_);
  }
  template <typename T>
  const T* as() const {
    return reinterpret_cast<const T*>(data_);
  }

 private:
  std::byte* data_ = nullptr;
  size_t bytes_ = 0;
  int device_ = 0;
  std::function<void(std::byte*)> release_;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DEVICE_BUFFER_H_
