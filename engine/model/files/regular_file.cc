#include "engine/model/files/regular_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kLongestName = 255;

absl::Status CheckPlainName(absl::string_view name) {
  const bool plain = !name.empty() && name.size() <= kLongestName && name != "." && name != ".." &&
                     name.find('/') == absl::string_view::npos &&
                     name.find('\0') == absl::string_view::npos;
  if (plain) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "\"", absl::Utf8SafeCHexEscape(name.substr(0, kLongestName)),
      "\" is not the name of a file in the model directory; allowed: a plain name of 1 "
      "to 255 bytes without '/'"));
}

absl::Status OpenError(const std::string& path, int error) {
  if (error == ENOENT) return absl::NotFoundError(absl::StrCat(path, ": no such file"));
  if (error == ENOTDIR) return absl::NotFoundError(absl::StrCat(path, ": not in a directory"));
  if (error == ELOOP) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, " is a symbolic link that leads back to itself, or through too many"));
  }
  return absl::FailedPreconditionError(absl::StrCat(path, ": cannot open: ", strerror(error)));
}

// A link whose target is absent is a fault of the directory: an optional file is not just missing.
absl::Status StatError(const std::string& path, int error) {
  struct stat link {};
  if (error != ENOENT || lstat(path.c_str(), &link) != 0 || !S_ISLNK(link.st_mode)) {
    return OpenError(path, error);
  }
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof(target));
  return absl::FailedPreconditionError(
      absl::StrCat(path, " is a symbolic link to \"",
                   absl::Utf8SafeCHexEscape(absl::string_view(
                       target, static_cast<size_t>(std::max<ssize_t>(length, 0)))),
                   "\", which does not exist; an interrupted download leaves such links"));
}

absl::Status CheckRegular(const std::string& path, const struct stat& status) {
  if (S_ISREG(status.st_mode)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      path, " is not a regular file, nor a link to one (a directory, pipe, socket or device)"));
}

}  // namespace

absl::StatusOr<RegularFile> RegularFile::Open(const std::string& directory,
                                              const std::string& name) {
  ANNULUS_RETURN_IF_ERROR(CheckPlainName(name));
  RegularFile file;
  file.path_ = absl::StrCat(directory, "/", name);
  // Opening a device may already do something, so what is there is looked at first; and again once
  // it is open, as it may have been replaced. O_NONBLOCK: opening a pipe that nobody writes to
  // would wait for ever.
  struct stat status {};
  if (stat(file.path_.c_str(), &status) != 0) return StatError(file.path_, errno);
  ANNULUS_RETURN_IF_ERROR(CheckRegular(file.path_, status));
  file.descriptor_ = open(file.path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (file.descriptor_ < 0) return OpenError(file.path_, errno);
  if (fstat(file.descriptor_, &status) != 0) return OpenError(file.path_, errno);
  ANNULUS_RETURN_IF_ERROR(CheckRegular(file.path_, status));
  file.size_ = static_cast<uint64_t>(status.st_size);
  file.modified_ = status.st_mtim;
  return file;
}

RegularFile::RegularFile(RegularFile&& other) noexcept { *this = std::move(other); }

RegularFile& RegularFile::operator=(RegularFile&& other) noexcept {
  std::swap(descriptor_, other.descriptor_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  std::swap(path_, other.path_);
  return *this;
}

RegularFile::~RegularFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status RegularFile::ReadAt(uint64_t offset, std::span<std::byte> destination) const {
  ANNULUS_CHECK(offset <= size_ && destination.size() <= size_ - offset)
      << "read outside " << path_;
  while (!destination.empty()) {
    const size_t wanted =
        std::min<size_t>(destination.size(), std::numeric_limits<int32_t>::max() / 2);
    const ssize_t got = pread(descriptor_, destination.data(), wanted, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      return absl::DataLossError(
          absl::StrCat(path_, ": cannot read at byte ", offset, ": ", strerror(errno)));
    }
    if (got == 0) {
      return absl::DataLossError(absl::StrCat(path_, " ends at byte ", offset, ", but had ", size_,
                                              " bytes when it was opened: it was truncated"));
    }
    offset += static_cast<uint64_t>(got);
    destination = destination.subspan(static_cast<size_t>(got));
  }
  struct stat status {};
  if (fstat(descriptor_, &status) != 0 || static_cast<uint64_t>(status.st_size) != size_ ||
      status.st_mtim.tv_sec != modified_.tv_sec || status.st_mtim.tv_nsec != modified_.tv_nsec) {
    return absl::DataLossError(absl::StrCat(path_, " was changed while it was being read"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadSmallFile(const std::string& directory, const std::string& name,
                                          uint64_t max_bytes) {
  ANNULUS_ASSIGN_OR_RETURN(const RegularFile file, RegularFile::Open(directory, name));
  if (file.size() > max_bytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat(file.path(), " has ", file.size(), " bytes; allowed: at most ", max_bytes));
  }
  std::string text(file.size(), '\0');
  ANNULUS_RETURN_IF_ERROR(file.ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

}  // namespace annulus
