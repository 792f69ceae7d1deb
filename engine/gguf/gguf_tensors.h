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
#include "engine/model/files/tensor_source.h"

namespace annulus {

// The tensors of a GGUF file, with the names, shapes and row order of the family's Hugging Face
// checkpoints. Plain types keep their dtype. Quantized tensors:
// - kWiden: become f32, widened exactly while they are read, so any --weights-dtype starts from the
//   file's own values.
// - kKeep: matrices of Q8_0, Q4_0 and Q4_1 are codes and scales of the DTypes of the same names
//   (see MatrixReader), bit for bit; others become bf16.
// Tensors that are part of the config.json (GgufConfigTensors) are left out. Tensors without a
// known name keep their own ("blk.3.x" becomes "model.layers.3.x", so that a layer's unused tensors
// are noticed). Thread-safe.
class GgufTensors final : public TensorSource {
 public:
  enum class Codes { kWiden, kKeep };

  // INVALID_ARGUMENT: a tensor's shape cannot be converted. UNIMPLEMENTED: gpt-oss experts of a
  // type other than MXFP4.
  static absl::StatusOr<std::unique_ptr<GgufTensors>> Create(std::shared_ptr<const GgufFile> file,
                                                             const GgufFamily& family, Codes codes);

  std::vector<std::string> Names() const override;
  bool Has(absl::string_view name) const override { return entries_.contains(name); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override;
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override;
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override;
  size_t RangeMemory(absl::string_view name, size_t bytes) const override;

  // Whether any matrix is quantized, so that the file does not determine a dtype to compute in.
  bool quantized() const { return quantized_; }

  // How many of the file's matrices are quantized and do not keep their codes, by the type that
  // they are stored in: they are widened.
  const std::map<std::string, int>& widened() const { return widened_; }

 private:
  enum class Form {
    kValues,     // the stored values, widened if quantized
    kMinusOne,   // float32 values minus 1
    kFp4Codes,   // codes of MXFP4 blocks, two neighbours per byte, in Hugging Face's order
    kFp4Scales,  // exponents of MXFP4 blocks
    kCodes,      // codes of a kept type, two neighbours per byte if they have 4 bits
    kScales,     // scales and minimums of a kept type
  };
  // How to make the rows of a tensor. Row r is stored row first + r of `source`. If `odd` is set,
  // rows alternate between `source` and `odd`. If `head_rows` is set, each group of that many rows
  // is stored in interleaved pairs.
  struct Entry {
    TensorInfo info;
    const GgufTensor* source = nullptr;
    const GgufTensor* odd = nullptr;
    int64_t rows = 0;
    int64_t first = 0;
    int64_t head_rows = 0;
    Form form = Form::kValues;
    size_t row_bytes = 0;  // size of a row of the made tensor
  };

  GgufTensors(std::shared_ptr<const GgufFile> file, bool keep)
      : owner_(std::move(file)), file_(*owner_), keep_(keep) {}
  absl::Status Add(const GgufFamily& family, const GgufTensor& tensor);
  absl::Status AddLayerTensor(const GgufFamily& family, const GgufTensor& tensor,
                              absl::string_view layer, absl::string_view suffix);
  absl::Status AddWhole(std::string name, const GgufTensor& tensor, Form form = Form::kValues);
  absl::Status AddRotated(std::string name, const GgufTensor& tensor, absl::string_view heads_key);
  absl::Status AddExperts(const GgufFamily& family, const GgufTensor& tensor,
                          const std::string& prefix, absl::string_view suffix);
  absl::Status AddEachHead(const GgufTensor& tensor, const std::string& name);
  absl::Status AddEachSlice(const GgufTensor& tensor, const std::string& prefix,
                            absl::string_view suffix, int64_t first, int64_t rows);
  absl::Status AddGptOssExperts(const GgufTensor& tensor, const std::string& prefix,
                                absl::string_view suffix);
  absl::Status AddEntry(std::string name, Entry entry);
  absl::Status Insert(std::string name, Entry entry);
  Entry MakeEntry(const GgufTensor& tensor, std::vector<int64_t> shape, Form form) const;
  void MakeRow(const Entry& entry, const GgufTensor& tensor, const std::byte* stored,
               std::vector<std::byte>& row) const;
  static size_t StoredRowBytes(const Entry& entry);
  static int64_t PartRows(const Entry& entry);
  absl::Status ReadRows(const Entry& entry, int64_t begin, int64_t end, size_t skip,
                        std::span<std::byte> destination) const;

  const std::shared_ptr<const GgufFile> owner_;
  const GgufFile& file_;
  const bool keep_;
  std::map<std::string, Entry, std::less<>> entries_;
  bool quantized_ = false;
  std::map<std::string, int> widened_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GGUF_GGUF_TENSORS_H_
