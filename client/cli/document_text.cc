#include "client/cli/document_text.h"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>

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

}  // namespace

int SaveText(Session& session, const std::string& name, const std::string& path,
             v1::Document* document) {
  if (path.empty() || path == kStandardInput) return PrintText(session, name, document);
  const std::string unfinished = absl::StrCat(path, ".part");
  std::error_code error;
  std::ofstream file(unfinished, std::ios::binary | std::ios::trunc);
  const auto write = [&](absl::string_view bytes) {
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    return file.good();
  };
  const auto cannot_write = [&](absl::string_view why) {
    std::filesystem::remove(unfinished, error);
    return session.CannotWrite(absl::StrCat(path, ": ", why));
  };
  if (!file.is_open()) return session.CannotWrite(absl::StrCat(path, ": ", std::strerror(errno)));
  const grpc::Status status = DownloadDocument(session.connection(), name, write, document);
  file.close();
  if (!file) return cannot_write(std::strerror(errno));
  if (!status.ok()) {
    std::filesystem::remove(unfinished, error);
    return session.CallFailed(status);
  }
  std::filesystem::rename(unfinished, path, error);
  return error ? cannot_write(error.message()) : 0;
}

}  // namespace annulus::client
