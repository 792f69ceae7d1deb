#ifndef ANNULUS_ENGINE_GGUF_GGUF_FILE_H_
#define ANNULUS_ENGINE_GGUF_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_header.h"
#include "engine/model/files/regular_file.h"

namespace annulus {

// Whether `path` is a regular file that begins with GGUF's magic number, whatever its name.
bool IsGgufFile(const std::string& path);

// Finds the GGUF file to serve in a directory without config.json: the only one, or the first file
// of the only split set. Ignores files for images ("mmproj*"). Absent: there is none.
// INVALID_ARGUMENT: there are several models; lists their names.
absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& directory);

// A model in one GGUF file or in a split set ("NAME-00001-of-00003.gguf"). Metadata are those of
// the first file. Open reads and checks all headers (ParseGgufHeader). Files stay open and are read
// with RegularFile::ReadAt: if one is truncated or rewritten later, Read returns DATA_LOSS, and no
// signal is raised. Thread-safe.
class GgufFile {
 public:
  // `path`: the file, or any file of the set. NOT_FOUND: the file, or another of its set, is
  // missing. FAILED_PRECONDITION: not a regular file. RESOURCE_EXHAUSTED: the headers of all files
  // together are larger than kMostGgufHeaderBytes. Otherwise as ParseGgufHeader.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }

  // Metadata of the first file; null if the key is absent.
  const GgufValue* Find(absl::string_view key) const { return parts_[0]->header.Find(key); }
  // The string at `key`, or "" if absent.
  absl::string_view Text(absl::string_view key) const;

  // A tensor in any of the files, or null. Valid as long as this object.
  const GgufTensor* FindTensor(absl::string_view name) const;
  // All tensors, in no particular order.
  std::vector<const GgufTensor*> Tensors() const;

  // Reads stored bytes [offset, offset + destination.size()) of the tensor; they must be inside it.
  absl::Status Read(const GgufTensor& tensor, uint64_t offset,
                    std::span<std::byte> destination) const;

  // UNIMPLEMENTED if the tensor's type is not served; names path(), the tensor and the types that
  // are.
  absl::Status CheckServed(const GgufTensor& tensor) const;

  // Reads all values of a small tensor as float32. Errors of CheckServed and Read.
  absl::StatusOr<std::vector<float>> ReadAsFloat(const GgufTensor& tensor) const;

 private:
  struct Part {
    RegularFile file;
    std::vector<std::byte> bytes;  // the header's bytes; `header` points into them
    GgufHeader header;
  };

  GgufFile() = default;
  // Reads a header of at most `most` bytes.
  static absl::StatusOr<std::unique_ptr<Part>> OpenPart(const std::string& directory,
                                                        const std::string& name, uint64_t most);
  absl::Status OpenSet(const std::string& directory, const std::string& name);
  absl::Status AddPart(std::unique_ptr<Part> part);

  // Where a tensor is.
  struct Location {
    const Part* part;
    const GgufTensor* tensor;
  };

  std::string path_;
  std::vector<std::unique_ptr<Part>> parts_;
  absl::flat_hash_map<absl::string_view, Location> locations_;  // by the tensor's name
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_FILE_H_
