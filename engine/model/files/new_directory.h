#ifndef ANNULUS_ENGINE_MODEL_FILES_NEW_DIRECTORY_H_
#define ANNULUS_ENGINE_MODEL_FILES_NEW_DIRECTORY_H_

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

// A file in a NewDirectory, written sequentially. The destructor closes it.
class NewFile {
 public:
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  // RESOURCE_EXHAUSTED: the disk is full. DATA_LOSS: another disk error.
  absl::Status Append(std::span<const std::byte> bytes);
  absl::Status Append(absl::string_view text);
  // Blocks until everything is on the disk.
  absl::Status Sync();

 private:
  friend class NewDirectory;
  NewFile(int descriptor, std::string path) : descriptor_(descriptor), path_(std::move(path)) {}

  const int descriptor_;
  const std::string path_;
};

// Creates a directory that appears under its name complete or not at all: its files are written to
// NAME.partial-PID in the same parent, and Commit renames it once everything is on the disk.
// Without Commit the destructor removes it. Not thread-safe.
class NewDirectory {
 public:
  // ALREADY_EXISTS: the name is taken. FAILED_PRECONDITION: the directory cannot be created.
  static absl::StatusOr<std::unique_ptr<NewDirectory>> Create(const std::string& path);
  ~NewDirectory();
  NewDirectory(const NewDirectory&) = delete;
  NewDirectory& operator=(const NewDirectory&) = delete;

  // `name`: a new plain file name, or one in a folder that CreateFolder made.
  absl::StatusOr<std::unique_ptr<NewFile>> CreateFile(const std::string& name);

  absl::Status CreateFolder(const std::string& name);

  // Publishes the directory. ALREADY_EXISTS if the name has been taken meanwhile; nothing is ever
  // replaced.
  absl::Status Commit();

 private:
  NewDirectory(std::string path, std::string partial)
      : path_(std::move(path)), partial_(std::move(partial)) {}

  const std::string path_;
  const std::string partial_;
  bool committed_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_NEW_DIRECTORY_H_
