#include "engine/tiers/disk_store.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

// Stores the time of use as the file's time, for the next start.
void SetTime(int file, int64_t use) {
  const timespec time{use / kSecond, use % kSecond};
  const timespec times[2] = {time, time};
  futimens(file, times);
}

}  // namespace

absl::StatusOr<std::unique_ptr<DiskStore>> DiskStore::Open(const std::string& folder,
                                                           int64_t limit_bytes, DiskCalls& calls,
                                                           const Clock& clock) {
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<DiskFolder> opened, DiskFolder::Open(folder));
  std::unique_ptr<DiskStore> store(new DiskStore(std::move(opened), limit_bytes, calls, clock));
  std::vector<EntryName> twins;
  const auto found = [&](const EntryName& name, int64_t time) {
    if (store->pages_.Find(name.key) != nullptr) {
      twins.push_back(name);
      return;
    }
    store->pages_.Add(name, time);
    store->pages_.Count(name.tenant, KnownPages::FileBytes(name.payload_bytes));
    store->last_use_ = std::max(store->last_use_, time);
  };
  std::vector<DeletionNote> notes;
  const auto noted = [&](const DeletionNote& note) {
    notes.push_back(note);
    store->last_use_ = std::max(store->last_use_, note.use);
  };
  const auto used = [&](const IdentityNote& note, int64_t time) {
    store->identities_.emplace_back(time, note);
  };
  ANNULUS_ASSIGN_OR_RETURN(store->rejects_, store->folder_->Scan(found, noted, used));
  store->RemoveTwins(std::move(twins));
  for (const DeletionNote& note : notes) store->RemoveNoted(note);
  constexpr int64_t kNoEnd = std::numeric_limits<int64_t>::max();
  const auto surplus =
      store->pages_.MakeRoom({.use = kNoEnd, .most_of_tenant = kNoEnd, .most = store->limit_});
  if (surplus.has_value()) store->RemoveFiles(*surplus).IgnoreError();
  return store;
}

// Files of pages that have another one, labelled with other documents: the process was killed
// between rewriting a page and removing its old file. None of them is labelled with all.
void DiskStore::RemoveTwins(std::vector<EntryName> twins) {
  for (size_t i = 0, all = twins.size(); i < all; ++i) {
    const std::optional<EntryName> other = pages_.Drop(twins[i].key);
    if (other.has_value()) twins.push_back(*other);
  }
  if (RemoveFiles(twins).ok()) rejects_ += std::ssize(twins);
}

absl::Status DiskStore::RemoveFiles(std::span<const EntryName> pages) {
  absl::Status status;
  for (const EntryName& page : pages) {
    // EISDIR: a folder with that name is not ours.
    if (calls_.Remove(folder_->descriptor(), page.Text()) == 0) continue;
    if (errno == ENOENT || errno == EISDIR) continue;
    status.Update(Failed("removing a page's file", errno));
  }
  return status;
}

// If the process is out of descriptors or memory, the disk has not failed and the store stays on.
absl::Status DiskStore::OpenFailed(absl::string_view what, int error) {
  if (error != EMFILE && error != ENFILE && error != ENOMEM) return Failed(what, error);
  return absl::ResourceExhaustedError(absl::StrCat(what, " failed: ", std::strerror(error)));
}

absl::Status DiskStore::Failed(absl::string_view what, int error) {
  ++io_errors_;
  absl::Status status = absl::UnavailableError(
      absl::StrCat(what, " in ", folder_->path(), " failed: ", std::strerror(error)));
  TurnOff(status);
  return status;
}

absl::Status DiskStore::WriteAll(int file, std::span<const std::byte> bytes, int64_t offset) {
  const int error = calls_.WriteAll(file, bytes, offset);
  return error == 0 ? absl::OkStatus() : Failed("writing a page", error);
}

absl::Status DiskStore::ReadAll(int file, std::span<std::byte> bytes, int64_t offset) {
  const int error = calls_.ReadAll(file, bytes, offset);
  if (error == ENODATA) return absl::DataLossError("the file is shorter than its page");
  return error == 0 ? absl::OkStatus() : Failed("reading a page", error);
}

absl::Status DiskStore::WriteFile(const EntryName& name, const PageMark& mark,
                                  std::span<const std::span<const std::byte>> payload,
                                  int64_t use) {
  const std::string unfinished = absl::StrCat(PrivateFolder::kUnfinished, next_file_++);
  const int file = calls_.Open(folder_->descriptor(), unfinished,
                               O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file < 0) return OpenFailed("creating a page's file", errno);
  bool renamed = false;
  const absl::Cleanup end = [&] {
    close(file);
    if (!renamed) folder_->Remove(unfinished);
  };
  EntryHeader header{mark, name.payload_bytes, ChecksumOf(payload)};
  std::array<std::byte, kEntryHeaderBytes> block;
  WriteHeader(header, block);
  ANNULUS_RETURN_IF_ERROR(WriteAll(file, block, 0));
  int64_t offset = kEntryHeaderBytes;
  for (const auto& part : payload) {
    ANNULUS_RETURN_IF_ERROR(WriteAll(file, part, offset));
    offset += static_cast<int64_t>(part.size());
  }
  SetTime(file, use);
  if (calls_.Rename(folder_->descriptor(), unfinished, name.Text()) != 0) {
    if (errno == EISDIR) return MeetFolder(name);
    return Failed("renaming a page's file", errno);
  }
  renamed = true;
  return absl::OkStatus();
}

// A folder that is not ours has the name of the page's file.
absl::Status DiskStore::MeetFolder(const EntryName& name) {
  std::string path = absl::StrCat(folder_->path(), "/", name.Text());
  std::lock_guard lock(mutex_);
  if (obstacle_.empty()) obstacle_ = std::move(path);
  return absl::FailedPreconditionError("a folder has the name of the page's file");
}

absl::StatusOr<bool> DiskStore::PutNew(const EntryName& name, const PageMark& mark,
                                       const PageSource& payload, int64_t use) {
  const int64_t bytes = KnownPages::FileBytes(name.payload_bytes);
  const std::string file = name.Text();
  std::optional<std::vector<EntryName>> given_up;
  {
    std::lock_guard lock(mutex_);
    given_up = pages_.MakeRoom(WantedFor(name, mark, use));
    if (!given_up.has_value()) {
      return absl::ResourceExhaustedError(
          "no room: all other pages are held or were used at least as recently");
    }
    pages_.Count(name.tenant, bytes);
  }
  bool fresh = false;
  bool unknown = false;  // a file was written, but `pages_` does not have it
  // Undoes what is left half-done, also if an allocation throws.
  const absl::Cleanup end = [&] {
    if (unknown) calls_.Remove(folder_->descriptor(), file);
    std::lock_guard lock(mutex_);
    if (!fresh) pages_.Count(name.tenant, -bytes);
  };
  RemoveFiles(*given_up).IgnoreError();
  Note(mark);
  const absl::Status written = WriteFile(name, mark, payload.parts(), use);
  bool forgotten = false;
  {
    std::lock_guard lock(mutex_);
    forgotten = written.ok() && IsForgotten(mark);
    if (written.ok() && !forgotten && pages_.Find(name.key) == nullptr) {
      unknown = true;
      pages_.Add(name, use);
      unknown = false;
      fresh = true;
    }
  }
  // A second writer of the same page would have the same file name.
  if (forgotten) ANNULUS_RETURN_IF_ERROR(RemoveFiles(std::vector{name}));
  if (!written.ok()) return written;
  return fresh;
}

// Renames the file, because its name contains its documents. A reader that opens the old name
// meanwhile gets a miss.
absl::StatusOr<bool> DiskStore::AddDocuments(const EntryName& from, const PageMark& mark) {
  EntryName to = from;
  to.documents.Add(mark.documents);
  if (calls_.Rename(folder_->descriptor(), from.Text(), to.Text()) != 0) {
    if (errno == ENOENT) return false;  // the page was dropped meanwhile
    return Failed("renaming a page's file", errno);
  }
  {
    std::lock_guard lock(mutex_);
    const KnownPages::Page* const page = pages_.Find(from.key);
    const bool same = page != nullptr && page->name.documents == from.documents;
    if (same) pages_.SetDocuments(from.key, to.documents);
    if (same && !IsForgotten(mark)) return false;
    if (same) pages_.Drop(from.key);
  }
  ANNULUS_RETURN_IF_ERROR(RemoveFiles(std::vector{to}));
  return false;
}

absl::StatusOr<std::optional<double>> DiskStore::Read(const EntryName& name,
                                                      const PageMark& expected,
                                                      const PageTarget& to, int64_t use) {
  const std::span<std::byte> payload = to.bytes();
  const int file = calls_.Open(folder_->descriptor(), name.Text(),
                               O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0);
  if (file < 0) {
    if (errno == ENOENT) return absl::NotFoundError("the page is gone");
    if (errno == ELOOP || errno == ENXIO) return absl::DataLossError("it is not a regular file");
    return OpenFailed("opening a page's file", errno);
  }
  const absl::Cleanup end = [&] { close(file); };
  struct stat state {};
  if (fstat(file, &state) != 0) return Failed("reading the size of a page's file", errno);
  if (!S_ISREG(state.st_mode) ||
      static_cast<uint64_t>(state.st_size) != kEntryHeaderBytes + payload.size()) {
    return absl::DataLossError("the file length differs from the page length");
  }
  std::array<std::byte, kEntryHeaderBytes> block;
  ANNULUS_RETURN_IF_ERROR(ReadAll(file, block, 0));
  ANNULUS_ASSIGN_OR_RETURN(const EntryHeader header, ReadHeader(block));
  if (header.payload_bytes != payload.size() || !SamePage(header.mark, expected)) {
    return absl::DataLossError("the file holds a different page than its name says");
  }
  ANNULUS_RETURN_IF_ERROR(ReadAll(file, payload, kEntryHeaderBytes));
  if (ChecksumOf(std::span<const std::byte>(payload)) != header.payload) {
    return absl::DataLossError("the page's checksum is wrong");
  }
  SetTime(file, use);
  Note(expected);
  return header.mark.coverage;
}

void DiskStore::Note(const PageMark& mark) {
  if (!noted_.exchange(true)) folder_->Leave({mark.identity});
}

std::vector<ContentHash> DiskStore::OtherIdentities(const ContentHash& identity) {
  std::stable_sort(identities_.begin(), identities_.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  std::vector<ContentHash> others;
  for (const auto& [time, note] : identities_) {
    if (note.identity == identity) continue;
    if (others.size() < kMostIdentities) {
      others.push_back(note.identity);
    } else {
      folder_->Remove(note.Text());
    }
  }
  identities_.clear();
  return others;
}

void DiskStore::LeaveNote(const DeletionNote& note) {
  const int file = calls_.Open(folder_->descriptor(), note.Text(),
                               O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (file >= 0) close(file);
}

void DiskStore::TakeBackNote(const DeletionNote& note) {
  calls_.Remove(folder_->descriptor(), note.Text());
}

void DiskStore::RemoveNoted(const DeletionNote& note) {
  std::vector<EntryName> removed;
  std::optional<KnownPages::Order> done;
  pages_.VisitSome(note.tenant, std::numeric_limits<int>::max(), done,
                   [&](const KnownPages::Page& page) {
                     if (!note.Names(page.name, page.use)) return;
                     removed.push_back(page.name);
                     pages_.Drop(removed.back().key);
                   });
  if (RemoveFiles(removed).ok()) TakeBackNote(note);
}

// The file counts towards the limit until RemoveForgotten has removed it.
bool DiskStore::OnDropped(const EntryName& name) {
  pages_.Count(name.tenant, KnownPages::FileBytes(name.payload_bytes));
  return true;
}

absl::Status DiskStore::RemoveForgotten(const EntryName& page) {
  bool again = false;
  {
    std::lock_guard lock(mutex_);
    const KnownPages::Page* const known = pages_.Find(page.key);
    again = known != nullptr && known->name.Text() == page.Text();
  }
  if (!again) ANNULUS_RETURN_IF_ERROR(RemoveFiles(std::vector{page}));
  std::lock_guard lock(mutex_);
  pages_.Count(page.tenant, -KnownPages::FileBytes(page.payload_bytes));
  return absl::OkStatus();
}

}  // namespace annulus
