#ifndef ANNULUS_ENGINE_MODEL_REGULAR_FILE_H_
#define ANNULUS_ENGINE_MODEL_REGULAR_FILE_H_

#include <cstddef>
#include <cstdint>
#include <ctime>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace annulus {

// A file of a model directory, open for reading. Its name is a plain one, never a path. Symbolic
// links are followed if they end in a regular file (in the cache of Hugging Face every file is a
// link to a blob elsewhere); pipes, devices and folders, whose reading could block for ever, and
// links to them are refused.
//
// Bytes come by pread, never through a mapping. A page of a mapping that lies behind the end of a
// file truncated meanwhile raises SIGBUS in whoever touches it; pread just returns fewer bytes. The
// page cache holds the file either way, so a mapping would save one copy of one matrix, and packing
// copies anyway.
// Thread-safe after opening. Movable, not copyable.
class RegularFile {
 public:
  // INVALID_ARGUMENT: `name` is not a plain file name. NOT_FOUND: no such file.
  // FAILED_PRECONDITION: not a regular file, a link without a target, or unreadable.
  static absl::StatusOr<RegularFile> Open(const std::string& directory, const std::string& name);

  RegularFile(RegularFile&& other) noexcept;
  RegularFile& operator=(RegularFile&& other) noexcept;
  RegularFile(const RegularFile&) = delete;
  RegularFile& operator=(const RegularFile&) = delete;
  ~RegularFile();

  const std::string& path() const { return path_; }
  uint64_t size() const { return size_; }  // when opened

  // Fills `destination` from `offset`. DATA_LOSS: the file's size or time of modification is no
  // longer what it was when opened; the destination's content is then undefined.
  absl::Status ReadAt(uint64_t offset, std::span<std::byte> destination) const;

 private:
  RegularFile() = default;

  int descriptor_ = -1;
  uint64_t size_ = 0;
  timespec modified_{};
  std::string path_;
};

// A whole small file as text. RESOURCE_EXHAUSTED: larger than `max_bytes`; else as Open and ReadAt.
absl::StatusOr<std::string> ReadSmallFile(const std::string& directory, const std::string& name,
                                          uint64_t max_bytes);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_REGULAR_FILE_H_
