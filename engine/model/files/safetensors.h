#ifndef ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_H_
#define ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/files/regular_file.h"
#include "engine/model/files/safetensors_header.h"
#include "engine/model/files/tensor_source.h"

namespace annulus {

// The weights of a model directory: `model.safetensors`, or else the shards listed in
// `model.safetensors.index.json`. All headers are read and checked at opening, so every tensor they
// describe is inside its file and has the size of its shape. Files stay open and are read with
// RegularFile::ReadAt: if one is truncated or rewritten later, Read returns DATA_LOSS, and no
// signal is raised. Thread-safe.
class SafetensorsCheckpoint final : public TensorSource {
 public:
  // Errors:
  // - INVALID_ARGUMENT: a malformed file, a shard name that is not a plain *.safetensors name, or a
  //   tensor that is in two shards or not in the shard the index names.
  // - NOT_FOUND: a file or shard is missing.
  // - FAILED_PRECONDITION: a broken link, a pipe, or an unreadable file.
  // - UNIMPLEMENTED: only weights in another format exist (PyTorch pickle, ..).
  // - DATA_LOSS: a file changed while it was read.
  static absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> Open(const std::string& directory);
  // Opens a single file. Errors as above.
  static absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> OpenFile(const std::string& path);

  std::vector<std::string> Names() const override;
  bool Has(absl::string_view name) const override { return Find(name) != nullptr; }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override;
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override;
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override;
  size_t RangeMemory(absl::string_view /*name*/, size_t /*bytes*/) const override { return 0; }

 private:
  struct Shard {
    RegularFile file;
    uint64_t data_offset;  // offset of the data section in the file
    std::vector<StoredTensor> tensors;
  };
  struct Entry {
    const Shard* shard;
    const StoredTensor* tensor;
  };

  SafetensorsCheckpoint() = default;
  static absl::StatusOr<std::unique_ptr<Shard>> OpenShard(const std::string& directory,
                                                          const std::string& name);
  absl::Status OpenIndexed(const std::string& directory, absl::string_view index_json);
  absl::Status MergeNames();
  const Entry* Find(absl::string_view name) const;

  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<Entry> entries_;  // ascending by name
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_SAFETENSORS_H_
