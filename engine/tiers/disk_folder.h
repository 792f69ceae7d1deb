#ifndef ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_
#define ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/disk/private_folder.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// The name of a page's file. It says enough to find the page again and to check the file's length
// without opening it: a scan reads no file.
struct EntryName {
  PageKey key;
  uint64_t tenant = 0;  // the beginning of PageMark::tenant
  int32_t first_position = 0;
  uint64_t payload_bytes = 0;
  DocumentSet documents;  // PageMark::documents

  std::string Text() const;
  // Nothing for a name that Text would not give.
  static std::optional<EntryName> Parse(absl::string_view text);
};

uint64_t TenantPart(const ContentHash& tenant);

// The name of an empty file that is in the folder while files of a deleted document may still be
// there. If the daemon ends before it has removed them, the next start removes what the note names.
struct DeletionNote {
  uint64_t tenant = 0;  // as EntryName's
  DocumentSet document;
  int64_t use = 0;  // pages used later than this belong to a document that was uploaded again

  // Whether the deletion concerns the file with this name and time.
  bool Names(const EntryName& page, int64_t time) const {
    return page.tenant == tenant && time <= use && page.documents.Holds(document);
  }
  std::string Text() const;
  // Nothing for a name that Text would not give.
  static std::optional<DeletionNote> Parse(absl::string_view text);
};

// The name of an empty file that says that a daemon with this PageMark::identity has put pages into
// the folder. Its time says when such a daemon last put its first page.
struct IdentityNote {
  ContentHash identity{};

  std::string Text() const;
  // Nothing for a name that Text would not give.
  static std::optional<IdentityNote> Parse(absl::string_view text);
};

// A PrivateFolder with pages in files. Const calls are thread-safe.
class DiskFolder {
 public:
  // Errors: those of PrivateFolder::Open.
  static absl::StatusOr<std::unique_ptr<DiskFolder>> Open(const std::string& path);

  // Calls `found` for the file of every whole page, with its time in ns, `noted` for every note of
  // a deletion, and `used` for every note of an identity, with its time. Removes files that a kill
  // left half-written, and those whose length or kind differs from what their name says, and
  // returns how many. Files with other names stay.
  absl::StatusOr<int64_t> Scan(
      const std::function<void(const EntryName& name, int64_t time)>& found,
      const std::function<void(const DeletionNote& note)>& noted,
      const std::function<void(const IdentityNote& note, int64_t time)>& used) const;

  int descriptor() const { return folder_->descriptor(); }
  const std::string& path() const { return folder_->path(); }
  bool Remove(const std::string& name) const { return folder_->Remove(name); }
  // Creates the note, or sets its time to now. Ignores errors.
  void Leave(const IdentityNote& note) const;

 private:
  explicit DiskFolder(std::unique_ptr<PrivateFolder> folder) : folder_(std::move(folder)) {}

  const std::unique_ptr<PrivateFolder> folder_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_
