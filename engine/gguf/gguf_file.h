#ifndef ANNULUS_ENGINE_GGUF_GGUF_FILE_H_
#define ANNULUS_ENGINE_GGUF_GGUF_FILE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_header.h"
#include "engine/model/regular_file.h"

namespace annulus {

// Whether `path` is a regular file that begins with GGUF's magic number, whatever its name.
bool IsGgufFile(const std::string& path);

// The GGUF file to serve from a directory without config.json: the only one there, or the first of
// the only split set; files for pictures ("mmproj*") do not count. Absent: there is none.
// INVALID_ARGUMENT: several models, with their names.
absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& directory);

// A model in one GGUF file, or in the files of a split set ("NAME-00001-of-00003.gguf"), of which
// any may be named; metadata are those of the first. Headers are read and checked whole when it is
// opened (ParseGgufHeader). Files stay open and are read with RegularFile::ReadAt, so one that is
// truncated or rewritten later gives DATA_LOSS, never a signal. Thread-safe.
class GgufFile {
 public:
  // NOT_FOUND: no such file, or a file of the set is missing. FAILED_PRECONDITION: not a regular
  // file. RESOURCE_EXHAUSTED: a header above kMostGgufHeaderBytes. Else as ParseGgufHeader.
  static absl::StatusOr<std::unique_ptr<GgufFile>> Open(const std::string& path);

  const std::string& path() const { return path_; }

  // Metadata of the first file; null where the key is absent.
  const GgufValue* Find(absl::string_view key) const { return parts_[0]->header.Find(key); }
  // The string at `key`, or "" where there is none.
  absl::string_view Text(absl::string_view key) const;

  // A tensor of any of the files, or null. Valid as long as this object.
  const GgufTensor* FindTensor(absl::string_view name) const;
  // All tensors, in no particular order.
  std::vector<const GgufTensor*> Tensors() const;

  // Stored bytes [offset, offset + destination.size()) of the tensor, which must lie inside it.
  absl::Status Read(const GgufTensor& tensor, uint64_t offset,
                    std::span<std::byte> destination) const;

  // All values of a small tensor, widened. UNIMPLEMENTED: a type that is not served.
  absl::StatusOr<std::vector<float>> ReadAsFloat(const GgufTensor& tensor) const;

 private:
  struct Part {
    RegularFile file;
    std::vector<std::byte> bytes;  // that the header views
    GgufHeader header;
  };

  GgufFile() = default;
  static absl::StatusOr<std::unique_ptr<Part>> OpenPart(const std::string& directory,
                                                        const std::string& name);
  absl::Status OpenSet(const std::string& directory, const std::string& name);
  const Part& PartOf(const GgufTensor& tensor) const;

  std::string path_;
  std::vector<std::unique_ptr<Part>> parts_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_FILE_H_
