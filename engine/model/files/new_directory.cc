#include "engine/model/files/new_directory.h"

#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

absl::Status Taken(const std::string& path) {
  return absl::AlreadyExistsError(
      absl::StrCat(path, " exists and is not overwritten; give a new name, or remove it first"));
}

absl::Status DiskError(const std::string& path, const char* what, int error) {
  const std::string message = absl::StrCat(path, ": cannot ", what, ": ", strerror(error));
  if (error == ENOSPC || error == EDQUOT) return absl::ResourceExhaustedError(message);
  return absl::DataLossError(message);
}

absl::Status SyncDirectory(const std::string& path) {
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) return DiskError(path, "open", errno);
  const int failed = fsync(descriptor) == 0 ? 0 : errno;
  close(descriptor);
  return failed == 0 ? absl::OkStatus() : DiskError(path, "sync", failed);
}

}  // namespace

NewFile::~NewFile() { close(descriptor_); }

absl::Status NewFile::Append(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t wrote = write(descriptor_, bytes.data(), bytes.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) return DiskError(path_, "write", errno);
    bytes = bytes.subspan(static_cast<size_t>(wrote));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Append(absl::string_view text) {
  return Append(std::as_bytes(std::span(text.data(), text.size())));
}

absl::Status NewFile::Sync() {
  return fsync(descriptor_) == 0 ? absl::OkStatus() : DiskError(path_, "sync", errno);
}

absl::StatusOr<std::unique_ptr<NewDirectory>> NewDirectory::Create(const std::string& path) {
  struct stat status {};
  if (lstat(path.c_str(), &status) == 0) return Taken(path);
  const std::string partial = absl::StrCat(path, ".partial-", getpid());
  if (mkdir(partial.c_str(), 0755) != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(partial, ": cannot make this directory: ", strerror(errno)));
  }
  return std::unique_ptr<NewDirectory>(new NewDirectory(path, partial));
}

NewDirectory::~NewDirectory() {
  if (committed_) return;
  std::error_code ignored;
  std::filesystem::remove_all(partial_, ignored);
}

absl::StatusOr<std::unique_ptr<NewFile>> NewDirectory::CreateFile(const std::string& name) {
  std::string path = absl::StrCat(partial_, "/", name);
  const int descriptor =
      open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
  if (descriptor < 0) return DiskError(path, "create", errno);
  return std::unique_ptr<NewFile>(new NewFile(descriptor, std::move(path)));
}

absl::Status NewDirectory::CreateFolder(const std::string& name) {
  const std::string path = absl::StrCat(partial_, "/", name);
  return mkdir(path.c_str(), 0755) == 0 ? absl::OkStatus() : DiskError(path, "create", errno);
}

absl::Status NewDirectory::Commit() {
  absl::Status synced = SyncDirectory(partial_);
  if (!synced.ok()) return synced;
  if (renameat2(AT_FDCWD, partial_.c_str(), AT_FDCWD, path_.c_str(), RENAME_NOREPLACE) != 0) {
    if (errno == EEXIST) return Taken(path_);
    return DiskError(partial_, "rename", errno);
  }
  committed_ = true;
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  return SyncDirectory(parent.empty() ? "." : parent);
}

}  // namespace annulus
