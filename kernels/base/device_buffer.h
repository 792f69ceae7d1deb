#ifndef ANNULUS_KERNELS_BASE_DEVICE_BUFFER_H_
#define ANNULUS_KERNELS_BASE_DEVICE_BUFFER_H_

#include <cstddef>
#include <functional>
#include <utility>

namespace annulus {

// Owns one allocation of a backend's memory. Movable, not copyable; the destructor frees it.
// `data()` is a device address: the host may read it only if the backend says so
// (BackendCapabilities::host_accessible). Not thread-safe, and does not guard the bytes themselves.
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

  // Frees the memory now and leaves the buffer empty.
  void Reset();

  std::byte* data() { return data_; }
  const std::byte* data() const { return data_; }
  size_t size() const { return bytes_; }
  // The device that owns the memory, as its backend numbers devices; 0 if there is only one.
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
