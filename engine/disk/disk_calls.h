#ifndef ANNULUS_ENGINE_DISK_DISK_CALLS_H_
#define ANNULUS_ENGINE_DISK_DISK_CALLS_H_

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace annulus {

// The system calls for files in a PrivateFolder, virtual so that tests can make them fail or end
// the process in them. Each behaves like the system call: it returns -1 and sets errno if it fails.
// Thread-safe.
class DiskCalls {
 public:
  virtual ~DiskCalls() = default;
  // Opens a file in `folder`.
  virtual int Open(int folder, const std::string& name, int flags, mode_t mode);
  virtual ssize_t Write(int file, const void* bytes, size_t count, int64_t offset);
  virtual ssize_t Read(int file, void* bytes, size_t count, int64_t offset);
  virtual int Remove(int folder, const std::string& name);
  // Renames a file within `folder`.
  virtual int Rename(int folder, const std::string& from, const std::string& to);
  // Waits until the file, or the names in the folder, survive a power failure.
  virtual int Sync(int file);

  // Write and Read until all bytes are moved. Return 0 or the errno of the call that failed:
  // ENOSPC if the disk takes no more bytes, ENODATA if the file ends before them.
  int WriteAll(int file, std::span<const std::byte> bytes, int64_t offset);
  int ReadAll(int file, std::span<std::byte> bytes, int64_t offset);

  static DiskCalls& System();
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_DISK_DISK_CALLS_H_
