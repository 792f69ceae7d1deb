#ifndef ANNULUS_ENGINE_MODEL_SAFETENSORS_H_
#define ANNULUS_ENGINE_MODEL_SAFETENSORS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/model/regular_file.h"
#include "engine/model/safetensors_header.h"
#include "engine/model/tensor_source.h"

namespace annulus {

// The weights of a model directory: `model.safetensors`, else the shards that
// `model.safetensors.index.json` lists. Every header is read and checked in full before the object
// exists, so a tensor that it describes lies inside its file with the size that its shape says. The
// files stay open and are read with RegularFile::ReadAt: a file that is truncated or rewritten
// afterwards makes Read return DATA_LOSS, never a signal. Thread-safe.
class SafetensorsCheckpoint final : public TensorSource {
 public:
  // INVALID_ARGUMENT: a malformed file, a shard name that is not a plain *.safetensors name, a
  // tensor in two shards or not in the shard that the index names. NOT_FOUND: a file or shard is
  // missing. FAILED_PRECONDITION: a broken link, pipe or unreadable file. UNIMPLEMENTED: only
  // weights of another format are there (PyTorch pickle, ..). DATA_LOSS: changed while read.
  static absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> Open(const std::string& directory);
  // The tensors of one file alone. Errors as above.
  static absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> OpenFile(const std::string& path);

  std::vector<std::string> Names() const override;
  bool Has(absl::string_view name) const override { return Find(name) != nullptr; }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override;
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override;
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override;

 private:
  struct Shard {
    RegularFile file;
    uint64_t data_offset;  // of the data section in the file
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

#endif  // ANNULUS_ENGINE_MODEL_SAFETENSORS_H_
