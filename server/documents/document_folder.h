#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_H_

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/api.h"
#include "engine/disk/disk_calls.h"
#include "engine/disk/private_folder.h"
#include "server/documents/disk_thread.h"
#include "server/documents/document_file.h"
#include "server/documents/store_room.h"

namespace annulus::server {

// The file of one document in a DocumentFolder. Everything about it is done by calls of the folder.
class DocumentFile;
using DocumentFilePtr = std::shared_ptr<DocumentFile>;

// An open text of a document, which stays readable if the document is deleted meanwhile.
class OpenText;
using OpenTextPtr = std::shared_ptr<OpenText>;

// The folder of --documents: one file for each document, named by a number that grows with each
// upload. A file is complete and flushed to the disk before it gets its name, and never changes
// afterwards. So a process may end at any moment, and after a power failure every document is there
// whose Publish had returned.
//
// All files together take at most a limit, and those of one tenant at most its equal share. Files
// that were there at the start may exceed both; then new ones find no room.
//
// Thread-safe, but the calls for one file that is not yet published must not overlap. Calls wait
// for the disk: `cancel` ends the wait, and a disk that hangs ends it with UNAVAILABLE. Other
// errors of all calls: RESOURCE_EXHAUSTED if the disk is full or the process is out of memory or
// descriptors; INTERNAL if the disk fails.
class DocumentFolder {
 public:
  struct Options {
    size_t limit_bytes = 0;
    std::chrono::milliseconds most_call{10'000};  // a longer call to the disk counts as hanging
  };
  // Errors: those of PrivateFolder::Open. Removes files that a kill left half-written. `calls` must
  // outlive the folder and every file.
  static absl::StatusOr<std::unique_ptr<DocumentFolder>> Open(
      const std::string& path, const Options& options, DiskCalls& calls = DiskCalls::System());
  ~DocumentFolder();

  // As StoreRoom::SetTenants.
  void SetTenants(size_t tenants) { room_->SetTenants(tenants); }

  // Begins the file of an upload. Give it to RemoveLater if the upload fails.
  absl::StatusOr<DocumentFilePtr> Create(const TenantId& tenant, const CancelFlag& cancel);
  // Appends to the text. RESOURCE_EXHAUSTED also if the limit or the tenant's share is reached.
  absl::Status Append(const DocumentFilePtr& file, absl::string_view bytes,
                      const CancelFlag& cancel);
  // Ends the text. `facts` must have its size and hash, and the size of `notes`. Errors as for
  // Append.
  absl::Status Complete(const DocumentFilePtr& file, const FileFacts& facts, std::string notes,
                        const CancelFlag& cancel);
  // Gives a complete file its name, unless it has one or was removed.
  absl::Status Publish(const DocumentFilePtr& file, const CancelFlag& cancel);
  // Removes the file for good. Readers of its text can go on.
  absl::Status Remove(const DocumentFilePtr& file, const CancelFlag& cancel);
  // The same without waiting, and without an answer.
  void RemoveLater(DocumentFilePtr file);

  // NOT_FOUND if the file was removed; DATA_LOSS if its header or its length is damaged.
  absl::StatusOr<OpenTextPtr> OpenTextOf(const DocumentFilePtr& file, const CancelFlag& cancel);
  // Returns the next block of the text, at most kFileBlockBytes; empty at the end. DATA_LOSS if the
  // block is damaged.
  absl::StatusOr<std::string> ReadNext(const OpenTextPtr& text, const CancelFlag& cancel);
  static const FileFacts& FactsOf(const OpenText& text);
  static const std::string& NotesOf(const OpenText& text);

  // The files that were there at the start, the latest upload first.
  const std::vector<DocumentFilePtr>& found() const { return found_; }
  // Counts a file of found() towards the limit until it is removed.
  void Count(const DocumentFilePtr& file, const FileFacts& facts);
  // Counts a file of found() that could not be loaded, for stats(), and its length towards the
  // limit unless Count has: as the tenant default's, as nobody may know whose it is.
  void CountLost(const DocumentFilePtr& file, const CancelFlag& cancel);
  static std::string PathOf(const DocumentFile& file);  // for people

  struct Stats {
    size_t bytes = 0;  // of all files, uploads under way included
    size_t limit = 0;
    int64_t errors = 0;      // failed calls to the disk, a full one included, and damaged blocks
    std::string last_error;  // empty: none so far
    int64_t lost = 0;        // calls of CountLost
  };
  Stats stats() const;

 private:
  // What files use even after the folder is gone.
  struct Shared;

  DocumentFolder(std::shared_ptr<Shared> shared, std::shared_ptr<StoreRoom> room,
                 std::chrono::milliseconds most_call);

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<StoreRoom> room_;
  std::vector<DocumentFilePtr> found_;
  std::atomic<uint64_t> next_number_{1};
  std::atomic<int64_t> lost_{0};
  DiskThread disk_;

  friend class DocumentFile;
  friend class OpenText;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_FOLDER_H_
