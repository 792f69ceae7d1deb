#include "engine/gguf/gguf_gemma4.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/gguf/gguf_numbers.h"
#include "engine/model/fields/config_limits.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using nlohmann::json;

constexpr absl::string_view kPrefix = "gemma4.";
constexpr char kSliding[] = "sliding_attention";
constexpr char kFull[] = "full_attention";

class Gemma4Writer {
 public:
  Gemma4Writer(const GgufFile& file, json& config) : file_(file), config_(config) {}

  absl::Status Write();

 private:
  std::string Key(absl::string_view key) const { return absl::StrCat(kPrefix, key); }
  absl::StatusOr<json> Whole(absl::string_view key) const {
    return GgufWholeNumber(file_, Key(key));
  }
  absl::Status Copy(const char* to, absl::string_view from) {
    ANNULUS_ASSIGN_OR_RETURN(const json value, Whole(from));
    if (!value.is_null()) config_[to] = value;
    return absl::OkStatus();
  }
  // Of the scalar or array at `key`, which must be there.
  absl::StatusOr<std::vector<uint64_t>> ByLayer(absl::string_view key) const;
  absl::Status SameAs(absl::string_view values, absl::string_view keys) const;
  // The last never does: see ParseGemma4Layers.
  bool Slides(size_t layer) const {
    return layer + 1 < layers_ && config_["layer_types"][layer] == kSliding;
  }
  absl::Status WriteLayers();
  absl::Status WriteShapes();
  absl::Status WriteBlocks();
  absl::Status WriteRope();
  absl::StatusOr<double> TurningPart(uint64_t head_dim) const;
  absl::Status WriteInputs();
  absl::Status WriteExperts();

  const GgufFile& file_;
  json& config_;
  uint64_t layers_ = 0;
  uint64_t shared_ = 0;  // the last layers, which attend the keys of others
};

absl::StatusOr<std::vector<uint64_t>> Gemma4Writer::ByLayer(absl::string_view key) const {
  ANNULUS_ASSIGN_OR_RETURN(std::vector<uint64_t> numbers,
                           GgufNumbersByLayer(file_, Key(key), layers_));
  if (!numbers.empty()) return numbers;
  return absl::InvalidArgumentError(
      absl::StrCat(file_.path(), ": the metadata have no ", Key(key),
                   "; needed: a whole number, or one for each of the ", layers_, " layers"));
}

absl::Status Gemma4Writer::WriteLayers() {
  ANNULUS_ASSIGN_OR_RETURN(const json layers, Whole("block_count"));
  if (layers.is_null() || layers < 1 || layers > kMostLayers) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", Key("block_count"), " is ",
                                                   layers.dump(), "; allowed: from 1 to ",
                                                   kMostLayers));
  }
  layers_ = layers.get<uint64_t>();
  const json types = config_.value("layer_types", json());
  if (!types.is_array() || types.size() != layers_) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": ", Key("attention.sliding_window_pattern"),
        " is missing or of another length; needed: a flag for each of the ", layers_, " layers"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const json shared, Whole("attention.shared_kv_layers"));
  if (!shared.is_null() && shared >= layers_) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_.path(), ": ", Key("attention.shared_kv_layers"), " is ", shared.dump(),
                     "; allowed: from 0 to ", layers_ - 1));
  }
  shared_ = shared.is_null() ? 0 : shared.get<uint64_t>();
  config_["num_kv_shared_layers"] = shared_;
  return absl::OkStatus();
}

absl::Status Gemma4Writer::SameAs(absl::string_view values, absl::string_view keys) const {
  ANNULUS_ASSIGN_OR_RETURN(const json value, Whole(values));
  ANNULUS_ASSIGN_OR_RETURN(const json key, Whole(keys));
  if (value.is_null() || value == key) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(file_.path(), ": ", Key(values), " is ",
                                               value.dump(), " and ", Key(keys), " ", key.dump(),
                                               "; supported: the same for both"));
}

// The keys without "_swa" are those of full layers, in config.json of sliding ones.
absl::Status Gemma4Writer::WriteShapes() {
  ANNULUS_RETURN_IF_ERROR(SameAs("attention.value_length_swa", "attention.key_length_swa"));
  ANNULUS_RETURN_IF_ERROR(SameAs("rope.dimension_count", "attention.key_length"));
  ANNULUS_RETURN_IF_ERROR(SameAs("rope.dimension_count_swa", "attention.key_length_swa"));
  ANNULUS_ASSIGN_OR_RETURN(const json full_dim, Whole("attention.key_length"));
  ANNULUS_RETURN_IF_ERROR(Copy("head_dim", "attention.key_length_swa"));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> heads, ByLayer("attention.head_count_kv"));
  json listed = json::object();
  bool values_are_keys = false;
  for (size_t i = 0; i < layers_; ++i) {
    if (Slides(i)) {
      config_["num_key_value_heads"] = heads[i];
      continue;
    }
    json& shape = listed[absl::StrCat(i)];
    shape["num_key_value_heads"] = heads[i];
    if (!full_dim.is_null()) shape["head_dim"] = full_dim;
    const auto has = [&](absl::string_view part) {
      return file_.FindTensor(absl::StrCat("blk.", i, ".", part, ".weight")) != nullptr;
    };
    if (i + shared_ < layers_ && has("attn_k") && !has("attn_v")) values_are_keys = true;
  }
  config_["per_layer_config"] = std::move(listed);
  config_["attention_k_eq_v"] = values_are_keys;
  return absl::OkStatus();
}

absl::Status Gemma4Writer::WriteBlocks() {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<uint64_t> widths, ByLayer("feed_forward_length"));
  const uint64_t width = widths.front();
  const bool wide = shared_ > 0 && widths.back() != width;
  for (size_t i = 0; i < layers_; ++i) {
    const bool doubled = wide && i + shared_ >= layers_;
    if (widths[i] == (doubled ? 2 * width : width)) continue;
    return absl::UnimplementedError(absl::StrCat(
        file_.path(), ": ", Key("feed_forward_length"), " of layer ", i, " is ", widths[i],
        "; supported: ", width, " as in the first, and twice that in all of the last ",
        Key("attention.shared_kv_layers"), ", ", shared_));
  }
  config_["intermediate_size"] = width;
  config_["use_double_wide_mlp"] = wide;
  return absl::OkStatus();
}

// The part that turns, of the factors that divide the frequencies: 1 for the first pairs, and for
// the others so much that they stand still.
absl::StatusOr<double> Gemma4Writer::TurningPart(uint64_t head_dim) const {
  constexpr absl::string_view kName = "rope_freqs.weight";
  constexpr float kStill = 1e30f;
  if (head_dim > uint64_t{kMostHeadDim}) {
    return absl::InvalidArgumentError(absl::StrCat(file_.path(), ": ", Key("attention.key_length"),
                                                   " is ", head_dim, "; allowed: at most ",
                                                   kMostHeadDim));
  }
  const GgufTensor* const tensor = file_.FindTensor(kName);
  if (tensor == nullptr || tensor->shape != std::vector{static_cast<int64_t>(head_dim / 2)}) {
    return absl::InvalidArgumentError(absl::StrCat(
        file_.path(), ": tensor ", kName, " is missing or of another shape; needed: ", head_dim / 2,
        " factors, one for each pair of a head of full attention"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<float> factors, file_.ReadAsFloat(*tensor));
  const auto turns = [](float factor) { return factor == 1; };
  const auto still = std::find_if_not(factors.begin(), factors.end(), turns);
  if (!std::all_of(still, factors.end(), [](float factor) { return factor >= kStill; })) {
    return absl::UnimplementedError(
        absl::StrCat(file_.path(), ": tensor ", kName, " has the factor ",
                     *std::find_if(still, factors.end(), [](float f) { return !(f >= kStill); }),
                     "; supported: 1, and behind these at least ", kStill));
  }
  const auto turning = static_cast<double>(still - factors.begin());
  double part = 2 * turning / static_cast<double>(head_dim);
  // The parser of config.json rounds down.
  if (std::floor(part * static_cast<double>(head_dim) / 2) < turning)
    part = std::nextafter(part, 2);
  return part;
}

absl::Status Gemma4Writer::WriteRope() {
  const json scaling = [&] {
    const GgufValue* const value = file_.Find(Key("rope.scaling.type"));
    return value == nullptr ? json("none") : value->Scalar();
  }();
  if (scaling != "none") {
    return absl::UnimplementedError(absl::StrCat(file_.path(), ": ", Key("rope.scaling.type"),
                                                 " is ", scaling.dump(), "; supported: none"));
  }
  const json shape =
      config_["per_layer_config"].empty() ? json::object() : *config_["per_layer_config"].begin();
  json rope = {{kSliding, {{"rope_type", "default"}}}, {kFull, {{"rope_type", "proportional"}}}};
  if (shape.contains("head_dim")) {
    ANNULUS_ASSIGN_OR_RETURN(rope[kFull]["partial_rotary_factor"],
                             TurningPart(shape["head_dim"].get<uint64_t>()));
  }
  for (const auto& [kind, key] :
       {std::pair(kFull, "rope.freq_base"), std::pair(kSliding, "rope.freq_base_swa")}) {
    ANNULUS_ASSIGN_OR_RETURN(const json theta, GgufNumber(file_, Key(key)));
    if (!theta.is_null()) rope[kind]["rope_theta"] = theta;
  }
  config_["rope_parameters"] = std::move(rope);
  return absl::OkStatus();
}

absl::Status Gemma4Writer::WriteInputs() {
  ANNULUS_ASSIGN_OR_RETURN(const json size, Whole("embedding_length_per_layer_input"));
  config_["hidden_size_per_layer_input"] = size.is_null() ? json(0) : size;
  const GgufTensor* const embedding = file_.FindTensor("per_layer_token_embd.weight");
  if (embedding != nullptr && embedding->shape.size() == 2) {
    config_["vocab_size_per_layer_input"] = embedding->shape[0];
  }
  return absl::OkStatus();
}

absl::Status Gemma4Writer::WriteExperts() {
  ANNULUS_ASSIGN_OR_RETURN(const json count, Whole("expert_count"));
  if (count.is_null() || count == 0) return absl::OkStatus();
  config_["enable_moe_block"] = true;
  config_["num_experts"] = count;
  ANNULUS_RETURN_IF_ERROR(Copy("top_k_experts", "expert_used_count"));
  return Copy("moe_intermediate_size", "expert_feed_forward_length");
}

absl::Status Gemma4Writer::Write() {
  ANNULUS_RETURN_IF_ERROR(WriteLayers());
  ANNULUS_RETURN_IF_ERROR(WriteShapes());
  ANNULUS_RETURN_IF_ERROR(WriteBlocks());
  ANNULUS_RETURN_IF_ERROR(WriteRope());
  ANNULUS_RETURN_IF_ERROR(WriteInputs());
  return WriteExperts();
}

}  // namespace

absl::Status WriteGemma4Config(const GgufFile& file, json& config) {
  return Gemma4Writer(file, config).Write();
}

}  // namespace annulus
