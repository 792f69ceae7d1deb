#include "client/cli/document_text.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "client/cli/input/inputs.h"
#include "client/documents.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

int PrintText(Session& session, const std::string& name, v1::Document* document) {
  std::string rest;  // the beginning of a character whose end has not come
  const auto print = [&](absl::string_view bytes) {
    absl::StrAppend(&rest, bytes);
    const size_t whole = FindInvalidUtf8(rest).value_or(rest.size());
    session.Print(absl::string_view(rest).substr(0, whole));
    rest.erase(0, whole);
    return session.CanPrint();
  };
  const grpc::Status status = DownloadDocument(session.connection(), name, print, document);
  if (!session.CanPrint()) return session.Finish();
  return status.ok() ? session.Finish() : session.CallFailed(status);
}

// How a file is written that gets its name when it is complete. Nobody else knows the name that it
// has until then, and nothing may be there under it, a link neither.
constexpr int kNewFile = O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC;

std::string UnfinishedName(const std::string& path) {
  std::random_device random;
  const uint64_t number = uint64_t{random()} << 32 | random();
  return absl::StrCat(path, ".part-", absl::Hex(number, absl::kZeroPad16));
}

// A pipe or a device, which cannot be replaced by a file.
bool IsNoFile(const std::string& path) {
  struct stat state {};
  return stat(path.c_str(), &state) == 0 && !S_ISREG(state.st_mode);
}

// Returns 0, or the error number.
int WriteAll(int file, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno != EINTR) return errno;
    if (written > 0) bytes.remove_prefix(static_cast<size_t>(written));
  }
  return 0;
}

}  // namespace

int SaveText(Session& session, const std::string& name, const std::string& path,
             v1::Document* document) {
  if (path.empty() || path == kStandardInput) return PrintText(session, name, document);
  const bool in_place = IsNoFile(path);
  const std::string target = in_place ? path : UnfinishedName(path);
  const int file = open(target.c_str(), in_place ? O_WRONLY | O_CLOEXEC : kNewFile, 0666);
  if (file < 0) return session.CannotWrite(absl::StrCat(path, ": ", std::strerror(errno)));
  int error = 0;
  const auto write = [&](absl::string_view bytes) {
    error = WriteAll(file, bytes);
    return error == 0;
  };
  const grpc::Status status = DownloadDocument(session.connection(), name, write, document);
  if (close(file) != 0 && error == 0) error = errno;
  const bool complete = error == 0 && status.ok();
  if (complete && !in_place && rename(target.c_str(), path.c_str()) != 0) error = errno;
  if (!in_place && (!complete || error != 0)) unlink(target.c_str());
  if (error != 0) return session.CannotWrite(absl::StrCat(path, ": ", std::strerror(error)));
  return status.ok() ? 0 : session.CallFailed(status);
}

}  // namespace annulus::client
