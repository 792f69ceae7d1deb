#ifndef ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_
#define ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_

#include <string>

namespace annulus::server {

// The variables and the user id from which `--admin-listen auto` derives a path. Null: not set.
struct RuntimeFolders {
  const char* runtime_directory = nullptr;  // RUNTIME_DIRECTORY: systemd's folders, colon-separated
  const char* xdg_runtime_dir = nullptr;    // XDG_RUNTIME_DIR: the user's own folder
  unsigned uid = 0;
};

// Reads them from the environment of this process.
RuntimeFolders ReadRuntimeFolders();

// Returns the path of the admin socket of a daemon that serves gRPC on `port`: admin.sock in the
// first folder of RUNTIME_DIRECTORY, else annulus-PORT.sock in XDG_RUNTIME_DIR, else PORT.sock in
// /tmp/annulus-UID.
std::string AutomaticAdminSocket(const RuntimeFolders& folders, int port);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_
