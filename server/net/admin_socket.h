#ifndef ANNULUS_SERVER_NET_ADMIN_SOCKET_H_
#define ANNULUS_SERVER_NET_ADMIN_SOCKET_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/net/connection_acceptor.h"

namespace annulus::server {

// A listening Unix socket and its file. The file is created with mode 0600, so only this user and
// root can ever open it. The destructor removes the file, unless another socket has replaced it,
// and the folder if Open made it and nothing else is in it.
class AdminSocket {
 public:
  // Creates the last folder of the path with mode 0700 if it is missing. Replaces a socket file on
  // which nobody listens. FAILED_PRECONDITION if a daemon listens there, if the path is not a
  // socket, or if other users could replace it; UNAVAILABLE if a system call fails.
  static absl::StatusOr<std::unique_ptr<AdminSocket>> Open(const std::string& path);
  ~AdminSocket();
  AdminSocket(const AdminSocket&) = delete;
  AdminSocket& operator=(const AdminSocket&) = delete;

  const std::string& path() const { return path_; }

  // Returns the acceptor of the socket's connections. Call it once.
  std::unique_ptr<ConnectionAcceptor> TakeAcceptor() { return std::move(acceptor_); }

 private:
  AdminSocket(std::string path, ino_t number, std::string made_folder,
              std::unique_ptr<ConnectionAcceptor> acceptor)
      : path_(std::move(path)),
        number_(number),
        made_folder_(std::move(made_folder)),
        acceptor_(std::move(acceptor)) {}

  const std::string path_;
  const ino_t number_;             // the file's inode
  const std::string made_folder_;  // by Open; empty: none
  std::unique_ptr<ConnectionAcceptor> acceptor_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_NET_ADMIN_SOCKET_H_
