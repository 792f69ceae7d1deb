#include "server/config/plain_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "kernels/base/format_bytes.h"
#include "server/config/value_parsers.h"

namespace annulus::server {
namespace {

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int number() const { return number_; }

 private:
  const int number_;
};

std::string WhyNot(int error) { return std::generic_category().message(error); }

const char* KindName(mode_t mode) {
  if (S_ISDIR(mode)) return "a folder";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISSOCK(mode)) return "a socket";
  return "a device";
}

absl::Status NotRegular(absl::string_view option, const std::string& path, mode_t mode) {
  return absl::InvalidArgumentError(absl::StrCat(option, ": cannot read ", path, ", which is ",
                                                 KindName(mode),
                                                 "; give the path of a regular file"));
}

}  // namespace

absl::StatusOr<std::string> ReadPlainFile(absl::string_view option, const std::string& path,
                                          size_t max_bytes, mode_t* mode) {
  // O_NONBLOCK, because opening a pipe would otherwise wait for a writer.
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  struct stat status {};
  if (file.number() < 0 || fstat(file.number(), &status) != 0) {
    const int error = errno;
    // If it is not a regular file, that explains the failure better than the error code.
    if (stat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
      return NotRegular(option, path, status.st_mode);
    }
    return absl::NotFoundError(absl::StrCat(option, ": cannot open ", path, ": ", WhyNot(error)));
  }
  if (!S_ISREG(status.st_mode)) return NotRegular(option, path, status.st_mode);
  if (mode != nullptr) *mode = status.st_mode;
  std::string content(max_bytes + 1, '\0');
  size_t size = 0;
  while (size < content.size()) {
    const ssize_t more = read(file.number(), content.data() + size, content.size() - size);
    if (more < 0 && errno == EINTR) continue;
    if (more < 0) {
      return absl::NotFoundError(absl::StrCat(option, ": cannot read ", path, ": ", WhyNot(errno)));
    }
    if (more == 0) break;
    size += static_cast<size_t>(more);
  }
  if (size > max_bytes) {
    return absl::InvalidArgumentError(absl::StrCat(
        option, ": ", path, " is longer than ", FormatBytes(max_bytes), "; is it the right file?"));
  }
  content.resize(size);
  return content;
}

absl::Status CheckFileToWrite(absl::string_view option, const std::string& path) {
  struct stat status {};
  if (stat(path.c_str(), &status) == 0) {
    if (!S_ISREG(status.st_mode)) return NotRegular(option, path, status.st_mode);
    if (access(path.c_str(), R_OK) == 0) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": cannot read ", path, ": ", WhyNot(errno)));
  }
  if (errno != ENOENT) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": cannot use ", path, ": ", WhyNot(errno)));
  }
  const std::filesystem::path file(path);
  const std::string folder = file.has_parent_path() ? file.parent_path().string() : ".";
  if (!file.has_filename()) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": ", path, " is a folder; give the path of a file"));
  }
  if (stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) &&
      access(folder.c_str(), W_OK | X_OK) == 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(option, ": cannot create ", path, ": ", folder, " is not a writable folder"));
}

}  // namespace annulus::server
