#ifndef ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_
#define ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_

#include <string>

namespace annulus {

// What --admin-listen auto follows from; the variables are null where unset.
struct RuntimeFolders {
  const char* runtime_directory = nullptr;  // RUNTIME_DIRECTORY: folders by systemd, by colons
  const char* xdg_runtime_dir = nullptr;    // XDG_RUNTIME_DIR: the user's own
  unsigned uid = 0;
};

// From the variables of this process.
RuntimeFolders ReadRuntimeFolders();

// The path of the socket in a daemon whose gRPC has this port: admin.sock in the first
// RUNTIME_DIRECTORY, annulus-PORT.sock in XDG_RUNTIME_DIR, or PORT.sock in /tmp/annulus-UID.
std::string AutomaticAdminSocket(const RuntimeFolders& folders, int port);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_ADMIN_ADDRESS_H_
