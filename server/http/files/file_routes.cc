#include "server/http/files/file_routes.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/stored_documents.h"
#include "server/http/attached_documents.h"
#include "server/http/files/file_json.h"
#include "server/http/json/json_text.h"

namespace annulus::server {
namespace {

constexpr int kMostFiles = 1000;
// Of a file in JSON, with a title of which each byte is escaped.
constexpr size_t kFileBytes = 8192;

HttpAnswer FileAnswer(std::string body) {
  return {.content_type = "application/json", .body = std::move(body)};
}

struct FilePage {
  std::string after;
  int limit = kMostFiles;
};

absl::StatusOr<FilePage> ReadFilePage(absl::string_view query) {
  FilePage page;
  for (const auto& [name, value] : ParametersOf(query)) {
    if (name == "after" || name == "after_id" || name == "page") {
      ANNULUS_RETURN_IF_ERROR(CheckDocumentName(name, value));
      page.after = value;
    } else if (name == "limit") {
      if (!absl::SimpleAtoi(value, &page.limit) || page.limit < 1) {
        return FieldError(name, absl::StrCat("must be a whole number of at least 1"));
      }
      page.limit = std::min(page.limit, kMostFiles);
    } else if (name != "beta") {
      return FieldError(QuoteName(name), "is not supported; leave it out");
    }
  }
  return page;
}

// The id that a path names.
absl::StatusOr<std::string> FileIdOf(const HttpWork& work) {
  ANNULUS_RETURN_IF_ERROR(work.context.CheckDocumentsLoaded());
  const absl::string_view id = work.rest;
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("id", id));
  return std::string(id);
}

}  // namespace

absl::StatusOr<HttpAnswer> ListFiles(const HttpWork& work, const std::deque<std::string>&,
                                     const CancelFlag& cancel) {
  ANNULUS_RETURN_IF_ERROR(work.context.CheckDocumentsLoaded());
  ANNULUS_ASSIGN_OR_RETURN(const FilePage page, ReadFilePage(work.query));
  const size_t limit = static_cast<size_t>(page.limit);
  auto documents = work.context.documents.List(work.caller.tenant, page.after, limit + 1);
  const bool has_more = documents.size() > limit;
  if (has_more) documents.pop_back();
  ANNULUS_RETURN_IF_ERROR(work.memory.Hold(CallMemory::kKept, documents.size() * kFileBytes));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<KeptDocument> kept,
                           FindKept(work.context, work.caller.tenant, documents, cancel));
  std::string files;
  for (size_t i = 0; i < documents.size(); ++i) {
    absl::StrAppend(&files, files.empty() ? "" : ",", FileJson(*documents[i], &kept[i]));
  }
  const auto id = [](const DocumentPtr& document) { return JsonString(document->name); };
  const std::string first = documents.empty() ? "null" : id(documents.front());
  const std::string last = documents.empty() ? "null" : id(documents.back());
  return FileAnswer(absl::StrCat("{\"object\":\"list\",\"data\":[", files,
                                 "],\"has_more\":", has_more ? "true" : "false",
                                 ",\"first_id\":", first, ",\"last_id\":", last,
                                 ",\"next_page\":", has_more ? last : "null", "}"));
}

absl::StatusOr<HttpAnswer> GetFile(const HttpWork& work, const std::deque<std::string>&,
                                   const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string id, FileIdOf(work));
  const auto document = work.context.documents.Promise(work.caller.tenant, id);
  if (!document.ok()) return MissingFileError(work.context, id);
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<KeptDocument> kept,
                           FindKept(work.context, work.caller.tenant, {*document}, cancel));
  return FileAnswer(FileJson(**document, &kept.front()));
}

absl::StatusOr<HttpAnswer> DeleteFile(const HttpWork& work, const std::deque<std::string>&,
                                      const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string id, FileIdOf(work));
  const absl::Status deleted = DeleteStoredDocument(work.context, work.caller.tenant, id, cancel);
  if (absl::IsNotFound(deleted)) return MissingFileError(work.context, id);
  ANNULUS_RETURN_IF_ERROR(deleted);
  return FileAnswer(
      absl::StrCat("{\"id\":", JsonString(id),
                   ",\"object\":\"file\",\"deleted\":true,\"type\":\"file_deleted\"}"));
}

}  // namespace annulus::server
