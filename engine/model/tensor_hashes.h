#ifndef ANNULUS_ENGINE_MODEL_TENSOR_HASHES_H_
#define ANNULUS_ENGINE_MODEL_TENSOR_HASHES_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/model/tensor_source.h"

namespace annulus {

// A source that hashes the tensors which are read through it, as their bytes pass: the name of a
// model's weights, whatever its files are called and wherever they lie.
//
// A tensor is cut into units of whole rows of its last dimension, 4 KiB or a row, whichever is
// more. Each has an XXH3 hash of 128 bits, seeded with its place; the tensor's is the sum of these,
// so it depends neither on the order of reads nor on how they are cut nor on how often a byte is
// read. Units that no read covered alone are read at the end.
//
// Reads are thread-safe, as those of every source; Finish comes after them.
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

  // SHA-256 in hexadecimal digits over name, dtype, shape and hash of every tensor of which
  // anything was read, in the order of their names. Reads what is missing of them. Errors are the
  // source's.
  absl::StatusOr<std::string> Finish();

 private:
  struct Tensor;

  void Hash(absl::string_view name, size_t offset, std::span<const std::byte> bytes) const;
  absl::Status ReadMissing(const std::string& name, Tensor& tensor) const;

  const TensorSource& source_;
  std::map<std::string, std::unique_ptr<Tensor>, std::less<>> tensors_;  // all; set once
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_MODEL_TENSOR_HASHES_H_
