#ifndef ANNULUS_ENGINE_MODEL_FILES_REGULAR_FILE_H_
#define ANNULUS_ENGINE_MODEL_FILES_REGULAR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// A file of a model directory, open for reading. Symbolic links are followed if they end in a
// regular file (in Hugging Face's cache every file is a link to a blob elsewhere). Pipes, devices
// and folders, where a read could block forever, are refused, and so are links to them.
//
// Reads use pread, never a mapping: accessing a mapped page beyond the end of a file that was
// truncated meanwhile raises SIGBUS, while pread just returns fewer bytes. The page cache holds the
// file either way; a mapping would only save one copy of a matrix, and packing copies anyway.
//
// Thread-safe after opening. Movable, not copyable.
class RegularFile {
 public:
  // `name` must be a plain file name, not a path. INVALID_ARGUMENT: it is not. NOT_FOUND: no such
  // file. FAILED_PRECONDITION: not a regular file, a dangling link, or unreadable.
  static absl::StatusOr<RegularFile> Open(const std::string& directory, const std::string& name);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // at the time of opening

  // Fills `destination` from `offset`. DATA_LOSS: the file's size or modification time has changed
  // since it was opened; the content of `destination` is then undefined.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> destination) const;

 private:
  RegularFile() = default;

  int descriptor_ = -1;
  uint64_t size_ = 0;
  timespec modified_{};
  std::string path_;
};

// Reads a small file completely. RESOURCE_EXHAUSTED: larger than `max_bytes`. Otherwise as Open and
// ReadAt.
absl::StatusOr<std::string> ReadSmallFile(const std::string& directory, const std::string& name,
                                          uint64_t max_bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_REGULAR_FILE_H_
