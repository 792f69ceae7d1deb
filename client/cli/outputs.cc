#include "client/cli/outputs.h"

#include <cerrno>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cli/input/inputs.h"

namespace annulus::client {

int WriteOutput(Session& session, const std::string& path, absl::string_view bytes) {
  if (path.empty() || path == kStandardInput) {
    session.Print(bytes);
    return session.Finish();
  }
  std::ofstream file(path, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (file.flush()) return session.Finish();
  return session.CannotWrite(absl::StrCat(path, ": ", std::strerror(errno)));
}

}  // namespace annulus::client
