#include "server/net/admin_socket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "kernels/base/status_macros.h"

namespace annulus::server {
namespace {

constexpr int kAdminBacklog = 16;
// How often another daemon's end may take the folder away while this one begins.
constexpr int kFolderAttempts = 5;
constexpr absl::string_view kElsewhere = "; choose another path with --admin-listen";

absl::Status SystemRefusal(absl::string_view path, absl::string_view what) {
  return absl::UnavailableError(
      absl::StrCat("admin-listen: ", what, " ", path, ": ", std::strerror(errno), kElsewhere));
}

sockaddr_un AddressOfPath(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof(address.sun_path) - 1);
  return address;
}

std::string FolderOf(const std::string& path) {
  return path.substr(0, std::max<size_t>(1, path.rfind('/')));
}

// Returns whether it made the folder: false if the folder exists.
absl::StatusOr<bool> MakeFolder(const std::string& folder) {
  if (mkdir(folder.c_str(), 0700) == 0) return true;
  if (errno == EEXIST) return false;
  return SystemRefusal(folder, "cannot make the folder");
}

// Checks that no other user can write to the folder: they could replace the socket with their own.
// OK if the folder is gone again: then no socket can be made in it.
absl::Status CheckFolder(const std::string& folder) {
  struct stat state {};
  if (lstat(folder.c_str(), &state) != 0) {
    return errno == ENOENT ? absl::OkStatus() : SystemRefusal(folder, "cannot examine");
  }
  const bool owned = state.st_uid == geteuid() || state.st_uid == 0;
  const bool writable = (state.st_mode & (S_IWGRP | S_IWOTH)) != 0 && !(state.st_mode & S_ISVTX);
  if (S_ISDIR(state.st_mode) && owned && !writable) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrFormat("admin-listen: other users can replace files in %s (mode %04o)%s", folder,
                      state.st_mode & 07777u, kElsewhere));
}

// Removes the socket file of a daemon that was killed, and no other file.
absl::Status RemoveStale(const std::string& path) {
  struct stat state {};
  if (lstat(path.c_str(), &state) != 0) {
    return errno == ENOENT ? absl::OkStatus() : SystemRefusal(path, "cannot examine");
  }
  if (!S_ISSOCK(state.st_mode)) {
    return absl::FailedPreconditionError(
        absl::StrCat("admin-listen: ", path, " exists already and is not a socket", kElsewhere));
  }
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return SystemRefusal(path, "cannot ask who listens on");
  const absl::Cleanup end = [probe] { close(probe); };
  const sockaddr_un address = AddressOfPath(path);
  const bool alive =
      connect(probe, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
      errno == EAGAIN;
  if (alive) {
    return absl::FailedPreconditionError(
        absl::StrCat("admin-listen: another daemon listens on ", path, kElsewhere));
  }
  if (unlink(path.c_str()) != 0 && errno != ENOENT) return SystemRefusal(path, "cannot replace");
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::unique_ptr<AdminSocket>> AdminSocket::Open(const std::string& path) {
  if (path.size() >= sizeof(sockaddr_un::sun_path)) {
    errno = ENAMETOOLONG;
    return SystemRefusal(path, "cannot listen on");
  }
  const std::string folder = FolderOf(path);
  ANNULUS_ASSIGN_OR_RETURN(bool made_folder, MakeFolder(folder));
  ANNULUS_RETURN_IF_ERROR(CheckFolder(folder));
  ANNULUS_RETURN_IF_ERROR(RemoveStale(path));
  const int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (listener < 0) return SystemRefusal(path, "cannot listen on");
  absl::Cleanup undo = [listener] { close(listener); };
  // Set the mode before bind: the socket file is created with this mode, less the umask.
  if (fchmod(listener, 0600) != 0) return SystemRefusal(path, "cannot protect");
  const sockaddr_un address = AddressOfPath(path);
  const auto bind_it = [&] {
    return bind(listener, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0;
  };
  bool bound = bind_it();
  for (int attempt = 1; !bound && errno == ENOENT && attempt < kFolderAttempts; ++attempt) {
    ANNULUS_ASSIGN_OR_RETURN(made_folder, MakeFolder(folder));
    ANNULUS_RETURN_IF_ERROR(CheckFolder(folder));
    bound = bind_it();
  }
  struct stat state {};
  if (!bound || listen(listener, kAdminBacklog) != 0 || lstat(path.c_str(), &state) != 0) {
    return SystemRefusal(path, "cannot listen on");
  }
  std::move(undo).Cancel();
  std::unique_ptr<AdminSocket> made(new AdminSocket(path, state.st_ino, made_folder ? folder : "",
                                                    ConnectionAcceptor::Adopt(listener)));
  if ((state.st_mode & 07777) != 0600 && chmod(path.c_str(), 0600) != 0) {
    return SystemRefusal(path, "cannot protect");
  }
  return made;
}

AdminSocket::~AdminSocket() {
  struct stat state {};
  if (lstat(path_.c_str(), &state) == 0 && state.st_ino == number_) unlink(path_.c_str());
  // Fails where another daemon of this user has its socket there.
  if (!made_folder_.empty()) rmdir(made_folder_.c_str());
}

}  // namespace annulus::server
