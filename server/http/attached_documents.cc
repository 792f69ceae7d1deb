#include "server/http/attached_documents.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/base/sha256.h"
#include "server/documents/upload.h"
#include "server/work/count_limits.h"

namespace annulus::server {
namespace {

// The text is passed on in parts of this size, which are copied.
constexpr size_t kAttachedPart = size_t{64} << 10;
constexpr size_t kAttachedCopies = 4;
constexpr size_t kLongestAttachedTitle = 1024;

constexpr std::array<absl::string_view, 10> kTextTypes = {
    "application/json", "application/jsonl",  "application/x-ndjson",   "application/xml",
    "application/yaml", "application/x-yaml", "application/javascript", "application/toml",
    "application/sql",  "application/x-sh"};

bool IsTextType(absl::string_view type) {
  if (type.empty() || type == "application/octet-stream") return true;  // the bytes will tell
  return absl::StartsWith(type, "text/") || absl::EndsWith(type, "+json") ||
         absl::EndsWith(type, "+xml") ||
         std::find(kTextTypes.begin(), kTextTypes.end(), type) != kTextTypes.end();
}

// What files begin with that are no text, and what they are.
struct Magic {
  absl::string_view bytes;
  absl::string_view type;
};
constexpr Magic kMagics[] = {
    {"%PDF-", "application/pdf"},   {"PK\x03\x04", "application/zip"}, {"\x89PNG", "image/png"},
    {"\xff\xd8\xff", "image/jpeg"}, {"\x1f\x8b", "application/gzip"},
};

// Names the document in an error about it.
absl::Status About(const AttachedDocument& document, const absl::Status& status) {
  const bool named = status.GetPayload(kFieldPayload).has_value();
  return named ? MoveField(status, document.field) : WithField(status, document.field);
}

absl::StatusOr<DocumentPtr> Tokenized(ServiceContext& context, const Caller& caller,
                                      const AttachedDocument& document, const std::string& name,
                                      const CancelFlag& cancel) {
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  Upload upload(context.documents, *engine, caller.tenant, cancel,
                DocumentShare(context.quotas, caller));
  v1::UploadDocumentRequest part;
  part.mutable_header()->set_name(name);
  part.mutable_header()->set_title(document.title);
  part.mutable_header()->set_transient(true);
  part.mutable_header()->set_keep_text(document.quoted);
  ANNULUS_RETURN_IF_ERROR(upload.Accept(part));
  for (size_t at = 0; at < document.text.size(); at += kAttachedPart) {
    part.mutable_chunk()->set_offset(static_cast<int64_t>(at));
    part.mutable_chunk()->set_data(document.text.substr(at, kAttachedPart));
    ANNULUS_RETURN_IF_ERROR(upload.Accept(part));
  }
  return upload.FinishUnstored();
}

std::string AttachedNameOf(absl::string_view text) {
  Sha256 hash;
  hash.Update(text);
  return absl::StrCat("attached-", hash.FinishHex());
}

absl::Status CheckAttached(const AttachedDocument& document) {
  if (document.title.size() > kLongestAttachedTitle) {
    return FieldError(document.field,
                      absl::StrCat("has a title of ", document.title.size(),
                                   " bytes; allowed are 0 to ", kLongestAttachedTitle));
  }
  if (document.name.empty() && document.text.empty()) {
    return FieldError(document.field, "has an empty document; leave it out");
  }
  return absl::OkStatus();
}

absl::StatusOr<DocumentPtr> ReadAttached(ServiceContext& context, const Caller& caller,
                                         const AttachedDocument& document,
                                         const CancelFlag& cancel) {
  if (document.name.empty()) {
    return Tokenized(context, caller, document, AttachedNameOf(document.text), cancel);
  }
  absl::StatusOr<DocumentPtr> stored = context.documents.Get(caller.tenant, document.name);
  if (absl::IsNotFound(stored.status())) return MissingFileError(context, document.name);
  if (stored.ok() && document.quoted && !(*stored)->has_text) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the document ", QuoteName(document.name),
        " was uploaded without keep_text, so the server has no text of it to quote; upload it "
        "again with keep_text, or as a file of /v1/files"));
  }
  return stored;
}

// Whether the request has this document already.
bool HasDocument(const FoundDocuments& found, const StoredDocument& document,
                 absl::string_view title) {
  for (size_t i = 0; i < found.list.size(); ++i) {
    if (found.list[i]->name == document.name && found.TitleOf(i) == title) return true;
  }
  return false;
}

}  // namespace

absl::Status CheckIsText(absl::string_view media_type, absl::string_view beginning) {
  std::string type =
      absl::AsciiStrToLower(absl::StripAsciiWhitespace(media_type.substr(0, media_type.find(';'))));
  for (const Magic& magic : kMagics) {
    if (absl::StartsWith(beginning, magic.bytes)) type = std::string(magic.type);
  }
  if (IsTextType(type)) return absl::OkStatus();
  return ReasonError(absl::StatusCode::kUnimplemented, v1::ERROR_REASON_UNSUPPORTED,
                     absl::StrCat(QuoteName(type),
                                  " is no text, and this server reads text only: store its text "
                                  "with \"annulus documents put FILE\", which reads pdf, docx, "
                                  "html and others, and name the document that it stores"),
                     {{"media_type", type}});
}

absl::Status ReadFileData(absl::string_view data, std::string& text) {
  std::string type;
  if (absl::ConsumePrefix(&data, "data:")) {
    const size_t comma = data.find(',');
    absl::string_view head = data.substr(0, comma);
    if (comma == absl::string_view::npos || !absl::ConsumeSuffix(&head, ";base64")) {
      return absl::InvalidArgumentError(
          "must be a data URL in base64: \"data:text/plain;base64,...\"");
    }
    type = std::string(head);
    data.remove_prefix(comma + 1);
  }
  if (!absl::Base64Unescape(data, &text)) return absl::InvalidArgumentError("is not base64");
  return CheckIsText(type, text);
}

absl::StatusOr<std::vector<PromptedDocument>> AttachDocuments(
    ServiceContext& context, const Caller& caller, std::vector<AttachedDocument> documents,
    AskedGeneration& asked, CallMemory& memory, const CancelFlag& cancel) {
  if (documents.empty() && !asked.spec.evidence()) return std::vector<PromptedDocument>();
  ANNULUS_RETURN_IF_ERROR(context.CheckDocumentsLoaded());
  ANNULUS_RETURN_IF_ERROR(memory.Hold(CallMemory::kWork, kAttachedCopies * kAttachedPart));
  ANNULUS_ASSIGN_OR_RETURN(FoundDocuments found,
                           FindDocuments(asked.spec, context.documents, caller.tenant));
  found.titles.resize(found.list.size());
  found.pieces.resize(found.list.size());
  std::vector<PromptedDocument> prompted;
  for (const DocumentPtr& named : found.list) prompted.push_back({-1, named->title});
  for (size_t i = 0; i < documents.size(); ++i) {
    AttachedDocument& document = documents[i];
    ANNULUS_RETURN_IF_ERROR(CheckAttached(document));
    const absl::StatusOr<DocumentPtr> read = ReadAttached(context, caller, document, cancel);
    if (absl::IsNotFound(read.status())) return read.status();
    document.text = std::string();
    if (!read.ok()) return About(document, read.status());
    const DocumentPtr& stored = *read;
    stored->last_used.store(std::chrono::steady_clock::now(), std::memory_order_relaxed);
    const std::string own = stored->title.empty() ? stored->name : stored->title;
    if (HasDocument(found, *stored, document.title.empty() ? own : document.title)) continue;
    if (found.list.size() == kMostDocuments) {
      return FieldError(document.field,
                        absl::StrCat("at most ", kMostDocuments, " documents are allowed"));
    }
    asked.spec.add_documents(stored->name);
    found.list.push_back(stored);
    prompted.push_back(
        {static_cast<int>(i), document.title.empty() ? stored->title : document.title});
    found.titles.push_back(std::move(document.title));
    found.pieces.push_back(std::move(document.pieces));
  }
  asked.documents = std::move(found);
  return prompted;
}

absl::Status MissingFileError(const ServiceContext& context, absl::string_view id) {
  const bool lasting = !context.config.documents.folder.empty();
  return ResourceError(
      absl::StatusCode::kNotFound, v1::ERROR_REASON_DOCUMENT_NOT_FOUND, "document", id,
      absl::StrCat("there is no file ", QuoteName(id),
                   lasting ? "; upload it again"
                           : ": it was deleted, or uploaded before the server started, which "
                             "keeps files in memory only (without --documents); upload it again"));
}

}  // namespace annulus::server
