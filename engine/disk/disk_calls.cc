#include "engine/disk/disk_calls.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

namespace annulus {

int DiskCalls::Open(int folder, const std::string& name, int flags, mode_t mode) {
  return ::openat(folder, name.c_str(), flags, mode);
}

ssize_t DiskCalls::Write(int file, const void* bytes, size_t count, int64_t offset) {
  return ::pwrite(file, bytes, count, offset);
}

ssize_t DiskCalls::Read(int file, void* bytes, size_t count, int64_t offset) {
  return ::pread(file, bytes, count, offset);
}

int DiskCalls::Remove(int folder, const std::string& name) {
  return ::unlinkat(folder, name.c_str(), 0);
}

int DiskCalls::Rename(int folder, const std::string& from, const std::string& to) {
  return ::renameat(folder, from.c_str(), folder, to.c_str());
}

int DiskCalls::Sync(int file) { return ::fsync(file); }

int DiskCalls::WriteAll(int file, std::span<const std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t written = Write(file, bytes.data(), bytes.size(), offset);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return written == 0 ? ENOSPC : errno;
    bytes = bytes.subspan(static_cast<size_t>(written));
    offset += written;
  }
  return 0;
}

int DiskCalls::ReadAll(int file, std::span<std::byte> bytes, int64_t offset) {
  while (!bytes.empty()) {
    const ssize_t read = Read(file, bytes.data(), bytes.size(), offset);
    if (read < 0 && errno == EINTR) continue;
    if (read <= 0) return read == 0 ? ENODATA : errno;
    bytes = bytes.subspan(static_cast<size_t>(read));
    offset += read;
  }
  return 0;
}

DiskCalls& DiskCalls::System() {
  static DiskCalls calls;
  return calls;
}

}  // namespace annulus
