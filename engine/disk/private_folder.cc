#include "engine/disk/private_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status FolderError(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("folder ", path, ": ", what));
}

absl::Status CheckOwner(const std::string& path, int descriptor) {
  struct stat state {};
  if (fstat(descriptor, &state) != 0) return FolderError(path, std::strerror(errno));
  if (state.st_uid != geteuid()) {
    return FolderError(
        path, absl::StrCat("its owner is user id ", state.st_uid, ", but the daemon runs as ",
                           geteuid(), "; choose a folder that the daemon's user owns"));
  }
  if ((state.st_mode & 077) != 0) {
    return FolderError(
        path,
        absl::StrCat("other users can access it, and it holds what clients sent; run chmod 700 ",
                     path));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateFolder>> PrivateFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FolderError(path, absl::StrCat("cannot be created: ", std::strerror(errno)));
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return FolderError(path, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  std::unique_ptr<PrivateFolder> folder(new PrivateFolder(path, descriptor));
  // Before all else, as nothing may be written into a folder that is refused.
  ANNULUS_RETURN_IF_ERROR(CheckOwner(path, descriptor));
  const int lock =
      openat(descriptor, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  folder->lock_ = lock;
  if (lock < 0) {
    return FolderError(path,
                       absl::StrCat("its file lock cannot be opened: ", std::strerror(errno)));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return FolderError(path, errno == EWOULDBLOCK
                                 ? "another daemon uses it; give each daemon its own folder"
                                 : std::strerror(errno));
  }
  return folder;
}

PrivateFolder::~PrivateFolder() {
  if (lock_ >= 0) close(lock_);
  close(descriptor_);
}

bool PrivateFolder::Remove(const std::string& name) const {
  return unlinkat(descriptor_, name.c_str(), 0) == 0;
}

absl::StatusOr<int64_t> PrivateFolder::Visit(
    const std::function<void(const std::string& name)>& visit) const {
  const int again = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = again < 0 ? nullptr : fdopendir(again);
  if (listing == nullptr) {
    if (again >= 0) close(again);
    return FolderError(path_, std::strerror(errno));
  }
  const absl::Cleanup end = [listing] { closedir(listing); };
  int64_t removed = 0;
  while (true) {
    errno = 0;
    const dirent* const item = readdir(listing);
    if (item == nullptr && errno != 0) return FolderError(path_, std::strerror(errno));
    if (item == nullptr) return removed;
    const std::string name = item->d_name;
    if (name == "." || name == "..") continue;
    if (absl::StartsWith(name, kUnfinished)) {
      removed += Remove(name) ? 1 : 0;
    } else {
      visit(name);
    }
  }
}

}  // namespace annulus
