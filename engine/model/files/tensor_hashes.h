#ifndef ANNULUS_ENGINE_MODEL_FILES_TENSOR_HASHES_H_
#define ANNULUS_ENGINE_MODEL_FILES_TENSOR_HASHES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/files/tensor_source.h"

namespace annulus {

// Wraps a source and hashes the tensors read through it as their bytes pass. The hash identifies a
// model's weights, regardless of the names and places of its files.
//
// A tensor is divided into units of whole rows of its last dimension: 4 KiB, or one row if that is
// larger. Each unit has a 128-bit XXH3 hash, seeded with its position; the tensor's hash is their
// sum. So it does not depend on the order or sizes of reads, or on how often a byte is read. Units
// that no single read covered are read at the end.
//
// Reads are thread-safe, like those of every source. Finish must come after all reads.
class HashingSource final : public TensorSource {
 public:
  // `source` must outlive the object.
  explicit HashingSource(const TensorSource& source);
  ~HashingSource() override;

  std::vector<std::string> Names() const override { return source_.Names(); }
  bool Has(absl::string_view name) const override { return source_.Has(name); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    return source_.Describe(name);
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override;
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override;

  // Returns the SHA-256, in hexadecimal, over name, dtype, shape and hash of every tensor of which
  // anything was read, in order of name. Reads the missing parts of these tensors. Returns the
  // source's errors.
  absl::StatusOr<std::string> Finish();

 private:
  struct Tensor;

  void Hash(absl::string_view name, size_t offset, std::span<const std::byte> bytes) const;
  absl::Status ReadMissing(const std::string& name, Tensor& tensor) const;

  const TensorSource& source_;
  std::map<std::string, std::unique_ptr<Tensor>, std::less<>> tensors_;  // all tensors; set once
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_FILES_TENSOR_HASHES_H_
