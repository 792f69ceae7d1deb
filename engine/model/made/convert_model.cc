#include "engine/model/made/convert_model.h"

#include <algorithm>
#include <bit>
#include <filesystem>
#include <memory>
#include <optional>
#include <set>
#include <system_error>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_fields.h"
#include "engine/base/json_parser.h"
#include "engine/model/files/model_directory.h"
#include "engine/model/files/new_directory.h"
#include "engine/model/files/regular_file.h"
#include "engine/model/files/safetensors.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/finite_weights.h"
#include "engine/model/weights/matrix_reader.h"
#include "engine/model/weights/weight_slots.h"
#include "engine/model/weights/weights.h"
#include "kernels/base/row_converter.h"
#include "kernels/base/status_macros.h"
#include "nlohmann/json.hpp"

namespace annulus {
namespace {

// Files that a model may have besides its weights; those that exist are copied.
constexpr const char* kCopied[] = {"config.json",
                                   "generation_config.json",
                                   "tokenizer.json",
                                   "tokenizer.model",
                                   "tokenizer_config.json",
                                   "special_tokens_map.json",
                                   "added_tokens.json",
                                   "chat_template.jinja",
                                   "README.md",
                                   "LICENSE"};
constexpr char kTemplateFolder[] = "additional_chat_templates";
constexpr uint64_t kMostCopiedBytes = uint64_t{256} << 20;
constexpr char kManifest[] = "annulus_conversion.json";
constexpr uint64_t kMostManifestBytes = uint64_t{256} << 20;

// A tensor of the new file.
struct Output {
  std::string name;
  std::string type;  // as safetensors spells it
  std::vector<int64_t> shape;
  uint64_t bytes;
};

std::string TypeName(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kBF16:
      return "BF16";
    case DType::kF16:
      return "F16";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E5M2:
      return "F8_E5M2";
    default:
      return "I8";
  }
}

DType ScaleType(DType codes) {
  if (QuantizedGroup(codes) == 0) return DType::kF32;
  return codes == DType::kI4G32 || codes == DType::kI4G64 ? DType::kBF16 : DType::kF16;
}

// One matrix of the new file, with all its slices and its converted form.
struct MatrixItem {
  StoredMatrix whole;  // slice 0
  int64_t slices = 1;
  DType from;
  DType to;

  std::vector<int64_t> Shape(int64_t row) const {
    if (whole.shape.size() == 3) return {slices, whole.rows, row};
    return {whole.rows, row};
  }
  int64_t rows() const { return slices * whole.rows; }
  Output values() const {
    const auto row_bytes = static_cast<int64_t>(StoredRowBytes(to, whole.cols));
    return {whole.name, TypeName(to), Shape(IsQuantized(to) ? row_bytes : whole.cols),
            static_cast<uint64_t>(rows() * row_bytes)};
  }
  Output scales() const {
    const auto row_bytes = static_cast<int64_t>(QuantizedScaleBytes(to, whole.cols));
    const bool grouped = QuantizedGroup(to) > 0;
    const int numbers = grouped ? GroupNumbers(to) : 1;
    std::vector<int64_t> shape = Shape(row_bytes / (grouped ? 2 * numbers : 4));
    if (numbers > 1) shape.push_back(numbers);
    return {ScaleTensorName(whole.name), TypeName(ScaleType(to)), std::move(shape),
            static_cast<uint64_t>(rows() * row_bytes)};
  }
};

// A vector is copied as it is.
struct VectorItem {
  std::string name;
  TensorInfo info;

  Output values() const { return {name, TypeName(info.dtype), info.shape, info.bytes()}; }
};

class Converter {
 public:
  Converter(const ModelConfig& config, const TensorSource& source, DType dtype)
      : config_(config),
        source_(source),
        dtype_(dtype),
        reader_(source, config.fp8_block_rows, config.fp8_block_cols) {}

  // Checks everything, before anything is written.
  absl::Status Plan();
  absl::Status WriteWeights(NewFile& file);
  absl::Status WriteManifest(NewDirectory& target) const;

  Conversion TakeConversion() { return std::move(conversion_); }

 private:
  absl::Status PlanMatrix(const StoredMatrix& part);
  std::string Header();
  absl::Status WriteMatrix(const MatrixItem& item, NewFile& file);
  absl::Status WriteVector(const VectorItem& item, NewFile& file) const;

  const ModelConfig& config_;
  const TensorSource& source_;
  const DType dtype_;
  MatrixReader reader_;
  std::vector<MatrixItem> matrices_;
  std::vector<VectorItem> vectors_;
  QuantizationError total_;
  Conversion conversion_;
};

absl::Status Converter::Plan() {
  ANNULUS_RETURN_IF_ERROR(StoredWeightsDType(config_, source_).status());
  ModelWeights targets;
  ANNULUS_ASSIGN_OR_RETURN(const TensorNames names, NamesIn(config_, source_));
  const WeightSlots slots = SlotsOf(config_, names, targets);
  std::set<std::string> seen;  // several slots may read one tensor
  for (const MatrixSlot& slot : slots.matrices) {
    if (!seen.insert(slot.stored.name).second) continue;
    ANNULUS_RETURN_IF_ERROR(PlanMatrix(slot.stored));
  }
  for (const VectorSlot& slot : slots.vectors) {
    if (!seen.insert(slot.stored.name).second) continue;
    ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source_.Describe(slot.stored.name));
    vectors_.push_back({slot.stored.name, info});
  }
  return absl::OkStatus();
}

absl::Status Converter::PlanMatrix(const StoredMatrix& part) {
  MatrixItem item;
  item.whole = part;
  item.whole.slice = item.whole.first = 0;
  item.whole.step = 1;
  item.whole.heads = {};
  item.whole.rows = SliceRows(part);
  if (part.shape.size() == 3) item.slices = part.shape[0];
  item.to = MatrixDType(dtype_, part.name);
  if (part.transposed && !IsQuantized(item.to)) {
    return absl::UnimplementedError(absl::StrCat(
        "tensor ", part.name, " has the weights of all experts, which are converted to int8, int4 ",
        "and fp8 only, not to ", DTypeName(item.to)));
  }
  ANNULUS_ASSIGN_OR_RETURN(item.from, reader_.Check(part));
  matrices_.push_back(std::move(item));
  return absl::OkStatus();
}

// The length and the JSON header, padded with spaces to a multiple of 8 bytes.
std::string Converter::Header() {
  std::vector<Output> outputs;
  for (const MatrixItem& item : matrices_) {
    outputs.push_back(item.values());
    if (IsQuantized(item.to)) outputs.push_back(item.scales());
  }
  for (const VectorItem& item : vectors_) outputs.push_back(item.values());
  nlohmann::json header;
  uint64_t end = 0;
  for (const Output& output : outputs) {
    const uint64_t begin = std::exchange(end, end + output.bytes);
    header[output.name] = {
        {"dtype", output.type}, {"shape", output.shape}, {"data_offsets", {begin, end}}};
  }
  conversion_.bytes = end;
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const uint64_t length = text.size();
  static_assert(std::endian::native == std::endian::little);
  return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + text;
}

absl::Status Converter::WriteWeights(NewFile& file) {
  ANNULUS_RETURN_IF_ERROR(file.Append(absl::string_view(Header())));
  for (const MatrixItem& item : matrices_) ANNULUS_RETURN_IF_ERROR(WriteMatrix(item, file));
  for (const VectorItem& item : vectors_) ANNULUS_RETURN_IF_ERROR(WriteVector(item, file));
  return file.Sync();
}

// Values block by block, then all scales.
absl::Status Converter::WriteMatrix(const MatrixItem& item, NewFile& file) {
  const StoredMatrix& whole = item.whole;
  const size_t row_bytes = StoredRowBytes(item.to, whole.cols);
  const size_t scale_bytes = IsQuantized(item.to) ? QuantizedScaleBytes(item.to, whole.cols) : 0;
  std::vector<std::byte> scales(static_cast<size_t>(item.rows()) * scale_bytes);
  std::byte* scale = scales.data();
  QuantizationError error;
  std::vector<std::byte> values;
  StoredMatrix slice = whole;
  for (slice.slice = 0; slice.slice < item.slices; ++slice.slice) {
    const int64_t step = reader_.BlockRows(slice);
    for (int64_t first = 0; first < slice.rows; first += step) {
      const int64_t count = std::min(step, slice.rows - first);
      ANNULUS_ASSIGN_OR_RETURN(const HostTensorView rows, reader_.Read(slice, first, count));
      if (!StaysFinite(rows, item.to)) return CheckFinite(reader_, slice, item.to);
      RowConverter converter(rows, item.to);
      values.resize(static_cast<size_t>(count) * row_bytes);
      for (int64_t r = 0; r < count; ++r, scale += scale_bytes) {
        const absl::Status status =
            converter.Convert(r, values.data() + static_cast<size_t>(r) * row_bytes, scale, &error);
        if (!status.ok()) {
          return absl::Status(status.code(),
                              absl::StrCat("tensor ", whole.name, ": ", status.message()));
        }
      }
      ANNULUS_RETURN_IF_ERROR(file.Append(std::span<const std::byte>(values)));
    }
  }
  conversion_.matrices.push_back({whole.name, item.from, item.to, error.relative()});
  total_.Add(error);
  conversion_.relative_error = total_.relative();
  return file.Append(std::span<const std::byte>(scales));
}

absl::Status Converter::WriteVector(const VectorItem& item, NewFile& file) const {
  std::vector<std::byte> bytes(item.info.bytes());
  ANNULUS_RETURN_IF_ERROR(source_.Read(item.name, bytes));
  std::vector<float> values(static_cast<size_t>(item.info.elements()));
  ConvertToFloat(item.info.dtype, bytes.data(), values.data(), values.size());
  ANNULUS_RETURN_IF_ERROR(CheckFinite(item.name, values));
  return file.Append(std::span<const std::byte>(bytes));
}

absl::Status WriteFile(const std::string& name, absl::string_view text, NewDirectory& target) {
  ANNULUS_ASSIGN_OR_RETURN(const auto file, target.CreateFile(name));
  ANNULUS_RETURN_IF_ERROR(file->Append(text));
  return file->Sync();
}

absl::Status Converter::WriteManifest(NewDirectory& target) const {
  nlohmann::json manifest;
  manifest["format"] = 1;
  manifest["weights_dtype"] = std::string(DTypeName(dtype_));
  manifest["relative_error"] = conversion_.relative_error;
  manifest["weights_bytes"] = conversion_.bytes;
  for (const ConvertedMatrix& matrix : conversion_.matrices) {
    manifest["matrices"][matrix.name] = {{"from", std::string(DTypeName(matrix.from))},
                                         {"to", std::string(DTypeName(matrix.to))},
                                         {"relative_error", matrix.relative_error}};
  }
  return WriteFile(kManifest, manifest.dump(1) + "\n", target);
}

absl::Status CopyFile(const std::string& from, const std::string& to_folder,
                      const std::string& name, NewDirectory& target) {
  const auto text = ReadSmallFile(from, name, kMostCopiedBytes);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(text.status());
  return WriteFile(absl::StrCat(to_folder, name), *text, target);
}

absl::Status CopyFiles(const std::string& directory, NewDirectory& target) {
  for (const char* name : kCopied) ANNULUS_RETURN_IF_ERROR(CopyFile(directory, "", name, target));
  const std::string templates = absl::StrCat(directory, "/", kTemplateFolder);
  std::error_code missing;
  std::filesystem::directory_iterator entries(templates, missing);
  if (missing) return absl::OkStatus();
  ANNULUS_RETURN_IF_ERROR(target.CreateFolder(kTemplateFolder));
  for (const auto& entry : entries) {
    const std::filesystem::path path = entry.path();
    if (path.extension() != ".jinja") continue;
    ANNULUS_RETURN_IF_ERROR(
        CopyFile(templates, absl::StrCat(kTemplateFolder, "/"), path.filename().string(), target));
  }
  return absl::OkStatus();
}

// `write_files` writes the files besides the weights.
absl::StatusOr<Conversion> Convert(const ModelConfig& config, const TensorSource& source,
                                   DType dtype, const std::string& destination,
                                   absl::FunctionRef<absl::Status(NewDirectory&)> write_files) {
  Converter converter(config, source, dtype);
  ANNULUS_RETURN_IF_ERROR(converter.Plan());
  ANNULUS_ASSIGN_OR_RETURN(const auto target, NewDirectory::Create(destination));
  {
    ANNULUS_ASSIGN_OR_RETURN(const auto file, target->CreateFile("model.safetensors"));
    ANNULUS_RETURN_IF_ERROR(converter.WriteWeights(*file));
  }
  ANNULUS_RETURN_IF_ERROR(write_files(*target));
  ANNULUS_RETURN_IF_ERROR(converter.WriteManifest(*target));
  ANNULUS_RETURN_IF_ERROR(target->Commit());
  return converter.TakeConversion();
}

}  // namespace

absl::StatusOr<Conversion> ConvertModel(const std::string& directory, DType dtype,
                                        const std::string& destination) {
  ANNULUS_RETURN_IF_ERROR(CheckModelDirectory(directory));
  ANNULUS_ASSIGN_OR_RETURN(const ModelConfig config, LoadModelConfig(directory));
  ANNULUS_ASSIGN_OR_RETURN(const auto source, SafetensorsCheckpoint::Open(directory));
  return Convert(config, *source, dtype, destination,
                 [&](NewDirectory& target) { return CopyFiles(directory, target); });
}

absl::StatusOr<Conversion> ConvertTensors(const ModelConfig& config, const TensorSource& source,
                                          const std::map<std::string, std::string>& files,
                                          DType dtype, const std::string& destination) {
  return Convert(config, source, dtype, destination, [&](NewDirectory& target) -> absl::Status {
    for (const auto& [name, text] : files) {
      ANNULUS_RETURN_IF_ERROR(WriteFile(name, text, target));
    }
    return absl::OkStatus();
  });
}

absl::StatusOr<std::optional<double>> LoadConversionError(const std::string& directory) {
  const auto text = ReadSmallFile(directory, kManifest, kMostManifestBytes);
  if (absl::IsNotFound(text.status())) return std::nullopt;
  ANNULUS_RETURN_IF_ERROR(text.status());
  const std::string file = absl::StrCat(directory, "/", kManifest);
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json manifest, ParseJsonTree(*text, file));
  if (!manifest.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a JSON object"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const double error,
                           JsonFields(file, "", manifest).Number("relative_error", 0, 1e6));
  return error;
}

}  // namespace annulus
