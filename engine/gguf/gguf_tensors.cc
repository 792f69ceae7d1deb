#include "engine/gguf/gguf_tensors.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/gguf/gguf_names.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/base/check.h"
#include "kernels/base/quantize.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Experts = GgufFamily::Experts;
using Names = GgufFamily::Names;

constexpr int64_t kFp4Block = 32;
constexpr size_t kFp4Codes = 16;

// Of a file: what its header may claim without taking much of the host's memory. The largest models
// have a tenth.
constexpr size_t kMostEntries = size_t{1} << 20;

bool IsNorm(absl::string_view name) { return absl::EndsWith(name, "norm.weight"); }

// The DType of the blocks that kernels read as they are.
std::optional<DType> KeptType(const GgufType& type) {
  for (const DType dtype : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1}) {
    if (absl::EqualsIgnoreCase(type.name, DTypeName(dtype))) return dtype;
  }
  return std::nullopt;
}

// The codes of a stored row, in the order of kernels/base/quantize.h: a block of 4-bit codes has
// value i in the low half of byte i and value i + 16 in the high one.
void MakeCodes(DType dtype, const GgufType& type, const std::byte* stored,
               std::vector<std::byte>& row) {
  const size_t bytes = QuantizedRowBytes(dtype, type.block);
  const size_t before = type.bytes - bytes;  // scale and minimum
  const std::byte* from = stored + before;
  for (size_t at = 0; at < row.size(); at += bytes, from += type.bytes) {
    if (QuantizedBits(dtype) == 8) {
      std::memcpy(row.data() + at, from, bytes);
      continue;
    }
    for (size_t i = 0; i < bytes; ++i) {
      const size_t first = 2 * i % bytes;
      const int shift = i < bytes / 2 ? 0 : 4;
      const std::byte low = from[first] >> shift & std::byte{15};
      const std::byte high = from[first + 1] >> shift & std::byte{15};
      row[at + i] = low | high << 4;
    }
  }
}

// Likewise the scales and minimums, with which blocks begin.
void MakeScales(DType dtype, const GgufType& type, const std::byte* stored,
                std::vector<std::byte>& row) {
  const size_t bytes = QuantizedScaleBytes(dtype, type.block);
  for (size_t at = 0; at < row.size(); at += bytes, stored += type.bytes) {
    std::memcpy(row.data() + at, stored, bytes);
  }
}

absl::Status WrongShape(const GgufFile& file, const GgufTensor& tensor, absl::string_view allowed) {
  return absl::InvalidArgumentError(absl::StrCat(file.path(), ": tensor ", tensor.name,
                                                 " has the shape ", ShapeToString(tensor.shape),
                                                 "; allowed: ", allowed));
}

}  // namespace

absl::StatusOr<std::unique_ptr<GgufTensors>> GgufTensors::Create(
    std::shared_ptr<const GgufFile> file, const GgufFamily& family, Codes codes) {
  auto made = std::unique_ptr<GgufTensors>(new GgufTensors(std::move(file), codes == Codes::kKeep));
  const std::vector<absl::string_view> read = GgufConfigTensors(made->file_);
  for (const GgufTensor* const tensor : made->file_.Tensors()) {
    if (std::find(read.begin(), read.end(), tensor->name) != read.end()) continue;
    ANNULUS_RETURN_IF_ERROR(made->Add(family, *tensor));
  }
  return made;
}

GgufTensors::Entry GgufTensors::MakeEntry(const GgufTensor& tensor, std::vector<int64_t> shape,
                                          Form form) const {
  Entry entry;
  const DType widened = keep_ && tensor.shape.size() > 1 ? DType::kBF16 : DType::kF32;
  entry.info.dtype = form == Form::kValues ? tensor.type->plain.value_or(widened) : DType::kF32;
  if (form == Form::kFp4Codes || form == Form::kFp4Scales) entry.info.dtype = DType::kI8;
  entry.info.shape = std::move(shape);
  entry.source = &tensor;
  entry.form = form;
  entry.rows = entry.info.elements() / tensor.cols();
  entry.row_bytes = static_cast<size_t>(tensor.cols()) * DTypeSize(entry.info.dtype);
  return entry;
}

// Two tensors where a matrix is kept as it is stored: its codes and their scales.
absl::Status GgufTensors::AddEntry(std::string name, Entry entry) {
  const std::optional<DType> kept =
      keep_ && entry.form == Form::kValues && entry.info.shape.size() == 2
          ? KeptType(*entry.source->type)
          : std::nullopt;
  if (!kept.has_value()) return Insert(std::move(name), std::move(entry));
  const int64_t cols = entry.source->cols();
  Entry scales = entry;
  scales.form = Form::kScales;
  scales.row_bytes = QuantizedScaleBytes(*kept, cols);
  scales.info = {DType::kF16, {entry.rows, cols / QuantizedGroup(*kept)}};
  if (GroupNumbers(*kept) > 1) scales.info.shape.push_back(GroupNumbers(*kept));
  entry.form = Form::kCodes;
  entry.row_bytes = QuantizedRowBytes(*kept, cols);
  entry.info = {DType::kI8, {entry.rows, static_cast<int64_t>(entry.row_bytes)}};
  ANNULUS_RETURN_IF_ERROR(Insert(ScaleTensorName(name), std::move(scales)));
  return Insert(std::move(name), std::move(entry));
}

absl::Status GgufTensors::Insert(std::string name, Entry entry) {
  if (entries_.size() == kMostEntries) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": its tensors (each expert counts as one) are more than ", kMostEntries));
  }
  const GgufTensor& source = *entry.source;
  const auto [at, added] = entries_.try_emplace(std::move(name), std::move(entry));
  if (added) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": the tensors ",
                                                 at->second.source->name, " and ", source.name,
                                                 " both map to ", at->first, "; allowed: one"));
}

absl::Status GgufTensors::AddWhole(std::string name, const GgufTensor& tensor, Form form) {
  return AddEntry(std::move(name), MakeEntry(tensor, tensor.shape, form));
}

absl::Status GgufTensors::Add(const GgufFamily& family, const GgufTensor& tensor) {
  if (tensor.shape.size() > 1 && !tensor.type->plain.has_value()) {
    quantized_ = true;
    if (!keep_ || !KeptType(*tensor.type).has_value()) ++widened_[std::string(tensor.type->name)];
  }
  const Form form = family.gemma && IsNorm(tensor.name) ? Form::kMinusOne : Form::kValues;
  if (const absl::string_view name = GgufModelTensor(tensor.name); !name.empty()) {
    return AddWhole(std::string(name), tensor, form);
  }
  for (const auto& [stacked, each] :
       {std::pair("altup_proj.weight", "model.altup_projections."),
        std::pair("altup_unembd_proj.weight", "model.altup_unembed_projections.")}) {
    if (family.names != Names::kGemma3n || tensor.name != stacked) continue;
    if (tensor.shape.size() != 3) return WrongShape(file_, tensor, "three dimensions");
    return AddEachSlice(tensor, each, ".weight", 0, tensor.shape[1]);
  }
  absl::string_view rest = tensor.name;
  int32_t layer = 0;
  const size_t dot = absl::ConsumePrefix(&rest, "blk.") ? rest.find('.') : absl::string_view::npos;
  if (dot != absl::string_view::npos && absl::SimpleAtoi(rest.substr(0, dot), &layer)) {
    return AddLayerTensor(family, tensor, rest.substr(0, dot), rest.substr(dot + 1));
  }
  return AddWhole(std::string(tensor.name), tensor);
}

absl::Status GgufTensors::AddLayerTensor(const GgufFamily& family, const GgufTensor& tensor,
                                         absl::string_view layer, absl::string_view suffix) {
  const std::string prefix = absl::StrCat("model.layers.", layer, ".");
  absl::string_view plain = suffix;
  absl::string_view kind;
  for (const absl::string_view ending : {".weight", ".bias"}) {
    if (absl::ConsumeSuffix(&plain, ending)) kind = ending;
  }
  if (absl::EndsWith(plain, "_exps")) return AddExperts(family, tensor, prefix, suffix);
  const absl::string_view name = GgufLayerTensor(family, plain);
  const bool scale = absl::EndsWith(plain, ".scale");
  if (name.empty() || (kind.empty() && !scale)) {
    return AddWhole(absl::StrCat(prefix, suffix), tensor);
  }
  if (plain == "attn_sinks" || plain == "exp_probs_b" || plain == "layer_output_scale" ||
      plain == "altup_correct_scale") {
    kind = "";
  }
  std::string whole = absl::StrCat(prefix, name, kind);
  if (family.interleaved_rope && (plain == "attn_q" || plain == "attn_k")) {
    return AddRotated(std::move(whole), tensor,
                      plain == "attn_q" ? "attention.head_count" : "attention.head_count_kv");
  }
  if (plain == "ffn_gate_inp_shexp" && tensor.shape.size() == 1) {
    return AddEntry(std::move(whole), MakeEntry(tensor, {1, tensor.cols()}, Form::kValues));
  }
  if (family.names == Names::kStableLm && tensor.shape.size() == 2 && IsNorm(tensor.name)) {
    return AddEachHead(tensor, absl::StrCat(prefix, name));
  }
  const bool shifted = family.gemma && IsNorm(tensor.name);
  return AddWhole(std::move(whole), tensor, shifted ? Form::kMinusOne : Form::kValues);
}

// A projection or its bias, whose rows are reordered head by head.
absl::Status GgufTensors::AddRotated(std::string name, const GgufTensor& tensor,
                                     absl::string_view heads_key) {
  const GgufValue* value =
      file_.Find(absl::StrCat(file_.Text("general.architecture"), ".", heads_key));
  if (value == nullptr) {
    value = file_.Find(absl::StrCat(file_.Text("general.architecture"), ".attention.head_count"));
  }
  int64_t heads = 0;
  if (value != nullptr) {
    const nlohmann::json first = value->kind == GgufValue::Kind::kArray && value->count > 0 &&
                                         value->element != GgufValue::Kind::kString
                                     ? value->At(0)
                                     : value->Scalar();
    if (first.is_number_integer() && first > 0 && first < 1 << 16) heads = first.get<int64_t>();
  }
  const int64_t rows = tensor.shape.front();
  if (heads == 0 || tensor.shape.size() > 2 || rows % heads != 0 || rows / heads % 2 != 0) {
    return WrongShape(file_, tensor, "an even number of rows for each head");
  }
  Entry entry = MakeEntry(tensor, tensor.shape, Form::kValues);
  if (tensor.shape.size() == 1) {
    // A bias: one number a row.
    if (tensor.type->block != 1) return WrongShape(file_, tensor, "a vector of plain numbers");
    entry.rows = rows;
    entry.row_bytes = DTypeSize(entry.info.dtype);
  }
  entry.head_rows = rows / heads;
  return AddEntry(std::move(name), std::move(entry));
}

absl::Status GgufTensors::AddExperts(const GgufFamily& family, const GgufTensor& tensor,
                                     const std::string& prefix, absl::string_view suffix) {
  if (family.experts == Experts::kGptOss) return AddGptOssExperts(tensor, prefix, suffix);
  if (family.experts == Experts::kGemma4 && suffix == "ffn_gate_up_exps.weight") {
    if (tensor.shape.size() != 3 || tensor.shape[1] % 2 != 0) {
      return WrongShape(file_, tensor, "three dimensions, the second even");
    }
    const int64_t rows = tensor.shape[1] / 2;
    const std::string experts = prefix + "experts.";
    ANNULUS_RETURN_IF_ERROR(AddEachSlice(tensor, experts, ".gate_proj.weight", 0, rows));
    return AddEachSlice(tensor, experts, ".up_proj.weight", rows, rows);
  }
  const GgufExpertNames names = GgufExpertTensor(family, suffix);
  if (names.projection.empty()) return AddWhole(absl::StrCat(prefix, suffix), tensor);
  if (tensor.shape.size() != 3) return WrongShape(file_, tensor, "three dimensions");
  return AddEachSlice(tensor, absl::StrCat(prefix, names.block, "experts."),
                      absl::StrCat(".", names.projection), 0, tensor.shape[1]);
}

// The norm of each head, which StableLM's checkpoints have as tensors of their own.
absl::Status GgufTensors::AddEachHead(const GgufTensor& tensor, const std::string& name) {
  for (int64_t head = 0; head < tensor.shape[0]; ++head) {
    Entry entry = MakeEntry(tensor, {tensor.cols()}, Form::kValues);
    entry.first = head;
    ANNULUS_RETURN_IF_ERROR(
        AddEntry(absl::StrCat(name, ".norms.", head, ".weight"), std::move(entry)));
  }
  return absl::OkStatus();
}

// Rows [first, first + rows) of each slice of three dimensions, as a tensor PREFIXnSUFFIX.
absl::Status GgufTensors::AddEachSlice(const GgufTensor& tensor, const std::string& prefix,
                                       absl::string_view suffix, int64_t first, int64_t rows) {
  for (int64_t slice = 0; slice < tensor.shape[0]; ++slice) {
    Entry entry = MakeEntry(tensor, {rows, tensor.cols()}, Form::kValues);
    entry.first = slice * tensor.shape[1] + first;
    ANNULUS_RETURN_IF_ERROR(AddEntry(absl::StrCat(prefix, slice, suffix), std::move(entry)));
  }
  return absl::OkStatus();
}

// gpt-oss: gate and up share a tensor whose rows alternate; codes and exponents have one each.
absl::Status GgufTensors::AddGptOssExperts(const GgufTensor& tensor, const std::string& prefix,
                                           absl::string_view suffix) {
  if (absl::StartsWith(suffix, "ffn_up_exps")) return absl::OkStatus();  // comes with gate
  const bool gate = absl::StartsWith(suffix, "ffn_gate_exps");
  const std::string name =
      absl::StrCat(prefix, "mlp.experts.", gate ? "gate_up_proj" : "down_proj");
  const GgufTensor* odd = nullptr;
  if (gate) {
    std::string partner(tensor.name);
    partner.replace(partner.find("gate_exps"), 4, "up");
    odd = file_.FindTensor(partner);
    if (odd == nullptr || odd->shape != tensor.shape || odd->type != tensor.type) {
      return WrongShape(file_, tensor, absl::StrCat("shape and type of ", partner));
    }
  }
  const bool bias = absl::EndsWith(suffix, ".bias");
  if (tensor.shape.size() != (bias ? 2 : 3)) {
    return WrongShape(file_, tensor, bias ? "two dimensions" : "three dimensions");
  }
  std::vector<int64_t> shape = tensor.shape;
  if (gate) shape[1] *= 2;
  if (bias) {
    if (tensor.type->block != 1) return WrongShape(file_, tensor, "a matrix of plain numbers");
    Entry entry = MakeEntry(tensor, shape, Form::kValues);
    entry.rows = entry.info.elements();
    entry.row_bytes = DTypeSize(entry.info.dtype);
    entry.odd = odd;
    return Insert(name + "_bias", std::move(entry));
  }
  if (tensor.type->name != "MXFP4") {
    return absl::UnimplementedError(absl::StrCat(file_.path(), ": tensor ", tensor.name,
                                                 " is stored as ", tensor.type->name,
                                                 "; served for experts of gpt-oss: MXFP4"));
  }
  const int64_t blocks = tensor.cols() / kFp4Block;
  for (const Form form : {Form::kFp4Codes, Form::kFp4Scales}) {
    Entry entry = MakeEntry(tensor, shape, form);
    entry.info.shape = {shape[0], shape[1], blocks};
    if (form == Form::kFp4Codes) entry.info.shape.push_back(static_cast<int64_t>(kFp4Codes));
    entry.rows = shape[0] * shape[1];
    entry.row_bytes = static_cast<size_t>(blocks) * (form == Form::kFp4Codes ? kFp4Codes : 1);
    entry.odd = odd;
    ANNULUS_RETURN_IF_ERROR(
        Insert(name + (form == Form::kFp4Codes ? "_blocks" : "_scales"), std::move(entry)));
  }
  return absl::OkStatus();
}

std::vector<std::string> GgufTensors::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) names.push_back(name);
  return names;
}

absl::StatusOr<TensorInfo> GgufTensors::Describe(absl::string_view name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat(file_.path(), " has no tensor ", name));
  }
  ANNULUS_RETURN_IF_ERROR(file_.CheckServed(*found->second.source));
  return found->second.info;
}

absl::Status GgufTensors::Read(absl::string_view name, std::span<std::byte> destination) const {
  return ReadRange(name, 0, destination);
}

// One made row of `entry` from the bytes of its stored row.
void GgufTensors::MakeRow(const Entry& entry, const GgufTensor& tensor, const std::byte* stored,
                          std::vector<std::byte>& row) const {
  if (entry.form == Form::kCodes)
    return MakeCodes(*KeptType(*tensor.type), *tensor.type, stored, row);
  if (entry.form == Form::kScales)
    return MakeScales(*KeptType(*tensor.type), *tensor.type, stored, row);
  const int64_t values = static_cast<int64_t>(entry.row_bytes / DTypeSize(entry.info.dtype));
  if (entry.form == Form::kFp4Codes || entry.form == Form::kFp4Scales) {
    const int64_t blocks = tensor.cols() / kFp4Block;
    for (int64_t block = 0; block < blocks; ++block) {
      const std::byte* const from = stored + static_cast<size_t>(block) * (kFp4Codes + 1);
      if (entry.form == Form::kFp4Scales) {
        row[static_cast<size_t>(block)] = from[0];
        continue;
      }
      std::byte* const to = row.data() + static_cast<size_t>(block) * kFp4Codes;
      for (size_t i = 0; i < kFp4Codes; ++i) {
        // Values 2i and 2i + 1 lie in the same half of neighbouring bytes.
        const size_t first = 2 * i % kFp4Codes;
        const int shift = i < kFp4Codes / 2 ? 0 : 4;
        const std::byte low = from[1 + first] >> shift & std::byte{15};
        const std::byte high = from[2 + first] >> shift & std::byte{15};
        to[i] = low | high << 4;
      }
    }
    return;
  }
  if (entry.form == Form::kValues && tensor.type->plain.has_value()) {
    std::memcpy(row.data(), stored, entry.row_bytes);
    return;
  }
  if (entry.info.dtype == DType::kBF16) {
    std::vector<float> widened(static_cast<size_t>(values));
    tensor.type->widen(stored, values / tensor.type->block, widened.data());
    return ConvertFromFloat(DType::kBF16, widened.data(), row.data(), widened.size());
  }
  auto* const numbers = reinterpret_cast<float*>(row.data());
  tensor.type->widen(stored, values / tensor.type->block, numbers);
  if (entry.form != Form::kMinusOne) return;
  for (int64_t i = 0; i < values; ++i) numbers[i] -= 1;
}

// Bytes of a stored row: those of the tensor's own rows, but for vectors taken number by number.
size_t GgufTensors::StoredRowBytes(const Entry& entry) {
  const bool numbers = entry.form == Form::kValues && entry.source->type->block == 1;
  return numbers ? entry.row_bytes / DTypeSize(entry.info.dtype) * entry.source->type->bytes
                 : entry.source->row_bytes();
}

// How many rows are read at a time, so that little memory is needed besides the destination.
int64_t GgufTensors::PartRows(const Entry& entry) {
  constexpr size_t kPartBytes = size_t{1} << 20;
  const int64_t rows =
      std::max<int64_t>({entry.head_rows, 2, static_cast<int64_t>(kPartBytes / entry.row_bytes)});
  return entry.head_rows > 0 ? rows / entry.head_rows * entry.head_rows : rows / 2 * 2;
}

// Rows [begin, end), of which the first `skip` bytes are left out and as many written as fit.
absl::Status GgufTensors::ReadRows(const Entry& entry, int64_t begin, int64_t end, size_t skip,
                                   std::span<std::byte> destination) const {
  const int64_t sources = entry.odd == nullptr ? 1 : 2;
  const size_t stored_bytes = StoredRowBytes(entry);
  // Stored rows that the made ones need: all of a head where rows are reordered.
  const int64_t unit = entry.head_rows > 0 ? entry.head_rows : sources;
  const int64_t from = (entry.first + begin / unit * unit) / sources;
  const int64_t to = (entry.first + std::min(entry.rows, (end + unit - 1) / unit * unit)) / sources;
  std::vector<std::byte> stored[2];
  for (int64_t k = 0; k < sources; ++k) {
    stored[k].resize(static_cast<size_t>(to - from) * stored_bytes);
    ANNULUS_RETURN_IF_ERROR(file_.Read(k == 0 ? *entry.source : *entry.odd,
                                       static_cast<uint64_t>(from) * stored_bytes, stored[k]));
  }
  std::vector<std::byte> row(entry.row_bytes);
  for (int64_t r = begin; r < end; ++r) {
    int64_t at = r;
    if (entry.head_rows > 0) {
      const int64_t half = entry.head_rows / 2;
      const int64_t place = r % entry.head_rows;
      at = r - place + place % half * 2 + place / half;
    }
    const int64_t k = sources == 1 ? 0 : at % 2;
    const int64_t local = (entry.first + at) / sources - from;
    MakeRow(entry, k == 0 ? *entry.source : *entry.odd,
            stored[k].data() + static_cast<size_t>(local) * stored_bytes, row);
    const size_t bytes = std::min(row.size() - skip, destination.size());
    std::memcpy(destination.data(), row.data() + skip, bytes);
    destination = destination.subspan(bytes);
    skip = 0;
  }
  return absl::OkStatus();
}

absl::Status GgufTensors::ReadRange(absl::string_view name, size_t offset,
                                    std::span<std::byte> destination) const {
  ANNULUS_RETURN_IF_ERROR(Describe(name).status());
  const Entry& entry = entries_.find(name)->second;
  ANNULUS_CHECK(offset + destination.size() <= static_cast<size_t>(entry.rows) * entry.row_bytes)
      << name;
  const int64_t step = PartRows(entry);
  while (!destination.empty()) {
    const auto begin = static_cast<int64_t>(offset / entry.row_bytes);
    const int64_t end = std::min<int64_t>(
        {begin / step * step + step,
         static_cast<int64_t>((offset + destination.size() + entry.row_bytes - 1) /
                              entry.row_bytes)});
    const size_t skip = offset % entry.row_bytes;
    const size_t bytes =
        std::min(static_cast<size_t>(end - begin) * entry.row_bytes - skip, destination.size());
    ANNULUS_RETURN_IF_ERROR(ReadRows(entry, begin, end, skip, destination.first(bytes)));
    offset += bytes;
    destination = destination.subspan(bytes);
  }
  return absl::OkStatus();
}

// The stored rows, a made one, and its values in float32: see ReadRows and MakeRow.
size_t GgufTensors::RangeMemory(absl::string_view name, size_t bytes) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) return 0;
  const Entry& entry = found->second;
  const auto touched = static_cast<int64_t>(bytes / entry.row_bytes) + 2;
  const int64_t made = std::min({touched, PartRows(entry), entry.rows});
  const int64_t unit = std::max<int64_t>(entry.head_rows, 2);
  const size_t stored = static_cast<size_t>(made + 2 * unit) * StoredRowBytes(entry);
  return stored + entry.row_bytes + entry.row_bytes / DTypeSize(entry.info.dtype) * sizeof(float);
}

}  // namespace annulus
