#include "server/http/files/upload_exchange.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/stored_documents.h"
#include "server/http/attached_documents.h"
#include "server/http/files/file_json.h"
#include "server/work/guarded.h"

namespace annulus::server {
namespace {

// Copies of a piece, and what the form's reader keeps.
constexpr size_t kUploadWorkBytes = 8 * BodyBytes::kPiece;
// Enough to recognise a file that is not text.
constexpr size_t kFileBeginning = 8;
// Of fields that are not used.
constexpr size_t kLongestFormValue = 1024;

// Names the field in an error about the file.
absl::Status WithFile(const absl::Status& status) {
  if (status.GetPayload(kFieldPayload).has_value()) return MoveField(status, "file");
  const bool is_about_it = absl::IsOutOfRange(status) || absl::IsUnimplemented(status);
  return is_about_it ? WithField(status, "file") : status;
}

// "dir\\report.txt" -> "report.txt"
absl::string_view LastNameOf(absl::string_view path) {
  const size_t slash = path.find_last_of("/\\");
  return slash == absl::string_view::npos ? path : path.substr(slash + 1);
}

}  // namespace

UploadExchange::UploadExchange(ServiceContext& context, CallContext call, Asked asked,
                               std::shared_ptr<HttpReply> reply)
    : context_(context),
      call_(std::move(call)),
      asked_(std::move(asked)),
      reply_(std::move(reply)),
      cancel_(&context.pool.all()),
      work_(context.prompts),
      reader_(asked_.boundary, *this) {}

std::shared_ptr<UploadExchange> UploadExchange::Create(ServiceContext& context, CallContext call,
                                                       Asked asked,
                                                       std::shared_ptr<HttpReply> reply) {
  std::shared_ptr<UploadExchange> upload(
      new UploadExchange(context, std::move(call), std::move(asked), std::move(reply)));
  context.lifecycle.FollowUntilDrain(*upload);
  return upload;
}

void UploadExchange::Post(BodyBytes part, bool last) {
  const size_t size = part.size();
  received_.emplace(part.TakeMemory());
  auto pieces = std::make_shared<std::deque<std::string>>(part.TakePieces());
  const auto run = [self = shared_from_this(), pieces, last](const WorkTurn& turn) {
    self->Work(*pieces, last, turn);
  };
  absl::Status status;
  {
    std::lock_guard lock(mutex_);
    status = aborted_;
    busy_ = status.ok();
    job_ = context_.pool.NewId();
  }
  if (status.ok()) {
    status = Guarded([&] {
      const bool taken = context_.pool.TryRun(job_, {call_.method, ClientOf(call_), size, run});
      return taken ? absl::OkStatus() : context_.PoolRefusal();
    });
  }
  if (!status.ok()) End(status, last);
}

void UploadExchange::Work(const std::deque<std::string>& pieces, bool last, const WorkTurn& turn) {
  cancel_.Use(&turn);
  absl::Status status = Guarded([&] { return Read(pieces, last); });
  cancel_.Use(nullptr);
  received_.reset();
  {
    std::lock_guard lock(mutex_);
    busy_ = false;
    if (status.ok()) status = aborted_;
    // Under the lock: the answer of a drain must not come before.
    if (!last && status.ok()) return reply_->Send("", HttpReply::End::kReadOn);
  }
  End(std::move(status), last);
}

absl::Status UploadExchange::Read(const std::deque<std::string>& pieces, bool last) {
  ANNULUS_RETURN_IF_ERROR(work_.Hold(CallMemory::kWork, kUploadWorkBytes));
  for (const std::string& piece : pieces) {
    if (cancel_.cancelled()) return absl::CancelledError("the client went away");
    ANNULUS_RETURN_IF_ERROR(reader_.Take(piece));
  }
  return last ? Complete() : absl::OkStatus();
}

absl::Status UploadExchange::OnPart(const FormPart& part) {
  field_ = part;
  value_.clear();
  return part.name == "file" ? BeginFile(part) : absl::OkStatus();
}

absl::Status UploadExchange::BeginFile(const FormPart& part) {
  if (upload_.has_value()) return FieldError("file", "is given twice; send one file");
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context_.lifecycle.engine_for_changes());
  upload_.emplace(context_.documents, *engine, call_.caller.tenant, cancel_,
                  DocumentShare(context_.quotas, call_.caller));
  v1::UploadDocumentRequest header;
  header.mutable_header()->set_name(NewFileId());
  header.mutable_header()->set_keep_text(true);  // for answers that quote it
  header.mutable_header()->set_title(std::string(LastNameOf(part.filename.value_or(""))));
  const absl::Status status = upload_->Accept(header);
  if (!status.GetPayload(kFieldPayload).has_value()) return status;
  return FieldError("file", "has a name that is not allowed: it must be UTF-8, at most 1024 bytes");
}

absl::Status UploadExchange::OnData(absl::string_view bytes) {
  if (field_.name != "file") {
    if (value_.size() + bytes.size() > kLongestFormValue) {
      return FieldError(field_.name, absl::StrCat("has more than ", kLongestFormValue, " bytes"));
    }
    value_.append(bytes.data(), bytes.size());
    return absl::OkStatus();
  }
  if (is_checked_) return PassOn(bytes);
  const size_t count = std::min(bytes.size(), kFileBeginning - beginning_.size());
  beginning_.append(bytes.data(), count);
  if (beginning_.size() < kFileBeginning) return absl::OkStatus();
  is_checked_ = true;
  ANNULUS_RETURN_IF_ERROR(WithFile(CheckIsText(field_.content_type, beginning_)));
  ANNULUS_RETURN_IF_ERROR(PassOn(beginning_));
  return bytes.size() == count ? absl::OkStatus() : PassOn(bytes.substr(count));
}

absl::Status UploadExchange::PassOn(absl::string_view bytes) {
  v1::UploadDocumentRequest part;
  part.mutable_chunk()->set_offset(static_cast<int64_t>(size_));
  part.mutable_chunk()->set_data(bytes.data(), bytes.size());
  size_ += bytes.size();
  return WithFile(upload_->Accept(part));
}

absl::Status UploadExchange::OnPartEnd() {
  if (field_.name == "file") {
    if (std::exchange(is_checked_, true)) return absl::OkStatus();
    ANNULUS_RETURN_IF_ERROR(WithFile(CheckIsText(field_.content_type, beginning_)));
    return beginning_.empty() ? absl::OkStatus() : PassOn(beginning_);
  }
  // What a file is for changes nothing here.
  if (field_.name == "purpose") return absl::OkStatus();
  return FieldError(field_.name,
                    absl::StartsWith(field_.name, "expires")
                        ? "this server keeps files until they are deleted; leave it out"
                        : "this server does not know this field; leave it out");
}

absl::Status UploadExchange::Complete() {
  ANNULUS_RETURN_IF_ERROR(reader_.Finish());
  if (!upload_.has_value()) return FieldError("file", "is required: the text of a document");
  if (size_ == 0) return FieldError("file", "is empty");
  absl::StatusOr<Upload::Result> result = upload_->Finish();
  if (!result.ok()) return WithFile(result.status());
  std::lock_guard lock(mutex_);
  result_ = *std::move(result);
  return absl::OkStatus();
}

void UploadExchange::Refuse(const absl::Status& status) { End(status, /*whole=*/false); }

void UploadExchange::End(absl::Status status, bool whole) {
  Upload::Result result;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(ended_, true)) return;
    busy_ = false;
    // If a drain ended the upload, report the drain instead of the error that the job saw.
    if (!status.ok() && !aborted_.ok()) status = aborted_;
    if (status.ok() && gone_) status = absl::CancelledError("the client went away");
    if (!status.ok() && result_.created) context_.documents.Withdraw(result_.document);
    result = result_;
  }
  NoteUpload(context_, call_.caller, status, result);
  const CallEnd end = context_.Conclude(call_, status);
  if (!status.ok()) {
    return reply_->Send(asked_.terms.FormatError(ToHttpError(end), whole), HttpReply::End::kLast);
  }
  HttpAnswer answer{.content_type = "application/json",
                    .body = FileJson(*result.document, /*kept=*/nullptr),
                    .headers = RequestIdHeaders(end.request_id)};
  reply_->Send(asked_.terms.Format(std::move(answer), whole), HttpReply::End::kLast);
}

void UploadExchange::OnGone() {
  cancel_.Cancel();
  JobId job = 0;
  {
    std::lock_guard lock(mutex_);
    gone_ = true;
    // The client never learned the document's id.
    if (ended_ && result_.created) context_.documents.Withdraw(result_.document);
    if (busy_) job = job_;
  }
  if (job == 0 || context_.pool.Cancel(job)) {
    End(absl::CancelledError("the client went away"), /*whole=*/false);
  }
}

void UploadExchange::OnOver() { context_.lifecycle.Leave(*this); }

void UploadExchange::Abort(absl::Status status) {
  std::lock_guard lock(mutex_);
  if (ended_ || !aborted_.ok()) return;
  aborted_ = status;
  if (busy_) return;  // the job ends it
  // Not now: the caller holds a lock.
  const auto end = [self = shared_from_this(), status = std::move(status)](const WorkTurn&) {
    self->End(status, /*whole=*/false);
  };
  if (!context_.pool.TryRun(context_.pool.NewId(), {call_.method, ClientOf(call_), 0, end})) {
    reply_->Send("", HttpReply::End::kBreak);
  }
}

}  // namespace annulus::server
