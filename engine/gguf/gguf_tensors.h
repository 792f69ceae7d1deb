#ifndef ANNULUS_ENGINE_GGUF_GGUF_TENSORS_H_
#define ANNULUS_ENGINE_GGUF_GGUF_TENSORS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_file.h"
#include "engine/model/tensor_source.h"

namespace annulus {

// The tensors of a GGUF file under the names, in the shapes and with the order of rows that the
// family's Hugging Face checkpoints have. Plain types keep their dtype; quantized ones are f32
// here, widened exactly as they are read, so any --weights-dtype starts from the file's own values.
// Or, with kKeep, matrices of Q8_0, Q4_0 and Q4_1 are codes and scales of the DTypes with these
// names (see MatrixReader), bit for bit, and other quantized ones are bf16.
// Tensors that no name belongs to keep their own ("blk.3.x" becomes "model.layers.3.x", so that a
// layer's unused tensors are noticed). Thread-safe.
class GgufTensors final : public TensorSource {
 public:
  enum class Codes { kWiden, kKeep };

  // INVALID_ARGUMENT: a tensor whose shape has no such form;
  // UNIMPLEMENTED: gpt-oss experts in another type than MXFP4.
  static absl::StatusOr<std::unique_ptr<GgufTensors>> Create(std::shared_ptr<const GgufFile> file,
                                                             const GgufFamily& family, Codes codes);

  std::vector<std::string> Names() const override;
  bool Has(absl::string_view name) const override { return entries_.contains(name); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override;
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override;
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override;

  // Whether any matrix is quantized, so that the file itself says no dtype to compute in.
  bool quantized() const { return quantized_; }

 private:
  enum class Form {
    kValues,     // the stored values, widened where they are quantized
    kMinusOne,   // as float32 less 1
    kFp4Codes,   // the codes of MXFP4 blocks, two neighbours in a byte, as Hugging Face orders them
    kFp4Scales,  // their exponents
    kCodes,      // the codes of a kept type, two neighbours in a byte where they have 4 bits
    kScales,     // their scales and minimums
  };
  // Rows of a made tensor. Row r is stored row first + r of `source`; where `odd` is set, rows
  // alternate between `source` and `odd`; where `head_rows` is set, rows of each so many are those
  // of interleaved pairs.
  struct Entry {
    TensorInfo info;
    const GgufTensor* source = nullptr;
    const GgufTensor* odd = nullptr;
    int64_t rows = 0;
    int64_t first = 0;
    int64_t head_rows = 0;
    Form form = Form::kValues;
    size_t row_bytes = 0;  // of the made tensor
  };

  GgufTensors(std::shared_ptr<const GgufFile> file, bool keep)
      : owner_(std::move(file)), file_(*owner_), keep_(keep) {}
  absl::Status Add(const GgufFamily& family, const GgufTensor& tensor);
  absl::Status AddLayerTensor(const GgufFamily& family, const GgufTensor& tensor,
                              absl::string_view layer, absl::string_view suffix);
  void AddWhole(std::string name, const GgufTensor& tensor, Form form = Form::kValues);
  absl::Status AddRotated(std::string name, const GgufTensor& tensor, absl::string_view heads_key);
  absl::Status AddExperts(const GgufFamily& family, const GgufTensor& tensor,
                          const std::string& prefix, absl::string_view suffix);
  absl::Status AddGptOssExperts(const GgufTensor& tensor, const std::string& prefix,
                                absl::string_view suffix);
  void AddEntry(std::string name, Entry entry);
  Entry MakeEntry(const GgufTensor& tensor, std::vector<int64_t> shape, Form form) const;
  void MakeRow(const Entry& entry, const GgufTensor& tensor, const std::byte* stored,
               std::vector<std::byte>& row) const;
  absl::Status ReadRows(const Entry& entry, int64_t begin, int64_t end, size_t skip,
                        std::span<std::byte> destination) const;

  const std::shared_ptr<const GgufFile> owner_;
  const GgufFile& file_;
  const bool keep_;
  std::map<std::string, Entry, std::less<>> entries_;
  bool quantized_ = false;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TENSORS_H_
