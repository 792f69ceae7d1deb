#include "engine/tiers/disk_folder.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kEntrySuffix[] = ".page";
constexpr char kNotePrefix[] = "deleted-";
constexpr char kIdentityPrefix[] = "identity-";

absl::Status FolderError(const std::string& path, absl::string_view what) {
  return absl::FailedPreconditionError(absl::StrCat("folder ", path, ": ", what));
}

std::string Hex(const ContentHash& hash) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
}

absl::Status CheckOwner(const std::string& path, int descriptor) {
  struct stat state {};
  if (fstat(descriptor, &state) != 0) return FolderError(path, std::strerror(errno));
  if (state.st_uid != geteuid()) {
    return FolderError(
        path, absl::StrCat("its owner is user id ", state.st_uid, ", but the daemon runs as ",
                           geteuid(), "; choose a folder that the daemon's user owns"));
  }
  if ((state.st_mode & 077) != 0) {
    return FolderError(
        path,
        absl::StrCat("other users can access it, and it holds what clients sent; run chmod 700 ",
                     path));
  }
  return absl::OkStatus();
}

// In ns; a time out of range becomes the nearest one in range.
int64_t TimeOf(const timespec& time) {
  constexpr int64_t kSecond = 1'000'000'000;
  constexpr int64_t kMostSeconds = std::numeric_limits<int64_t>::max() / kSecond - 1;
  return std::clamp<int64_t>(time.tv_sec, 0, kMostSeconds) * kSecond + time.tv_nsec;
}

}  // namespace

uint64_t TenantPart(const ContentHash& tenant) {
  uint64_t part;
  std::memcpy(&part, tenant.data(), sizeof(part));
  return part;
}

std::string EntryName::Text() const {
  return absl::StrCat(Hex(key.chain), "-", key.group, "-", first_position, "-", payload_bytes, "-",
                      absl::Hex(tenant, absl::kZeroPad16), documents.empty() ? "" : "-",
                      documents.empty() ? "" : documents.Text(), kEntrySuffix);
}

std::optional<EntryName> EntryName::Parse(absl::string_view text) {
  if (!absl::EndsWith(text, kEntrySuffix)) return std::nullopt;
  const std::vector<absl::string_view> parts =
      absl::StrSplit(text.substr(0, text.size() - sizeof(kEntrySuffix) + 1), '-');
  EntryName name;
  constexpr uint64_t kMostPayload = uint64_t{1} << 40;
  const bool reads =
      (parts.size() == 5 || parts.size() == 6) && parts[0].size() == 2 * name.key.chain.size() &&
      absl::SimpleAtoi(parts[1], &name.key.group) &&
      absl::SimpleAtoi(parts[2], &name.first_position) &&
      absl::SimpleAtoi(parts[3], &name.payload_bytes) && name.payload_bytes <= kMostPayload &&
      absl::SimpleHexAtoi(parts[4], &name.tenant);
  if (!reads) return std::nullopt;
  if (parts.size() == 6) {
    const std::optional<DocumentSet> documents = DocumentSet::Parse(parts[5]);
    if (!documents.has_value()) return std::nullopt;
    name.documents = *documents;
  }
  const std::string chain = absl::HexStringToBytes(parts[0]);
  std::memcpy(name.key.chain.data(), chain.data(), chain.size());
  if (name.Text() != text) return std::nullopt;
  return name;
}

std::string DeletionNote::Text() const {
  return absl::StrCat(kNotePrefix, absl::Hex(tenant, absl::kZeroPad16), "-", document.Text(), "-",
                      use);
}

std::optional<DeletionNote> DeletionNote::Parse(absl::string_view text) {
  if (!absl::ConsumePrefix(&text, kNotePrefix)) return std::nullopt;
  const std::vector<absl::string_view> parts = absl::StrSplit(text, '-');
  DeletionNote note;
  if (parts.size() != 3 || !absl::SimpleHexAtoi(parts[0], &note.tenant) ||
      !absl::SimpleAtoi(parts[2], &note.use)) {
    return std::nullopt;
  }
  const std::optional<DocumentSet> document = DocumentSet::Parse(parts[1]);
  // A note without a document would name every page.
  if (!document.has_value() || document->empty()) return std::nullopt;
  note.document = *document;
  if (note.Text() != absl::StrCat(kNotePrefix, text)) return std::nullopt;
  return note;
}

std::string IdentityNote::Text() const { return absl::StrCat(kIdentityPrefix, Hex(identity)); }

std::optional<IdentityNote> IdentityNote::Parse(absl::string_view text) {
  absl::string_view digits = text;
  IdentityNote note;
  if (!absl::ConsumePrefix(&digits, kIdentityPrefix) || digits.size() != 2 * note.identity.size()) {
    return std::nullopt;
  }
  const std::string bytes = absl::HexStringToBytes(digits);
  std::memcpy(note.identity.data(), bytes.data(), bytes.size());
  if (note.Text() != text) return std::nullopt;
  return note;
}

absl::StatusOr<std::unique_ptr<DiskFolder>> DiskFolder::Open(const std::string& path) {
  if (mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return FolderError(path, absl::StrCat("cannot be created: ", std::strerror(errno)));
  }
  const int descriptor = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (descriptor < 0) {
    return FolderError(path, absl::StrCat("cannot be opened: ", std::strerror(errno)));
  }
  std::unique_ptr<DiskFolder> folder(new DiskFolder(path, descriptor));
  // Before all else, as nothing may be written into a folder that is refused.
  ANNULUS_RETURN_IF_ERROR(CheckOwner(path, descriptor));
  const int lock =
      openat(descriptor, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  folder->lock_ = lock;
  if (lock < 0) {
    return FolderError(path,
                       absl::StrCat("its file lock cannot be opened: ", std::strerror(errno)));
  }
  if (flock(lock, LOCK_EX | LOCK_NB) != 0) {
    return FolderError(path, errno == EWOULDBLOCK
                                 ? "another daemon uses it; give each daemon its own folder"
                                 : std::strerror(errno));
  }
  return folder;
}

DiskFolder::~DiskFolder() {
  if (lock_ >= 0) close(lock_);
  close(descriptor_);
}

bool DiskFolder::Remove(const std::string& name) const {
  return unlinkat(descriptor_, name.c_str(), 0) == 0;
}

void DiskFolder::Leave(const IdentityNote& note) const {
  const int file = openat(descriptor_, note.Text().c_str(),
                          O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0) return;
  futimens(file, nullptr);
  close(file);
}

absl::StatusOr<int64_t> DiskFolder::Scan(
    const std::function<void(const EntryName& name, int64_t time)>& found,
    const std::function<void(const DeletionNote& note)>& noted,
    const std::function<void(const IdentityNote& note, int64_t time)>& used) const {
  const int again = openat(descriptor_, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  DIR* const listing = again < 0 ? nullptr : fdopendir(again);
  if (listing == nullptr) {
    if (again >= 0) close(again);
    return FolderError(path_, std::strerror(errno));
  }
  const absl::Cleanup end = [listing] { closedir(listing); };
  int64_t removed = 0;
  while (true) {
    errno = 0;
    const dirent* const item = readdir(listing);
    if (item == nullptr && errno != 0) return FolderError(path_, std::strerror(errno));
    if (item == nullptr) return removed;
    const std::string text = item->d_name;
    if (absl::StartsWith(text, kUnfinished)) {
      removed += Remove(text) ? 1 : 0;
      continue;
    }
    if (const auto note = DeletionNote::Parse(text); note.has_value()) noted(*note);
    const std::optional<EntryName> name = EntryName::Parse(text);
    const std::optional<IdentityNote> identity = IdentityNote::Parse(text);
    if (!name.has_value() && !identity.has_value()) continue;
    struct stat state {};
    // A file that cannot be examined now may be whole: it stays, but its page is not known.
    if (fstatat(descriptor_, text.c_str(), &state, AT_SYMLINK_NOFOLLOW) != 0) continue;
    if (identity.has_value()) {
      // Nothing else has been left by a daemon, and a folder could not be removed again.
      if (S_ISREG(state.st_mode)) used(*identity, TimeOf(state.st_mtim));
      continue;
    }
    const bool whole = S_ISREG(state.st_mode) && static_cast<uint64_t>(state.st_size) ==
                                                     kEntryHeaderBytes + name->payload_bytes;
    if (whole) {
      found(*name, TimeOf(state.st_mtim));
    } else {
      removed += Remove(text) ? 1 : 0;
    }
  }
}

}  // namespace annulus
