#include "client/documents.h"

#include <openssl/evp.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

constexpr size_t kChunkBytes = 256 << 10;
constexpr size_t kMaxNameLength = 128;

// Reads up to kChunkBytes bytes into `chunk`, whose size becomes the number of bytes read. False at
// the end.
bool ReadChunk(std::istream& stream, std::string& chunk) {
  chunk.resize(kChunkBytes);
  stream.read(chunk.data(), static_cast<std::streamsize>(chunk.size()));
  chunk.resize(static_cast<size_t>(stream.gcount()));
  return !chunk.empty();
}

// Checks whether a text that arrives in parts is UTF-8. A character may be split between two parts.
class TextCheck {
 public:
  void Add(absl::string_view part) {
    if (bad_at_.has_value()) return;
    absl::StrAppend(&rest_, part);
    const size_t good = FindInvalidUtf8(rest_).value_or(rest_.size());
    // The last bytes of a part may be the beginning of a character.
    const bool may_go_on = rest_.size() - good < kLongestCharacter;
    if (!may_go_on) bad_at_ = checked_ + static_cast<int64_t>(good);
    checked_ += static_cast<int64_t>(good);
    rest_.erase(0, good);
  }

  // Offset of the first byte that belongs to no character. Call it after adding all parts.
  std::optional<int64_t> BadByte() const {
    return bad_at_.has_value() || rest_.empty() ? bad_at_ : checked_;
  }

 private:
  static constexpr size_t kLongestCharacter = 4;
  std::string rest_;     // bytes added but not yet known to be valid
  int64_t checked_ = 0;  // number of bytes before `rest_`
  std::optional<int64_t> bad_at_;
};

// INVALID_ARGUMENT, with advice, if the server would reject the document.
absl::Status CheckDocument(absl::string_view what, int64_t size, const TextCheck& text) {
  if (size == 0) {
    return absl::InvalidArgumentError(absl::StrCat(what, " is empty; a document must have text"));
  }
  if (!text.BadByte().has_value()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " is not UTF-8 text (byte ", *text.BadByte(),
                   "); convert it first, for example by iconv or pdftotext"));
}

// Checks the text, fills in size and sha256, and rewinds the stream.
absl::StatusOr<DocumentContent> Measure(std::unique_ptr<std::istream> stream,
                                        absl::string_view what) {
  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> hash(EVP_MD_CTX_new(),
                                                                     &EVP_MD_CTX_free);
  std::string digest(EVP_MAX_MD_SIZE, '\0');
  auto* digest_bytes = reinterpret_cast<unsigned char*>(digest.data());
  unsigned int digest_size = 0;
  bool hashed = EVP_DigestInit_ex(hash.get(), EVP_sha256(), nullptr) == 1;
  DocumentContent content;
  TextCheck text;
  std::string chunk;
  while (ReadChunk(*stream, chunk)) {
    hashed = hashed && EVP_DigestUpdate(hash.get(), chunk.data(), chunk.size()) == 1;
    content.size += static_cast<int64_t>(chunk.size());
    text.Add(chunk);
  }
  if (stream->bad()) return absl::DataLossError(absl::StrCat("reading ", what, " failed"));
  if (absl::Status good = CheckDocument(what, content.size, text); !good.ok()) return good;
  if (!hashed || EVP_DigestFinal_ex(hash.get(), digest_bytes, &digest_size) != 1) {
    return absl::InternalError("SHA-256 is not available from OpenSSL");
  }
  content.sha256 = absl::BytesToHexString(absl::string_view(digest).substr(0, digest_size));
  stream->clear();
  stream->seekg(0);
  content.stream = std::move(stream);
  return content;
}

// Reads a stream that cannot be rewound into memory.
absl::StatusOr<DocumentContent> Hold(std::istream& input, absl::string_view what) {
  auto held = std::make_unique<std::istringstream>(ReadAll(input));
  if (input.bad()) return absl::DataLossError(absl::StrCat("reading ", what, " failed"));
  return Measure(std::move(held), what);
}

v1::UploadDocumentRequest Header(const std::string& name, const DocumentContent& content) {
  v1::UploadDocumentRequest request;
  request.mutable_header()->set_name(name);
  request.mutable_header()->set_total_bytes(content.size);
  request.mutable_header()->set_sha256(content.sha256);
  request.mutable_header()->set_title(content.title);
  request.mutable_header()->set_transient(content.transient);
  request.mutable_header()->set_keep_text(content.keep_text);
  for (const v1::DocumentMark& mark : content.marks) {
    *request.mutable_header()->add_marks() = mark;
  }
  return request;
}

}  // namespace

std::vector<v1::DocumentMark> MarksOf(absl::string_view text) {
  constexpr size_t kMostMarks = 16'384;
  constexpr size_t kMostDigits = 9;
  std::vector<v1::DocumentMark> marks;
  for (size_t line = 0; line < text.size() && marks.size() < kMostMarks;) {
    const absl::string_view rest = text.substr(line);
    for (const absl::string_view kind : {"page", "slide"}) {
      const std::string opening = absl::StrCat("[", kind, " ");
      if (!absl::StartsWith(rest, opening)) continue;
      const absl::string_view number = rest.substr(opening.size(), kMostDigits + 1);
      const size_t digits = std::min(number.find(']'), number.size());
      const bool is_number = digits > 0 && digits < number.size() &&
                             std::all_of(number.begin(), number.begin() + digits,
                                         [](char c) { return absl::ascii_isdigit(c); });
      if (!is_number) continue;
      v1::DocumentMark& mark = marks.emplace_back();
      mark.set_byte(static_cast<int64_t>(line));
      mark.set_label(absl::StrCat(kind, " ", number.substr(0, digits)));
    }
    const size_t end = text.find('\n', line);
    line = end == absl::string_view::npos ? text.size() : end + 1;
  }
  return marks;
}

std::string TitleOf(const std::string& path) {
  std::string title;
  const std::string file = std::filesystem::path(path).filename().string();  // at most 255 bytes
  for (absl::string_view name = file; !name.empty();) {
    const size_t good = FindInvalidUtf8(name).value_or(name.size());
    absl::StrAppend(&title, name.substr(0, good), good < name.size() ? "\xEF\xBF\xBD" : "");
    name.remove_prefix(std::min(good + 1, name.size()));
  }
  return title;
}

std::string ReadAll(std::istream& input) {
  std::string text, chunk;
  while (ReadChunk(input, chunk)) text += chunk;
  return text;
}

absl::StatusOr<DocumentContent> OpenDocument(const std::string& path) {
  std::error_code error;
  if (std::filesystem::is_directory(path, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is a folder; give a text file"));
  }
  auto file = std::make_unique<std::ifstream>(path, std::ios::binary);
  if (!file->is_open()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, " for reading"));
  }
  const bool is_file = std::filesystem::is_regular_file(path, error);
  absl::StatusOr<DocumentContent> content =
      is_file ? Measure(std::move(file), path) : Hold(*file, path);
  if (content.ok()) content->title = TitleOf(path);
  return content;
}

absl::StatusOr<DocumentContent> ReadDocument(std::istream& input) {
  return Hold(input, "standard input");
}

bool IsDocumentName(absl::string_view name) {
  return !name.empty() && name.size() <= kMaxNameLength && absl::ascii_isalnum(name[0]) &&
         !absl::StrContains(name, "..") && std::all_of(name.begin(), name.end(), [](char c) {
           return absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-';
         });
}

std::string ContentName(const DocumentContent& content) {
  return absl::StrCat("sha256-", content.sha256);
}

std::string TitledName(const DocumentContent& content) {
  constexpr size_t kDigits = 16;
  const auto measured = Measure(std::make_unique<std::istringstream>(content.title), "the title");
  return absl::StrCat(ContentName(content), "-",
                      measured.ok() ? measured->sha256.substr(0, kDigits) : "untitled");
}

grpc::Status UploadDocument(Connection& connection, const std::string& name,
                            DocumentContent& content, const UploadObserver& observer,
                            v1::Document* document) {
  v1::UploadDocumentResponse response;
  Call call(connection);
  const auto writer = connection.documents().UploadDocument(call.context(), &response);
  content.stream->clear();
  content.stream->seekg(0);
  bool open = writer->Write(Header(name, content));
  int64_t sent = 0;
  v1::UploadDocumentRequest request;
  std::string* data = request.mutable_chunk()->mutable_data();
  while (open && ReadChunk(*content.stream, *data)) {
    request.mutable_chunk()->set_offset(sent);
    open = writer->Write(request);
    sent += static_cast<int64_t>(data->size());
    if (open) observer(sent, content.size);
  }
  writer->WritesDone();
  const grpc::Status status = writer->Finish();
  if (status.ok()) *document = std::move(*response.mutable_document());
  return status;
}

grpc::Status PrefillDocument(Connection& connection, const v1::PrefillDocumentRequest& request,
                             const PrefillObserver& observer, v1::Prefilled* prefilled) {
  Call call(connection);
  const auto reader = connection.documents().PrefillDocument(call.context(), request);
  v1::PrefillDocumentResponse event;
  bool done = false;
  while (reader->Read(&event)) {
    observer(event);
    done = done || event.has_done();
    if (event.has_done()) *prefilled = std::move(*event.mutable_done());
  }
  const grpc::Status status = reader->Finish();
  if (!status.ok() || done) return status;
  return {grpc::StatusCode::INTERNAL, "the server ended the call without a result"};
}

grpc::Status GetDocument(Connection& connection, const std::string& name, v1::Document* document) {
  v1::GetDocumentRequest request;
  v1::GetDocumentResponse response;
  request.set_name(name);
  Call call(connection);
  const grpc::Status status =
      connection.documents().GetDocument(call.context(), request, &response);
  if (status.ok()) *document = std::move(*response.mutable_document());
  return status;
}

grpc::Status DownloadDocument(Connection& connection, const std::string& name,
                              const TextObserver& observer, v1::Document* document) {
  v1::DownloadDocumentRequest request;
  request.set_name(name);
  Call call(connection);
  const auto reader = connection.documents().DownloadDocument(call.context(), request);
  v1::DownloadDocumentResponse part;
  int64_t received = 0;
  bool whole = false;
  bool wanted = true;
  while (wanted && reader->Read(&part)) {
    if (part.has_document()) {
      *document = std::move(*part.mutable_document());
      whole = received == 0;
      continue;
    }
    whole = whole && part.chunk().offset() == received;
    received += static_cast<int64_t>(part.chunk().data().size());
    wanted = observer(part.chunk().data());
  }
  if (!wanted) call.context()->TryCancel();
  const grpc::Status status = reader->Finish();
  if (!status.ok() || (whole && received == document->size_bytes())) return status;
  return {grpc::StatusCode::DATA_LOSS, "the server ended the call before all bytes had come"};
}

grpc::Status ListDocuments(Connection& connection, std::vector<v1::Document>* documents) {
  v1::ListDocumentsRequest request;
  do {
    v1::ListDocumentsResponse response;
    Call call(connection);
    const grpc::Status status =
        connection.documents().ListDocuments(call.context(), request, &response);
    if (!status.ok()) return status;
    documents->insert(documents->end(), response.documents().begin(), response.documents().end());
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

grpc::Status UnpinDocument(Connection& connection, const std::string& name) {
  v1::UnpinDocumentRequest request;
  v1::UnpinDocumentResponse response;
  request.set_name(name);
  Call call(connection);
  return connection.documents().UnpinDocument(call.context(), request, &response);
}

grpc::Status WithdrawDocument(Connection& connection, const std::string& name) {
  v1::DeleteDocumentRequest request;
  v1::DeleteDocumentResponse response;
  request.set_name(name);
  request.set_if_unused(true);
  Call call(connection);
  const auto latest = std::chrono::system_clock::now() + std::chrono::seconds(kWithdrawSeconds);
  call.context()->set_deadline(std::min(call.context()->deadline(), latest));
  return connection.documents().DeleteDocument(call.context(), request, &response);
}

grpc::Status DeleteDocument(Connection& connection, const std::string& name) {
  v1::DeleteDocumentRequest request;
  v1::DeleteDocumentResponse response;
  request.set_name(name);
  Call call(connection);
  return connection.documents().DeleteDocument(call.context(), request, &response);
}

}  // namespace annulus::client
