#include "engine/tiers/disk_calls.h"

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

DiskCalls& DiskCalls::System() {
  static DiskCalls calls;
  return calls;
}

}  // namespace annulus
