#include "bench/gates/fit_gates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <span>

#include "absl/strings/str_cat.h"
#include "bench/gates/gate_collector.h"
#include "bench/model/lone_reader.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

absl::Status ReadAll(LoneReader& reader, std::span<const int32_t> tokens) {
  ANNULUS_RETURN_IF_ERROR(reader.Begin(std::ssize(tokens)));
  while (!tokens.empty()) {
    const size_t rows = std::min<size_t>(tokens.size(), LoneReader::kMostRows);
    ANNULUS_RETURN_IF_ERROR(reader.Read(tokens.first(rows), /*logits=*/false).status());
    tokens = tokens.subspan(rows);
  }
  return absl::OkStatus();
}

GateLayer FitLayer(const std::vector<std::vector<GateExamples>>& heads, const GateFitting& options,
                   GateLoss& loss) {
  GateLayer gates;
  gates.width = options.width;
  for (const std::vector<GateExamples>& documents : heads) {
    const FittedGate fitted = FitGate(documents, options);
    gates.query.insert(gates.query.end(), fitted.query.begin(), fitted.query.end());
    gates.key.insert(gates.key.end(), fitted.key.begin(), fitted.key.end());
    loss.before += fitted.loss_before / static_cast<double>(heads.size());
    loss.after += fitted.loss_after / static_cast<double>(heads.size());
  }
  return gates;
}

}  // namespace

absl::StatusOr<AttentionGates> FitGates(const RankModel& model, Backend& backend, int threads,
                                        const std::vector<std::vector<int32_t>>& documents,
                                        const GateFitting& options,
                                        const std::function<void(const GateLoss&)>& done) {
  size_t longest = 0;
  for (const std::vector<int32_t>& document : documents) {
    longest = std::max(longest, document.size());
    if (document.size() >= 2 * static_cast<size_t>(model.page_shape.page_tokens)) continue;
    return absl::InvalidArgumentError(absl::StrCat("a document of ", document.size(),
                                                   " tokens is not allowed: at least two pages, ",
                                                   2 * model.page_shape.page_tokens));
  }
  if (documents.empty()) return absl::InvalidArgumentError("gates need at least one document");
  if (options.width < 1 || options.width > kMostGateWidth) {
    return absl::InvalidArgumentError(
        absl::StrCat("a width of ", options.width, " is not allowed: 1 to ", kMostGateWidth));
  }
  GateCollector collector({.layers = model.layers()});
  LoneReader::Options reading;
  reading.threads = threads;
  reading.longest = static_cast<int64_t>(longest);
  reading.observer = &collector;
  ANNULUS_ASSIGN_OR_RETURN(const auto reader, LoneReader::Create(model, backend, reading));
  for (const std::vector<int32_t>& document : documents) {
    collector.Begin(static_cast<int64_t>(document.size()));
    ANNULUS_RETURN_IF_ERROR(ReadAll(*reader, document));
  }
  AttentionGates gates;
  for (int layer = 0; layer < model.layers(); ++layer) {
    GateLayer& fitted = gates.layers.emplace_back();
    if (collector.layer(layer).empty()) continue;
    GateLoss loss{.layer = layer};
    fitted = FitLayer(collector.layer(layer), options, loss);
    done(loss);
  }
  return gates;
}

GateShape GateShapeOf(const RankModel& model) {
  GateShape shape;
  for (const LayerConfig& layer : model.config.layers) shape.layers.push_back(layer.window == 0);
  const AttentionShape& attention = WidestAttention(model.config);
  shape.heads = attention.heads;
  shape.kv_heads = attention.kv_heads;
  shape.k_dim = attention.k_dim;
  return shape;
}

absl::Status WriteGates(const AttentionGates& gates, const GateShape& shape,
                        const std::string& path) {
  static_assert(std::endian::native == std::endian::little, "safetensors are little-endian");
  std::string header = "{";
  std::string data;
  const auto add = [&](const std::string& name, const std::vector<float>& values, int heads,
                       int width, int columns) {
    const size_t begin = data.size();
    data.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float));
    absl::StrAppend(&header, header.size() > 1 ? "," : "", "\"", name,
                    "\":{\"dtype\":\"F32\",\"shape\":[", heads, ",", width, ",", columns,
                    "],\"data_offsets\":[", begin, ",", data.size(), "]}");
  };
  for (size_t layer = 0; layer < gates.layers.size(); ++layer) {
    const GateLayer& each = gates.layers[layer];
    if (each.width == 0) continue;
    add(GateQueryName(layer), each.query, shape.heads, each.width, shape.k_dim);
    add(GateKeyName(layer), each.key, shape.kv_heads, each.width, 3 * shape.k_dim);
  }
  header += "}";
  header.resize((header.size() + 7) / 8 * 8, ' ');
  if (std::ifstream(path).good()) {
    return absl::AlreadyExistsError(absl::StrCat(path, " is there already; nothing is replaced"));
  }
  std::ofstream file(path, std::ios::binary);
  const uint64_t header_bytes = header.size();
  file.write(reinterpret_cast<const char*>(&header_bytes), sizeof(header_bytes));
  file << header << data;
  file.close();
  if (file.good()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(path, " could not be written in full"));
}

}  // namespace annulus::bench
