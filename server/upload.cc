#include "server/upload.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/errors.h"

namespace annulus {
namespace {

constexpr size_t kHexDigestSize = 64;

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

}  // namespace

absl::Status Upload::Accept(const v1::UploadDocumentRequest& part) {
  switch (part.part_case()) {
    case v1::UploadDocumentRequest::kHeader:
      return AcceptHeader(part.header());
    case v1::UploadDocumentRequest::kChunk:
      return AcceptChunk(part.chunk());
    default:
      return FieldError("part", "a message has neither a header nor a chunk");
  }
}

absl::Status Upload::AcceptHeader(const v1::DocumentHeader& header) {
  if (has_header_) return FieldError("header", "an upload has only one header");
  ANNULUS_RETURN_IF_ERROR(CheckDocumentName("header.name", header.name()));
  if (header.has_sha256()) {
    if (!IsHexDigest(header.sha256())) {
      return FieldError("header.sha256", "must be 64 lower-case hexadecimal digits");
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
  name_ = header.name();
  has_header_ = true;
  return store_.CheckRoom(total_bytes_.value_or(0));
}

absl::Status Upload::AcceptChunk(const v1::DocumentChunk& chunk) {
  if (!has_header_) return Incomplete("the first message must be the header");
  if (chunk.offset() < 0 || static_cast<size_t>(chunk.offset()) != text_.size()) {
    return ReasonError(absl::StatusCode::kInvalidArgument, v1::ERROR_REASON_DOCUMENT_OUT_OF_ORDER,
                       absl::StrCat("a chunk has offset ", chunk.offset(), " where ", text_.size(),
                                    " bytes have arrived: chunks were lost, doubled or reordered"),
                       {{"expected_offset", absl::StrCat(text_.size())},
                        {"offset", absl::StrCat(chunk.offset())}});
  }
  if (chunk.data().empty()) return FieldError("chunk.data", "a chunk must have at least 1 byte");
  const size_t size = text_.size() + chunk.data().size();
  if (total_bytes_ && size > *total_bytes_) {
    return FieldError("chunk.data",
                      absl::StrCat("more bytes arrived (", size, ") than the header announced (",
                                   *total_bytes_, ")"));
  }
  ANNULUS_RETURN_IF_ERROR(Reserve(size));
  text_.append(chunk.data());
  hash_.Update(chunk.data());
  return absl::OkStatus();
}

absl::Status Upload::Reserve(size_t text_bytes) {
  if (text_bytes > store_.LongestDocument()) return store_.CheckRoom(text_bytes);
  const size_t needed =
      text_bytes * DocumentStore::kMemoryPerByte + DocumentStore::kMemoryPerDocument;
  if (!lease_.TryResize(needed)) return StoreFullError(needed, lease_.budget());
  return absl::OkStatus();
}

absl::Status Upload::CheckComplete() const {
  if (!has_header_) return Incomplete("the upload ended without a header");
  if (total_bytes_ && text_.size() < *total_bytes_) {
    return Incomplete(absl::StrCat("the upload ended after ", text_.size(), " of ", *total_bytes_,
                                   " bytes; nothing was stored"));
  }
  if (text_.empty()) return Incomplete("the upload has no chunk: a document cannot be empty");
  return absl::OkStatus();
}

absl::StatusOr<Upload::Result> Upload::Finish(const Engine& engine) {
  ANNULUS_RETURN_IF_ERROR(CheckComplete());
  const std::string sha256 = hash_.FinishHex();
  if (expected_sha256_ && sha256 != *expected_sha256_) {
    return ReasonError(
        absl::StatusCode::kInvalidArgument, v1::ERROR_REASON_DOCUMENT_HASH_MISMATCH,
        absl::StrCat("the bytes that arrived have SHA-256 ", sha256, " and the header announced ",
                     *expected_sha256_, "; nothing was stored"));
  }
  auto tokens = engine.Tokenize(text_, /*add_special=*/false);
  if (!tokens.ok()) {
    if (!absl::IsInvalidArgument(tokens.status())) return tokens.status();
    return FieldError("chunk.data", tokens.status().message());
  }
  const int64_t context = engine.model().max_context;
  if (static_cast<int64_t>(tokens->size()) >= context) {
    return ReasonError(
        absl::StatusCode::kOutOfRange, v1::ERROR_REASON_CONTEXT_TOO_LONG,
        absl::StrCat("the document has ", tokens->size(), " tokens and the model's context holds ",
                     context, ", a question and its answer included; split the document"),
        {{"needed", absl::StrCat(tokens->size() + 1)}, {"available", absl::StrCat(context)}});
  }
  const size_t size_bytes = text_.size();
  std::string().swap(text_);
  tokens->shrink_to_fit();
  const size_t kept = tokens->size() * sizeof(int32_t) + DocumentStore::kMemoryPerDocument;
  if (!lease_.TryResize(kept)) return StoreFullError(kept, lease_.budget());
  auto document = std::make_shared<StoredDocument>(
      StoredDocument{name_, size_bytes, sha256, *std::move(tokens),
                     std::chrono::steady_clock::now(), std::move(lease_)});
  const StoredDocument* const ours = document.get();
  ANNULUS_ASSIGN_OR_RETURN(DocumentPtr stored, store_.Add(std::move(document)));
  const bool created = stored.get() == ours;
  return Result{std::move(stored), created};
}

}  // namespace annulus
