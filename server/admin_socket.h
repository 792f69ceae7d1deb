#ifndef ANNULUS_SERVER_ADMIN_SOCKET_H_
#define ANNULUS_SERVER_ADMIN_SOCKET_H_

#include <sys/types.h>

#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "server/connection_acceptor.h"

namespace annulus {

// A Unix socket that takes connections, and its file: mode 0600 from the moment that it is there,
// so only this user and root ever open it. The destructor removes the file, unless another socket
// has taken its name meanwhile, and the folder if Open made it and nothing else is in it.
class AdminSocket {
 public:
  // Makes the last folder of the path if it is missing, with mode 0700. A socket file that nobody
  // listens on is replaced. FAILED_PRECONDITION: a daemon listens there, the path is no socket, or
  // others than this user could replace it; UNAVAILABLE: the system refuses.
  static absl::StatusOr<std::unique_ptr<AdminSocket>> Open(const std::string& path);
  ~AdminSocket();
  AdminSocket(const AdminSocket&) = delete;
  AdminSocket& operator=(const AdminSocket&) = delete;

  const std::string& path() const { return path_; }

  // Takes the connections that wait; once.
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

}  // namespace annulus

#endif  // ANNULUS_SERVER_ADMIN_SOCKET_H_
