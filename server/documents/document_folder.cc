#include "server/documents/document_folder.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <functional>
#include <optional>
#include <span>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "engine/disk/checksum.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr char kSuffix[] = ".document";
constexpr size_t kNumberDigits = 16;
constexpr uint64_t kMostNumber = uint64_t{1} << 63;  // no daemon uploads so many
// So much is written before it is flushed, so that no flush takes long.
constexpr uint64_t kFlushBytes = uint64_t{16} << 20;
constexpr size_t kMostCopiedBytes = size_t{1} << 20;  // for a call to the disk

std::string NameOf(uint64_t number) {
  return absl::StrCat(absl::Hex(number, absl::kZeroPad16), kSuffix);
}

// Nothing for a name that NameOf would not give.
std::optional<uint64_t> NumberOf(absl::string_view name) {
  uint64_t number = 0;
  if (name.size() != kNumberDigits + sizeof(kSuffix) - 1 || !absl::EndsWith(name, kSuffix) ||
      !absl::SimpleHexAtoi(name.substr(0, kNumberDigits), &number) || NameOf(number) != name) {
    return std::nullopt;
  }
  return number;
}

std::span<const std::byte> BytesOf(absl::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

struct DocumentFolder::Shared {
  Shared(std::unique_ptr<PrivateFolder> opened, DiskCalls& system_calls)
      : folder(std::move(opened)), calls(system_calls) {}

  // The error of a failed call to the disk.
  absl::Status Failed(absl::string_view what, int error);
  absl::Status Damaged(const std::string& name, absl::string_view what);
  void Tell(std::string error);

  const std::unique_ptr<PrivateFolder> folder;
  DiskCalls& calls;
  std::atomic<int64_t> errors{0};
  mutable std::mutex mutex;
  std::string last_error;
};

void DocumentFolder::Shared::Tell(std::string error) {
  ++errors;
  std::lock_guard lock(mutex);
  last_error = std::move(error);
}

absl::Status DocumentFolder::Shared::Failed(absl::string_view what, int error) {
  const std::string text =
      absl::StrCat(what, " in ", folder->path(), " failed: ", std::strerror(error));
  // The process is short of something, and the disk has not failed.
  if (error == EMFILE || error == ENFILE || error == ENOMEM) {
    return absl::ResourceExhaustedError(text);
  }
  Tell(text);
  if (error != ENOSPC && error != EDQUOT && error != EFBIG) return absl::InternalError(text);
  return ReasonError(absl::StatusCode::kResourceExhausted, v1::ERROR_REASON_DOCUMENT_STORE_FULL,
                     "the disk that keeps the documents is full; delete documents, or give the "
                     "server's --documents a larger disk");
}

absl::Status DocumentFolder::Shared::Damaged(const std::string& name, absl::string_view what) {
  Tell(absl::StrCat(folder->path(), "/", name, ": ", what));
  return ReasonError(absl::StatusCode::kDataLoss, v1::ERROR_REASON_DOCUMENT_DAMAGED,
                     absl::StrCat("the disk holds other bytes than were uploaded: ", what,
                                  "; delete the document and upload it again"));
}

// After it is made, only the thread of the disk uses what is not constant, except for `room`, which
// belongs to the upload until it ends.
class DocumentFile {
 public:
  using Shared = DocumentFolder::Shared;

  // `name`: that of the number for a file of an earlier process, another one for a new file.
  DocumentFile(std::shared_ptr<Shared> shared, RoomLease room, uint64_t number, std::string name)
      : shared_(std::move(shared)),
        room_(std::move(room)),
        number_(number),
        name_(std::move(name)) {}
  ~DocumentFile() { Close(); }

  absl::Status Create();
  absl::Status Append(absl::string_view bytes);
  absl::Status Complete(const FileFacts& facts, absl::string_view notes);
  absl::Status Publish();
  absl::Status Remove();
  absl::StatusOr<OpenTextPtr> Open() const;
  size_t LengthOnDisk() const;  // 0 for what is no plain file

  RoomLease& room() { return room_; }
  uint64_t size() const { return size_; }
  std::string Path() const { return absl::StrCat(shared_->folder->path(), "/", NameOf(number_)); }

 private:
  absl::Status Write(std::span<const std::byte> bytes, uint64_t offset);
  absl::Status Flush();
  void Close() {
    if (descriptor_ >= 0) close(std::exchange(descriptor_, -1));
  }

  const std::shared_ptr<Shared> shared_;
  RoomLease room_;
  const uint64_t number_;
  std::string name_;          // in the folder; empty: it was removed
  absl::Status unpublished_;  // why it did not get its name
  int descriptor_ = -1;
  uint64_t size_ = 0;  // of the text so far
  uint64_t unflushed_ = 0;
  std::string block_;  // the last block so far, less than whole
  std::vector<Checksum> sums_;
};

class OpenText {
 public:
  OpenText(std::shared_ptr<DocumentFolder::Shared> shared, std::string name, int descriptor)
      : shared_(std::move(shared)), name_(std::move(name)), descriptor_(descriptor) {}
  ~OpenText() { close(descriptor_); }
  OpenText(const OpenText&) = delete;
  OpenText& operator=(const OpenText&) = delete;

  absl::Status Begin();
  absl::StatusOr<std::string> Next();
  const FileFacts& facts() const { return facts_; }
  const std::string& notes() const { return notes_; }

 private:
  absl::Status Read(std::span<std::byte> bytes, uint64_t offset);
  absl::Status ReadNotes();

  const std::shared_ptr<DocumentFolder::Shared> shared_;
  const std::string name_;
  const int descriptor_;
  FileFacts facts_;
  std::string notes_;
  uint64_t next_ = 0;  // block
};

absl::Status DocumentFile::Create() {
  descriptor_ = shared_->calls.Open(shared_->folder->descriptor(), name_,
                                    O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (descriptor_ >= 0) return absl::OkStatus();
  name_.clear();
  return shared_->Failed("creating a document's file", errno);
}

absl::Status DocumentFile::Write(std::span<const std::byte> bytes, uint64_t offset) {
  const int error = shared_->calls.WriteAll(descriptor_, bytes, static_cast<int64_t>(offset));
  if (error != 0) return shared_->Failed("writing a document's file", error);
  unflushed_ += bytes.size();
  return unflushed_ < kFlushBytes ? absl::OkStatus() : Flush();
}

absl::Status DocumentFile::Flush() {
  unflushed_ = 0;
  if (shared_->calls.Sync(descriptor_) == 0) return absl::OkStatus();
  return shared_->Failed("flushing a document's file", errno);
}

absl::Status DocumentFile::Append(absl::string_view bytes) {
  ANNULUS_RETURN_IF_ERROR(Write(BytesOf(bytes), kFileHeaderBytes + size_));
  size_ += bytes.size();
  while (!bytes.empty()) {
    const absl::string_view part = bytes.substr(0, kFileBlockBytes - block_.size());
    absl::StrAppend(&block_, part);
    bytes.remove_prefix(part.size());
    if (block_.size() < kFileBlockBytes) break;
    sums_.push_back(ChecksumOf(BytesOf(block_)));
    block_.clear();
  }
  return absl::OkStatus();
}

absl::Status DocumentFile::Complete(const FileFacts& facts, absl::string_view notes) {
  if (!block_.empty()) sums_.push_back(ChecksumOf(BytesOf(block_)));
  block_ = {};
  std::array<std::byte, kFileHeaderBytes> header;
  WriteFileHeader(facts, header);
  ANNULUS_RETURN_IF_ERROR(Write(std::as_bytes(std::span(sums_)), kFileHeaderBytes + size_));
  if (!notes.empty()) {
    const Checksum sum = ChecksumOf(BytesOf(notes));
    ANNULUS_RETURN_IF_ERROR(Write(BytesOf(notes), NotesAt(size_)));
    ANNULUS_RETURN_IF_ERROR(Write(sum, NotesAt(size_) + notes.size()));
  }
  ANNULUS_RETURN_IF_ERROR(Write(header, 0));
  ANNULUS_RETURN_IF_ERROR(Flush());
  sums_ = {};
  Close();
  return absl::OkStatus();
}

absl::Status DocumentFile::Publish() {
  const std::string name = NameOf(number_);
  if (name_.empty() || name_ == name || !unpublished_.ok()) return unpublished_;
  const int folder = shared_->folder->descriptor();
  if (shared_->calls.Rename(folder, name_, name) != 0) {
    unpublished_ = shared_->Failed("renaming a document's file", errno);
    return unpublished_;
  }
  name_ = name;
  if (shared_->calls.Sync(folder) != 0) {
    unpublished_ = shared_->Failed("flushing the folder of documents", errno);
  }
  return unpublished_;
}

absl::Status DocumentFile::Remove() {
  Close();
  if (name_.empty()) return absl::OkStatus();
  const int folder = shared_->folder->descriptor();
  if (shared_->calls.Remove(folder, name_) != 0 && errno != ENOENT) {
    return shared_->Failed("removing a document's file", errno);
  }
  name_.clear();
  room_.GiveBack();
  if (shared_->calls.Sync(folder) == 0) return absl::OkStatus();
  return shared_->Failed("flushing the folder of documents", errno);
}

absl::StatusOr<OpenTextPtr> DocumentFile::Open() const {
  const absl::Status gone = absl::NotFoundError("the document was deleted");
  if (name_.empty()) return gone;
  const int descriptor = shared_->calls.Open(shared_->folder->descriptor(), name_,
                                             O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (descriptor < 0) {
    if (errno == ENOENT) return shared_->Damaged(name_, "its file is gone");
    if (errno == ELOOP || errno == ENXIO) return shared_->Damaged(name_, "it is no plain file");
    return shared_->Failed("opening a document's file", errno);
  }
  auto text = std::make_shared<OpenText>(shared_, name_, descriptor);
  ANNULUS_RETURN_IF_ERROR(text->Begin());
  return text;
}

size_t DocumentFile::LengthOnDisk() const {
  struct stat state {};
  const int folder = shared_->folder->descriptor();
  const bool there = fstatat(folder, name_.c_str(), &state, AT_SYMLINK_NOFOLLOW) == 0;
  return there && S_ISREG(state.st_mode) ? static_cast<size_t>(state.st_size) : 0;
}

absl::Status OpenText::Read(std::span<std::byte> bytes, uint64_t offset) {
  const int error = shared_->calls.ReadAll(descriptor_, bytes, static_cast<int64_t>(offset));
  if (error == 0) return absl::OkStatus();
  if (error == ENODATA) return shared_->Damaged(name_, "the file is cut off");
  return shared_->Failed("reading a document's file", error);
}

absl::Status OpenText::Begin() {
  struct stat state {};
  if (fstat(descriptor_, &state) != 0) {
    return shared_->Failed("reading the size of a document's file", errno);
  }
  if (!S_ISREG(state.st_mode)) return shared_->Damaged(name_, "it is no plain file");
  std::array<std::byte, kFileHeaderBytes> header;
  ANNULUS_RETURN_IF_ERROR(Read(header, 0));
  absl::StatusOr<FileFacts> facts = ReadFileHeader(header);
  if (!facts.ok()) return shared_->Damaged(name_, facts.status().message());
  facts_ = *std::move(facts);
  const uint64_t bytes = FileBytes(facts_.size_bytes, facts_.notes_bytes);
  if (static_cast<uint64_t>(state.st_size) == bytes) return ReadNotes();
  return shared_->Damaged(name_, absl::StrCat("the file has ", state.st_size, " bytes, not the ",
                                              bytes, " of its text"));
}

absl::Status OpenText::ReadNotes() {
  if (facts_.notes_bytes == 0) return absl::OkStatus();
  notes_.resize(facts_.notes_bytes);
  const uint64_t at = NotesAt(facts_.size_bytes);
  Checksum sum;
  ANNULUS_RETURN_IF_ERROR(
      Read(std::as_writable_bytes(std::span(notes_.data(), notes_.size())), at));
  ANNULUS_RETURN_IF_ERROR(Read(sum, at + notes_.size()));
  if (ChecksumOf(BytesOf(notes_)) == sum) return absl::OkStatus();
  return shared_->Damaged(name_, "the checksum of its marks is wrong");
}

absl::StatusOr<std::string> OpenText::Next() {
  const uint64_t begin = next_ * kFileBlockBytes;
  if (begin >= facts_.size_bytes) return std::string();
  std::string block(std::min<uint64_t>(kFileBlockBytes, facts_.size_bytes - begin), '\0');
  Checksum sum;
  ANNULUS_RETURN_IF_ERROR(Read(std::as_writable_bytes(std::span(block.data(), block.size())),
                               kFileHeaderBytes + begin));
  ANNULUS_RETURN_IF_ERROR(
      Read(sum, kFileHeaderBytes + facts_.size_bytes + next_ * sizeof(Checksum)));
  if (ChecksumOf(BytesOf(block)) != sum) {
    return shared_->Damaged(name_, absl::StrCat("the checksum of the text's bytes ", begin, " to ",
                                                begin + block.size(), " is wrong"));
  }
  ++next_;
  return block;
}

DocumentFolder::DocumentFolder(std::shared_ptr<Shared> shared, std::shared_ptr<StoreRoom> room,
                               std::chrono::milliseconds most_call)
    : shared_(std::move(shared)), room_(std::move(room)), disk_(most_call) {}

DocumentFolder::~DocumentFolder() = default;

absl::StatusOr<std::unique_ptr<DocumentFolder>> DocumentFolder::Open(const std::string& path,
                                                                     const Options& options,
                                                                     DiskCalls& calls) {
  ANNULUS_ASSIGN_OR_RETURN(auto opened, PrivateFolder::Open(path));
  auto shared = std::make_shared<Shared>(std::move(opened), calls);
  auto room = std::make_shared<StoreRoom>(options.limit_bytes, StoreRoom::Of::kDisk);
  std::unique_ptr<DocumentFolder> folder(new DocumentFolder(shared, room, options.most_call));
  std::vector<uint64_t> numbers;
  const auto visit = [&](const std::string& name) {
    if (const auto number = NumberOf(name)) numbers.push_back(*number);
  };
  ANNULUS_RETURN_IF_ERROR(shared->folder->Visit(visit).status());
  std::sort(numbers.begin(), numbers.end(), std::greater<>());
  for (const uint64_t number : numbers) {
    folder->found_.push_back(std::make_shared<DocumentFile>(shared, RoomLease(room, TenantId()),
                                                            number, NameOf(number)));
  }
  if (numbers.empty()) return folder;
  if (numbers.front() >= kMostNumber) {
    return absl::FailedPreconditionError(
        absl::StrCat("folder ", path, ": no daemon has made its file ", NameOf(numbers.front()),
                     ", and no number is left for uploads; remove it"));
  }
  folder->next_number_ = numbers.front() + 1;
  return folder;
}

absl::StatusOr<DocumentFilePtr> DocumentFolder::Create(const TenantId& tenant,
                                                       const CancelFlag& cancel) {
  const uint64_t number = next_number_++;
  auto file =
      std::make_shared<DocumentFile>(shared_, RoomLease(room_, tenant), number,
                                     absl::StrCat(PrivateFolder::kUnfinished, NameOf(number)));
  bool begun = false;
  const absl::Status created = disk_.Run([file] { return file->Create(); }, cancel, &begun);
  if (created.ok()) return file;
  // A call that hangs may still create it. While it does, uploads come and are refused, and must
  // leave nothing for later.
  if (begun) RemoveLater(std::move(file));
  return created;
}

absl::Status DocumentFolder::Append(const DocumentFilePtr& file, absl::string_view bytes,
                                    const CancelFlag& cancel) {
  const size_t needed = FileBytes(file->size() + bytes.size());
  const RoomAnswer answer = file->room().TryResize(needed);
  if (answer != RoomAnswer::kGranted) return RoomFullError(answer, needed, *room_);
  while (!bytes.empty()) {
    // A copy, because the call may outlive the caller's wait.
    std::string part(bytes.substr(0, kMostCopiedBytes));
    bytes.remove_prefix(part.size());
    ANNULUS_RETURN_IF_ERROR(
        disk_.Run([file, part = std::move(part)] { return file->Append(part); }, cancel));
  }
  return absl::OkStatus();
}

absl::Status DocumentFolder::Complete(const DocumentFilePtr& file, const FileFacts& facts,
                                      std::string notes, const CancelFlag& cancel) {
  ANNULUS_CHECK(notes.size() == facts.notes_bytes && notes.size() <= kMostNotesBytes);
  const size_t needed = FileBytes(facts.size_bytes, facts.notes_bytes);
  const RoomAnswer answer = file->room().TryResize(needed);
  if (answer != RoomAnswer::kGranted) return RoomFullError(answer, needed, *room_);
  ANNULUS_CHECK(file->room().TrySetUse(RoomUse::kKept));
  return disk_.Run([file, facts, notes = std::move(notes)] { return file->Complete(facts, notes); },
                   cancel);
}

absl::Status DocumentFolder::Publish(const DocumentFilePtr& file, const CancelFlag& cancel) {
  return disk_.Run([file] { return file->Publish(); }, cancel);
}

absl::Status DocumentFolder::Remove(const DocumentFilePtr& file, const CancelFlag& cancel) {
  return disk_.Run([file] { return file->Remove(); }, cancel);
}

void DocumentFolder::RemoveLater(DocumentFilePtr file) {
  disk_.Post([file = std::move(file)] { return file->Remove(); });
}

absl::StatusOr<OpenTextPtr> DocumentFolder::OpenTextOf(const DocumentFilePtr& file,
                                                       const CancelFlag& cancel) {
  const auto opened = std::make_shared<absl::StatusOr<OpenTextPtr>>();
  ANNULUS_RETURN_IF_ERROR(disk_.Run(
      [file, opened] {
        *opened = file->Open();
        return opened->status();
      },
      cancel));
  return *std::move(*opened);
}

absl::StatusOr<std::string> DocumentFolder::ReadNext(const OpenTextPtr& text,
                                                     const CancelFlag& cancel) {
  const auto read = std::make_shared<absl::StatusOr<std::string>>();
  ANNULUS_RETURN_IF_ERROR(disk_.Run(
      [text, read] {
        *read = text->Next();
        return read->status();
      },
      cancel));
  return *std::move(*read);
}

const FileFacts& DocumentFolder::FactsOf(const OpenText& text) { return text.facts(); }
const std::string& DocumentFolder::NotesOf(const OpenText& text) { return text.notes(); }

void DocumentFolder::Count(const DocumentFilePtr& file, const FileFacts& facts) {
  file->room().Count(facts.tenant, FileBytes(facts.size_bytes, facts.notes_bytes));
}

void DocumentFolder::CountLost(const DocumentFilePtr& file, const CancelFlag& cancel) {
  ++lost_;
  if (file->room().bytes() > 0) return;
  const auto length = std::make_shared<size_t>(0);
  const absl::Status looked = disk_.Run(
      [file, length] {
        *length = file->LengthOnDisk();
        return absl::OkStatus();
      },
      cancel);
  // If the disk hangs, it has told nothing.
  if (looked.ok() && *length > 0) file->room().Count(TenantId(), *length);
}

std::string DocumentFolder::PathOf(const DocumentFile& file) { return file.Path(); }

DocumentFolder::Stats DocumentFolder::stats() const {
  std::lock_guard lock(shared_->mutex);
  return {room_->used(), room_->limit(), shared_->errors, shared_->last_error, lost_};
}

}  // namespace annulus::server
