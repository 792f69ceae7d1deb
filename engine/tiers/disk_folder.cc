#include "engine/tiers/disk_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <utility>
#include <vector>

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

std::string Hex(const ContentHash& hash) {
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(hash.data()), hash.size()));
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
  ANNULUS_ASSIGN_OR_RETURN(auto folder, PrivateFolder::Open(path));
  return std::unique_ptr<DiskFolder>(new DiskFolder(std::move(folder)));
}

void DiskFolder::Leave(const IdentityNote& note) const {
  const int file = openat(descriptor(), note.Text().c_str(),
                          O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
  if (file < 0) return;
  futimens(file, nullptr);
  close(file);
}

absl::StatusOr<int64_t> DiskFolder::Scan(
    const std::function<void(const EntryName& name, int64_t time)>& found,
    const std::function<void(const DeletionNote& note)>& noted,
    const std::function<void(const IdentityNote& note, int64_t time)>& used) const {
  int64_t removed = 0;
  const auto visit = [&](const std::string& text) {
    if (const auto note = DeletionNote::Parse(text); note.has_value()) noted(*note);
    const std::optional<EntryName> name = EntryName::Parse(text);
    const std::optional<IdentityNote> identity = IdentityNote::Parse(text);
    if (!name.has_value() && !identity.has_value()) return;
    struct stat state {};
    // A file that cannot be examined now may be whole: it stays, but its page is not known.
    if (fstatat(descriptor(), text.c_str(), &state, AT_SYMLINK_NOFOLLOW) != 0) return;
    if (identity.has_value()) {
      // Nothing else has been left by a daemon, and a folder could not be removed again.
      if (S_ISREG(state.st_mode)) used(*identity, TimeOf(state.st_mtim));
      return;
    }
    const bool whole = S_ISREG(state.st_mode) && static_cast<uint64_t>(state.st_size) ==
                                                     kEntryHeaderBytes + name->payload_bytes;
    if (whole) {
      found(*name, TimeOf(state.st_mtim));
    } else {
      removed += Remove(text) ? 1 : 0;
    }
  };
  ANNULUS_ASSIGN_OR_RETURN(const int64_t unfinished, folder_->Visit(visit));
  return removed + unfinished;
}

}  // namespace annulus
