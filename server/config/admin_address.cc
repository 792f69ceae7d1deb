#include "server/config/admin_address.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

RuntimeFolders ReadRuntimeFolders() {
  return {std::getenv("RUNTIME_DIRECTORY"), std::getenv("XDG_RUNTIME_DIR"), geteuid()};
}

std::string AutomaticAdminSocket(const RuntimeFolders& folders, int port) {
  const absl::string_view systemd = absl::NullSafeStringView(folders.runtime_directory);
  const absl::string_view first = systemd.substr(0, systemd.find(':'));
  if (absl::StartsWith(first, "/")) return absl::StrCat(first, "/admin.sock");
  const absl::string_view own = absl::NullSafeStringView(folders.xdg_runtime_dir);
  if (absl::StartsWith(own, "/")) return absl::StrCat(own, "/annulus-", port, ".sock");
  return absl::StrCat("/tmp/annulus-", folders.uid, "/", port, ".sock");
}

}  // namespace annulus::server
