#ifndef ANNULUS_ENGINE_MODEL_NEW_DIRECTORY_H_
#define ANNULUS_ENGINE_MODEL_NEW_DIRECTORY_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// A file of a NewDirectory, written from its start to its end. Closed by the destructor.
class NewFile {
 public:
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // RESOURCE_EXHAUSTED: the disk is full; DATA_LOSS: another error of the disk.
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(absl::string_view text);
  // Waits until the disk has all of it.
  absl::Status Sync();

 private:
  friend class NewDirectory;
  NewFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  const int descriptor_;
  const std::string path_;
};

// A directory that appears under its name complete or not at all: it is written beside its place as
// NAME.partial-PID, and Commit renames it once everything is on the disk. Without Commit the
// destructor removes it. Not thread-safe.
class NewDirectory {
 public:
  // ALREADY_EXISTS where something has that name; FAILED_PRECONDITION where the directory cannot be
  // made.
  static absl::StatusOr<std::unique_ptr<NewDirectory>> Create(const std::string& path);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  // `name`: a plain file name, not used before, or one inside of a folder made before.
  absl::StatusOr<std::unique_ptr<NewFile>> CreateFile(const std::string& name);

  absl::Status CreateFolder(const std::string& name);

  // ALREADY_EXISTS where the name was taken meanwhile: nothing is ever replaced.
  absl::Status Commit();

 private:
  NewDirectory(std::string path, std::string partial)
      : path_(std::move(path)), partial_(std::move(partial)) {}

  const std::string path_;
  const std::string partial_;
  bool committed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_NEW_DIRECTORY_H_
