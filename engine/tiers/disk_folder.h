#ifndef ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_
#define ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/tiers/page_entry.h"

namespace annulus {

// What a page's file is called says enough to find it again without opening it, and whether it is
// whole in length: a scan reads no file.
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

// What an empty file is called that stands in the folder while files of a deleted document may
// still be there: so a start after a daemon that could not remove them does.
struct DeletionNote {
  uint64_t tenant = 0;  // as EntryName's
  DocumentSet document;
  int64_t use = 0;  // pages that were used later belong to the document's next life

  // Whether the file of such a page, with its time, is one that the deletion was about.
  bool Names(const EntryName& page, int64_t time) const {
    return page.tenant == tenant && time <= use && page.documents.Holds(document);
  }
  std::string Text() const;
  // Nothing for a name that Text would not give.
  static std::optional<DeletionNote> Parse(absl::string_view text);
};

// A folder that this process alone uses, of mode 0700. The lock ends with the process, however that
// ends. Const calls are thread-safe.
class DiskFolder {
 public:
  // Makes the folder where only its last part is missing. FAILED_PRECONDITION with advice where
  // another process has it, or others than its owner may read it.
  static absl::StatusOr<std::unique_ptr<DiskFolder>> Open(const std::string& path);
  ~DiskFolder();
  DiskFolder(const DiskFolder&) = delete;
  DiskFolder& operator=(const DiskFolder&) = delete;

  // Gives every whole page's file with its time in ns, and every note. Files that a kill left
  // half-written, and those whose length or kind is not what their name says, are removed, and
  // counted in the result; files with other names stay.
  absl::StatusOr<int64_t> Scan(
      const std::function<void(const EntryName& name, int64_t time)>& found,
      const std::function<void(const DeletionNote& note)>& noted) const;

  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }
  bool Remove(const std::string& name) const;

  // Files under this beginning of a name are being written.
  static constexpr char kUnfinished[] = "unfinished-";

 private:
  DiskFolder(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
  int lock_ = -1;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TIERS_DISK_FOLDER_H_
