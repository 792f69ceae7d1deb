#include "engine/sparse/gates.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/sparse/draw.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

float Dot(const float* a, const float* b, int count) {
  float sum = 0;
  for (int i = 0; i < count; ++i) sum += a[i] * b[i];
  return sum;
}

absl::StatusOr<std::vector<float>> ReadGate(const TensorSource& source, const std::string& name,
                                            std::span<const int64_t> shape) {
  ANNULUS_ASSIGN_OR_RETURN(std::vector<float> values, ReadAsFloat(source, name));
  if (std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); })) {
    return values;
  }
  return absl::InvalidArgumentError(absl::StrCat("attention gates: tensor ", name, " ",
                                                 ShapeToString(shape),
                                                 " holds NaN or infinity; fit the gates again"));
}

// The second dimension, if all others are as they should be.
absl::StatusOr<int64_t> WidthOf(const TensorSource& source, const std::string& name, int64_t heads,
                                int64_t columns) {
  const std::string allowed =
      absl::StrCat("[", heads, ", width, ", columns, "] with a width of 1 to ", kMostGateWidth);
  if (!source.Has(name)) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention gates: tensor ", name, " is missing; the model needs ", allowed));
  }
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, source.Describe(name));
  if (info.shape.size() == 3 && info.shape[0] == heads && info.shape[2] == columns &&
      info.shape[1] >= 1 && info.shape[1] <= kMostGateWidth) {
    return info.shape[1];
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attention gates: tensor ", name, " is ", ShapeToString(info.shape), "; allowed: ", allowed));
}

absl::StatusOr<GateLayer> ReadLayer(const TensorSource& source, size_t layer,
                                    const GateShape& shape) {
  const std::string query = GateQueryName(layer);
  const std::string key = GateKeyName(layer);
  ANNULUS_ASSIGN_OR_RETURN(const int64_t width, WidthOf(source, query, shape.heads, shape.k_dim));
  ANNULUS_ASSIGN_OR_RETURN(const int64_t key_width,
                           WidthOf(source, key, shape.kv_heads, 3 * int64_t{shape.k_dim}));
  if (width != key_width) {
    return absl::InvalidArgumentError(absl::StrCat("attention gates: ", query, " has a width of ",
                                                   width, " and ", key, " has one of ", key_width,
                                                   "; they must be equal"));
  }
  GateLayer gates;
  gates.width = static_cast<int>(width);
  const std::vector<int64_t> query_shape = {shape.heads, width, shape.k_dim};
  const std::vector<int64_t> key_shape = {shape.kv_heads, width, 3 * int64_t{shape.k_dim}};
  ANNULUS_ASSIGN_OR_RETURN(gates.query, ReadGate(source, query, query_shape));
  ANNULUS_ASSIGN_OR_RETURN(gates.key, ReadGate(source, key, key_shape));
  return gates;
}

uint64_t Fingerprint(uint64_t before, std::span<const float> values) {
  for (const float value : values) {
    uint32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    before = Mix(before ^ bits);
  }
  return before;
}

}  // namespace

std::string GateQueryName(size_t layer) { return absl::StrCat("layers.", layer, ".query"); }
std::string GateKeyName(size_t layer) { return absl::StrCat("layers.", layer, ".key"); }

absl::StatusOr<AttentionGates> ReadGates(const TensorSource& source, const GateShape& shape) {
  AttentionGates gates;
  size_t tensors = 0;
  for (size_t layer = 0; layer < shape.layers.size(); ++layer) {
    GateLayer& of_layer = gates.layers.emplace_back();
    if (!shape.layers[layer]) continue;
    ANNULUS_ASSIGN_OR_RETURN(of_layer, ReadLayer(source, layer, shape));
    gates.fingerprint = Fingerprint(gates.fingerprint, of_layer.query);
    gates.fingerprint = Fingerprint(gates.fingerprint, of_layer.key);
    tensors += 2;
  }
  for (const std::string& name : source.Names()) {
    bool known = false;
    for (size_t layer = 0; layer < shape.layers.size() && !known; ++layer) {
      known = shape.layers[layer] && (name == GateQueryName(layer) || name == GateKeyName(layer));
    }
    if (known) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("attention gates: tensor ", name, " is not allowed: the model takes ", tensors,
                     " tensors, two like ", GateQueryName(0), " and ", GateKeyName(0),
                     " for each layer without a window"));
  }
  return gates;
}

absl::Status GateKeys::Extend(Backend& backend, const OpTable& ops, Stream& stream,
                              const KvPageShape& shape, const GateLayer& gates,
                              std::span<const KvPageView> pages) {
  const auto first = static_cast<size_t>(pages_);
  size_t complete = first;
  while (complete < pages.size() && pages[complete].tokens == shape.page_tokens) ++complete;
  if (complete == first) return absl::OkStatus();
  const size_t fresh = complete - first;
  const size_t columns = static_cast<size_t>(shape.kv_heads) * shape.k_dim;
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer summaries,
                           backend.AllocateHost(3 * fresh * columns * sizeof(float)));
  float* const mean = summaries.as<float>();
  float* const least = mean + fresh * columns;
  float* const greatest = least + fresh * columns;
  KeySummaryParams params;
  params.shape = shape;
  params.pages = pages.subspan(first, fresh);
  params.to = {{&mean, 1}, static_cast<int64_t>(fresh)};
  params.mean = 0;
  params.least = least - mean;
  params.greatest = greatest - mean;
  ANNULUS_RETURN_IF_ERROR(ops.key_summary(stream, params));
  ANNULUS_RETURN_IF_ERROR(stream.Synchronize());
  for (size_t page = 0; page < fresh; ++page) {
    for (int head = 0; head < shape.kv_heads; ++head) {
      const size_t at = page * columns + static_cast<size_t>(head) * shape.k_dim;
      for (int w = 0; w < gates.width; ++w) {
        const float* const row =
            gates.key.data() + (int64_t{head} * gates.width + w) * 3 * shape.k_dim;
        keys_.push_back(Dot(row, mean + at, shape.k_dim) +
                        Dot(row + shape.k_dim, least + at, shape.k_dim) +
                        Dot(row + 2 * shape.k_dim, greatest + at, shape.k_dim));
      }
    }
  }
  pages_ = static_cast<int64_t>(complete);
  return absl::OkStatus();
}

void GateKeys::Score(const GateLayer& gates, const ConstMatrixView& query, int heads, int kv_heads,
                     int64_t pages, float* scores) const {
  const auto k_dim = static_cast<int>(query.cols / heads);
  const float scale = 1 / std::sqrt(static_cast<float>(gates.width));
  std::vector<float> projected(static_cast<size_t>(gates.width));
  for (int64_t row = 0; row < query.rows; ++row) {
    for (int head = 0; head < heads; ++head) {
      for (int w = 0; w < gates.width; ++w) {
        projected[w] = scale * Dot(gates.query.data() + (int64_t{head} * gates.width + w) * k_dim,
                                   query.row(row) + int64_t{head} * k_dim, k_dim);
      }
      const int kv_head = head / (heads / kv_heads);
      for (int64_t page = 0; page < pages; ++page) {
        *scores++ = Dot(projected.data(), keys_.data() + (page * kv_heads + kv_head) * gates.width,
                        gates.width);
      }
    }
  }
}

}  // namespace annulus
