#include "server/documents/upload.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "engine/text/utf8.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/identity/quota_error.h"

namespace annulus::server {
namespace {

constexpr size_t kHexDigestSize = 64;
// The text is tokenized in parts of this size, because what a part may take (its ids, if each byte
// gives one, and what the tokenizer needs for it) is reserved before: were it a whole chunk, a few
// uploads would fill the store for a moment though their documents have room.
constexpr size_t kPartBytes = 1 << 10;
constexpr int64_t kMostAgeSeconds = int64_t{100} * 366 * 24 * 3600;

bool IsHexDigest(absl::string_view text) {
  if (text.size() != kHexDigestSize) return false;
  for (const char c : text) {
    if (!absl::ascii_isdigit(c) && !(c >= 'a' && c <= 'f')) return false;
  }
  return true;
}

absl::Status Incomplete(absl::string_view message) {
  return ReasonError(absl::StatusCode::kInvalidArgument, v1::ERROR_REASON_DOCUMENT_INCOMPLETE,
                     message);
}

int64_t UnixSeconds() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::seconds>(now).count();
}

}  // namespace

Upload::~Upload() {
  if (file_ != nullptr) store_.folder()->RemoveLater(std::move(file_));
}

absl::Status Upload::Accept(const v1::UploadDocumentRequest& part) {
  switch (part.part_case()) {
    case v1::UploadDocumentRequest::kHeader:
      return AcceptHeader(part.header());
    case v1::UploadDocumentRequest::kChunk:
      return AcceptChunk(part.chunk());
    default:
      return FieldError("part", "the message has neither a header nor a chunk; send one of them");
  }
}

absl::Status Upload::AcceptHeader(const v1::DocumentHeader& header) {
  if (has_header_)
    return FieldError("header", "this is the second header; send one, before the first chunk");
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("header.name", header.name()));
  if (header.has_sha256()) {
    if (!IsHexDigest(header.sha256())) {
      return FieldError("header.sha256",
                        absl::StrCat(QuoteName(header.sha256()),
                                     " is not allowed: 64 lower-case hexadecimal digits"));
    }
    expected_sha256_ = header.sha256();
  }
  if (header.has_total_bytes()) {
    if (header.total_bytes() < 1) {
      return FieldError("header.total_bytes",
                        absl::StrCat(header.total_bytes(), " is not allowed: at least 1"));
    }
    total_bytes_ = static_cast<size_t>(header.total_bytes());
  }
  if (header.title().size() > kLongestTitle) {
    return FieldError("header.title", absl::StrCat("has ", header.title().size(),
                                                   " bytes; allowed are 0 to ", kLongestTitle));
  }
  // Lists and templates are made of it. Not every transport has checked it.
  if (const std::optional<size_t> bad = FirstInvalidUtf8(header.title())) {
    return FieldError("header.title", absl::StrCat("is not UTF-8 at byte ", *bad));
  }
  ANNULUS_ASSIGN_OR_RETURN(notes_, ReadNotes(header));
  if (total_bytes_) ANNULUS_RETURN_IF_ERROR(CheckMarks(notes_, *total_bytes_));
  name_ = header.name();
  title_ = header.title();
  transient_ = header.transient();
  has_header_ = true;
  ANNULUS_RETURN_IF_ERROR(store_.CheckRoom(tenant_, transient_, total_bytes_.value_or(0)));
  if (!notes_.empty()) ANNULUS_RETURN_IF_ERROR(TakeMemory(0, 0));
  if (transient_ || store_.folder() == nullptr) return absl::OkStatus();
  ANNULUS_ASSIGN_OR_RETURN(file_, store_.folder()->Create(tenant_, cancel_));
  return absl::OkStatus();
}

absl::Status Upload::AcceptChunk(const v1::DocumentChunk& chunk) {
  if (!has_header_) return Incomplete("the first message is a chunk; send the header first");
  if (chunk.offset() < 0 || static_cast<size_t>(chunk.offset()) != received_) {
    return ReasonError(
        absl::StatusCode::kInvalidArgument, v1::ERROR_REASON_DOCUMENT_OUT_OF_ORDER,
        absl::StrCat("a chunk has the offset ", chunk.offset(), ", but ", received_,
                     " bytes have arrived: chunks were lost, repeated or reordered; upload the "
                     "document again"),
        {{"expected_offset", absl::StrCat(received_)}, {"offset", absl::StrCat(chunk.offset())}});
  }
  if (chunk.data().empty())
    return FieldError("chunk.data", "it is empty; a chunk has at least 1 byte");
  const size_t size = received_ + chunk.data().size();
  if (total_bytes_ && size > *total_bytes_) {
    return FieldError(
        "chunk.data",
        absl::StrCat(
            size, " bytes have arrived, more than the ", *total_bytes_,
            " of header.total_bytes; set that to the size of the document, or leave it out"));
  }
  if (size > store_.limits().max_document_bytes) return store_.CheckRoom(tenant_, transient_, size);
  ANNULUS_RETURN_IF_ERROR(Take(chunk.data()));
  if (file_ == nullptr) return absl::OkStatus();
  return store_.folder()->Append(file_, chunk.data(), cancel_);
}

absl::Status Upload::Take(absl::string_view bytes) {
  // Even a short document takes an entry and memory.
  const size_t beside = received_ == 0 ? title_.size() + DocumentStore::kMemoryPerDocument : 0;
  ANNULUS_RETURN_IF_ERROR(TakeShare(beside + bytes.size()));
  received_ += bytes.size();
  characters_ += CountCharacters(bytes);
  hash_.Update(bytes);
  return Tokenize(bytes);
}

absl::Status Upload::Tokenize(absl::string_view bytes) {
  while (!bytes.empty()) {
    const absl::string_view part = bytes.substr(0, kPartBytes);
    bytes.remove_prefix(part.size());
    // A byte gives at most one id, unless the normal form is longer than the text.
    ANNULUS_RETURN_IF_ERROR(TakeMemory(part.size(), part.size() * (1 + sizeof(int32_t))));
    if (notes_.keeps_text) notes_.text.Append(part);
    fresh_.clear();
    const absl::Status status = stream_->Append(part, fresh_);
    if (absl::IsInvalidArgument(status)) return FieldError("chunk.data", status.message());
    ANNULUS_RETURN_IF_ERROR(status);
    ANNULUS_RETURN_IF_ERROR(KeepFresh());
  }
  return absl::OkStatus();
}

absl::Status Upload::KeepFresh() {
  ANNULUS_RETURN_IF_ERROR(TakeMemory(fresh_.size(), fresh_.capacity() * sizeof(int32_t)));
  tokens_.Append(fresh_);
  if (fresh_.capacity() > kPartBytes) fresh_ = {};  // the tokenizer had held much of the text back
  ANNULUS_RETURN_IF_ERROR(TakeMemory(0, fresh_.capacity() * sizeof(int32_t)));
  return CheckContext();
}

absl::Status Upload::CheckContext() const {
  const int64_t context = engine_.model().max_context;
  if (restoring_ || static_cast<int64_t>(tokens_.size()) < context) return absl::OkStatus();
  const std::string bytes = total_bytes_ && received_ < *total_bytes_
                                ? absl::StrCat("the first ", received_, " of ", *total_bytes_)
                                : absl::StrCat(received_);
  return ReasonError(
      absl::StatusCode::kOutOfRange, v1::ERROR_REASON_CONTEXT_TOO_LONG,
      absl::StrCat(bytes, " bytes of the document are ", tokens_.size(),
                   " tokens, and the model's context holds ", context,
                   ", including question and answer; split the document"),
      {{"needed", absl::StrCat(tokens_.size() + 1)}, {"available", absl::StrCat(context)}});
}

// Takes memory for the ids so far and `more_ids`, for what the tokenizer holds back, and for
// `others`.
absl::Status Upload::TakeMemory(size_t more_ids, size_t others) {
  const size_t held_back = stream_ == nullptr ? 0 : stream_->memory_bytes();
  return store_.Resize(lease_, tenant_,
                       tokens_.memory_bytes_with(more_ids) + held_back + others + title_.size() +
                           NotesMemory(more_ids) + DocumentStore::kMemoryPerDocument);
}

// Of notes and places, when `more_text` more bytes have been read.
size_t Upload::NotesMemory(size_t more_text) const {
  const size_t places = stream_ == nullptr ? places_.capacity() : stream_->places().capacity();
  return notes_.memory_bytes_with(more_text) +
         (places + more_text / kPlaceTokens) * sizeof(TokenPlace);
}

// Takes more of the tenant's quotas. Its own transient documents go for it, since the tenant cannot
// know which ones are in the way.
absl::Status Upload::TakeShare(size_t bytes) {
  const std::optional<QuotaRefusal> refusal =
      share_.Grow(bytes, [this] { return store_.EvictOldest(tenant_); });
  return refusal ? QuotaError(tenant_, *refusal) : absl::OkStatus();
}

absl::Status Upload::CheckComplete() const {
  if (!has_header_) return Incomplete("the upload ended without a header");
  if (total_bytes_ && received_ < *total_bytes_) {
    return Incomplete(absl::StrCat("the upload ended after ", received_, " of ", *total_bytes_,
                                   " bytes; nothing was stored"));
  }
  if (received_ == 0) return Incomplete("the upload has no chunk: a document cannot be empty");
  return CheckMarks(notes_, received_);
}

absl::StatusOr<Upload::Result> Upload::Finish() {
  ANNULUS_ASSIGN_OR_RETURN(const std::string sha256, End());
  if (file_ != nullptr) {
    std::string notes = NotesBytes(notes_);
    const FileFacts facts{tenant_, name_, title_, received_, sha256, UnixSeconds(), notes.size()};
    ANNULUS_RETURN_IF_ERROR(store_.folder()->Complete(file_, facts, std::move(notes), cancel_));
  }
  return Store(sha256, std::chrono::steady_clock::now());
}

absl::StatusOr<DocumentPtr> Upload::Restore(const DocumentFilePtr& file, const OpenTextPtr& text) {
  const FileFacts& facts = DocumentFolder::FactsOf(*text);
  name_ = facts.name;
  title_ = facts.title;
  ANNULUS_ASSIGN_OR_RETURN(notes_, ParseNotes(DocumentFolder::NotesOf(*text)));
  ANNULUS_RETURN_IF_ERROR(CheckMarks(notes_, facts.size_bytes));
  restoring_ = true;
  ANNULUS_CHECK(lease_.TrySetUse(RoomUse::kRestored));
  while (true) {
    ANNULUS_ASSIGN_OR_RETURN(const std::string block, store_.folder()->ReadNext(text, cancel_));
    if (block.empty()) break;
    ANNULUS_RETURN_IF_ERROR(Take(block));
  }
  const std::string sha256 = hash_.FinishHex();
  if (sha256 != facts.sha256) {
    return absl::DataLossError(
        absl::StrCat("the text has the SHA-256 ", sha256, ", not ", facts.sha256));
  }
  ANNULUS_RETURN_IF_ERROR(EndText());
  file_ = file;
  const std::chrono::seconds age(
      std::clamp<int64_t>(UnixSeconds() - facts.stored_at, 0, kMostAgeSeconds));
  ANNULUS_ASSIGN_OR_RETURN(Result result, Store(sha256, std::chrono::steady_clock::now() - age));
  return std::move(result.document);
}

absl::StatusOr<DocumentPtr> Upload::FinishUnstored() {
  ANNULUS_ASSIGN_OR_RETURN(const std::string sha256, End());
  return MakeDocument(sha256, std::chrono::steady_clock::now());
}

// Checks length and hash, and returns the hash.
absl::StatusOr<std::string> Upload::End() {
  ANNULUS_RETURN_IF_ERROR(CheckComplete());
  const std::string sha256 = hash_.FinishHex();
  if (expected_sha256_ && sha256 != *expected_sha256_) {
    return ReasonError(
        absl::StatusCode::kInvalidArgument, v1::ERROR_REASON_DOCUMENT_HASH_MISMATCH,
        absl::StrCat("the bytes that arrived have the SHA-256 ", sha256, ", but the header says ",
                     *expected_sha256_, "; nothing was stored: upload the document again"));
  }
  ANNULUS_RETURN_IF_ERROR(EndText());
  return sha256;
}

// Ends the text and takes its last ids.
absl::Status Upload::EndText() {
  fresh_.clear();
  const absl::Status status = stream_->Finish(fresh_);
  if (absl::IsInvalidArgument(status)) return FieldError("chunk.data", status.message());
  ANNULUS_RETURN_IF_ERROR(status);
  ANNULUS_RETURN_IF_ERROR(KeepFresh());
  holds_end_mark_ = stream_->holds_end_mark();
  places_ = stream_->places();
  stream_.reset();
  fresh_ = {};
  tokens_.Close();
  return TakeMemory(0, 0);
}

std::shared_ptr<StoredDocument> Upload::MakeDocument(const std::string& sha256,
                                                     SteadyTime stored_at) {
  auto document = std::make_shared<StoredDocument>(
      tenant_, name_, received_, sha256, std::move(tokens_), stored_at, std::move(lease_),
      std::move(title_), holds_end_mark_, std::move(share_), transient_);
  document->places = std::move(places_);
  document->characters = characters_;
  if (!notes_.empty()) {
    document->notes = std::make_shared<const DocumentNotes>(std::move(notes_));
    document->has_text = document->notes->keeps_text;
  }
  return document;
}

absl::StatusOr<Upload::Result> Upload::Store(const std::string& sha256, SteadyTime stored_at) {
  std::shared_ptr<StoredDocument> document = MakeDocument(sha256, stored_at);
  document->file = std::exchange(file_, nullptr);
  const StoredDocument* const ours = document.get();
  ANNULUS_ASSIGN_OR_RETURN(DocumentPtr stored, store_.Add(std::move(document), cancel_));
  const bool created = stored.get() == ours;
  return Result{std::move(stored), created};
}

}  // namespace annulus::server
