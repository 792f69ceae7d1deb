#include "engine/model/weights/unused_tensors.h"

#include <algorithm>
#include <array>
#include <span>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace annulus {
namespace {

constexpr size_t kMostNamed = 5;

// Suffixes of tensors that a decoder may store but that are not needed: tables and masks that are
// computed here, and static scales of a float8 checkpoint for inputs, keys and values, because here
// every token has its own scale.
constexpr std::array<absl::string_view, 13> kHarmless = {"rotary_emb.inv_freq",
                                                         "rotary_emb.cos_cached",
                                                         "rotary_emb.sin_cached",
                                                         ".masked_bias",
                                                         ".position_ids",
                                                         ".input_scale",
                                                         ".activation_scale",
                                                         ".input_scale_ub",
                                                         ".output_scale",
                                                         ".q_scale",
                                                         ".k_scale",
                                                         ".v_scale",
                                                         ".kv_scale"};

bool IsHarmless(absl::string_view name) {
  return std::any_of(kHarmless.begin(), kHarmless.end(),
                     [&](absl::string_view end) { return absl::EndsWith(name, end); });
}

// Of an image or audio model whose tensors have names as if they were the decoder's: encoders, and
// the adapters that projections have for their inputs.
bool IsOfOtherInputs(absl::string_view name, const TensorNames& names) {
  if (!names.adapters) return false;
  return absl::StartsWith(name, absl::StrCat(names.model, "embed_tokens_extend.")) ||
         (!names.infix.empty() &&
          (absl::StrContains(name, ".lora_A.") || absl::StrContains(name, ".lora_B.")));
}

bool BeginsWithAny(absl::string_view name, const std::vector<std::string>& beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](const std::string& each) { return absl::StartsWith(name, each); });
}

// With NamesIn's comparison: a tied head and its scales are the embedding's.
bool IsCopyOfEmbedding(absl::string_view name, const TensorNames& names) {
  return absl::ConsumePrefix(&name, names.head) &&
         (name == ".weight" || name == ".weight_scale" || name == ".weight_scale_inv");
}

std::string Named(std::span<const std::string> names) {
  return absl::StrCat(absl::StrJoin(names.first(std::min(names.size(), kMostNamed)), ", "),
                      names.size() > kMostNamed ? ", .." : "");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> CheckUnusedTensors(const WeightSlots& slots,
                                                            const TensorNames& names,
                                                            const TensorSource& source,
                                                            const MatrixReader& reader) {
  absl::flat_hash_set<std::string> used;
  for (const MatrixSlot& slot : slots.matrices) {
    for (std::string& name : reader.TensorsOf(slot.stored)) used.insert(std::move(name));
  }
  for (const VectorSlot& slot : slots.vectors) used.insert(slot.stored.name);
  std::vector<std::string> refused;
  std::vector<std::string> ignored;
  std::vector<std::string> guessing;
  for (const std::string& name : source.Names()) {
    if (used.contains(name)) continue;
    const bool head = absl::StartsWith(name, names.head + ".");
    if (names.tied && IsCopyOfEmbedding(name, names)) continue;
    if (BeginsWithAny(name, names.guessing)) {
      guessing.push_back(name);
    } else if ((head || absl::StartsWith(name, names.model)) && !IsHarmless(name) &&
               !IsOfOtherInputs(name, names) && !BeginsWithAny(name, names.unread)) {
      refused.push_back(name);
    } else {
      ignored.push_back(name);
    }
  }
  if (!refused.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "the checkpoint has ", refused.size(),
        " tensors of the decoder that config.json does not use: ", Named(refused),
        "; without them it would be another model. Use the config.json that belongs to these "
        "weights (num_hidden_layers, attention_bias, ..), or remove the tensors"));
  }
  std::vector<std::string> warnings;
  if (!ignored.empty()) {
    warnings.push_back(
        absl::StrCat(ignored.size(), " tensors of the checkpoint are not used: ", Named(ignored)));
  }
  if (!guessing.empty()) {
    warnings.push_back(absl::StrCat(
        "layers for guessing tokens ahead (multi-token prediction) are left out: ", guessing.size(),
        " tensors, ", Named(guessing)));
  }
  return warnings;
}

}  // namespace annulus
