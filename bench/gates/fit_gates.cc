#include "bench/gates/fit_gates.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <fstream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "bench/gates/gate_collector.h"
#include "engine/runner/rank_set.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr int32_t kChunk = 1024;  // rows of a step, a multiple of every page size

// Reads documents on one rank, one after another, without the engine's loop around it.
class LoneReader {
 public:
  static absl::StatusOr<std::unique_ptr<LoneReader>> Create(const RankModel& model,
                                                            Backend& backend, int threads,
                                                            size_t longest,
                                                            AttentionObserver& observer) {
    std::unique_ptr<LoneReader> reader(new LoneReader(model));
    const size_t pages =
        (longest / static_cast<size_t>(model.page_shape.page_tokens) + 1) * model.groups.size();
    RankSetOptions options;
    options.threads = threads;
    options.kv_memory_bytes = pages * model.groups.front().layers.size() *
                              (model.ops->kv_page_bytes(model.page_shape) + 64);
    options.rows_per_rank = kChunk;
    options.observer = &observer;
    ANNULUS_ASSIGN_OR_RETURN(reader->ranks_, RankSet::Create(model, backend, options));
    return reader;
  }

  absl::Status Read(const std::vector<int32_t>& tokens) {
    const auto page_tokens = static_cast<int32_t>(model_.page_shape.page_tokens);
    const auto length = static_cast<int32_t>(tokens.size());
    const int32_t pages = (length + page_tokens - 1) / page_tokens;
    // Nobody else reads: the pages of a text are the first of the pool.
    const int64_t needed = int64_t{pages} * std::ssize(model_.groups);
    if (needed > ranks_->pool(0).page_count()) {
      return absl::ResourceExhaustedError(absl::StrCat("a text of ", length, " tokens takes ",
                                                       needed, " pages; there are ",
                                                       ranks_->pool(0).page_count()));
    }
    SequenceUpdate update;
    update.sequence = ++sequence_;
    update.ring = {0};
    int32_t next = 0;
    for (size_t group = 0; group < model_.groups.size(); ++group) {
      TableDelta& table = update.tables.emplace_back();
      for (int32_t page = 0; page < pages; ++page) {
        table.append.push_back({0, next++, page * page_tokens});
      }
    }
    for (int32_t begin = 0; begin < length; begin += kChunk) {
      const int32_t end = std::min(length, begin + kChunk);
      auto plan = std::make_shared<StepPlan>();
      plan->step = ++step_;
      if (begin == 0) {
        plan->updates.push_back(update);
        if (sequence_ > 1) plan->ended.push_back(sequence_ - 1);
      }
      PlanItem item;
      item.sequence = sequence_;
      item.begin = begin;
      item.end = end;
      item.tokens.assign(tokens.begin() + begin, tokens.begin() + end);
      item.runs = {{0, begin, end - begin}};
      // The last layer makes queries only where a row's logits are wanted.
      item.logits_positions = {end - 1};
      plan->items.push_back(std::move(item));
      ANNULUS_RETURN_IF_ERROR(ranks_->Run(plan).status());
    }
    return absl::OkStatus();
  }

 private:
  explicit LoneReader(const RankModel& model) : model_(model) {}

  const RankModel& model_;
  std::unique_ptr<RankSet> ranks_;
  SequenceId sequence_ = 0;
  uint64_t step_ = 0;
};

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
  ANNULUS_ASSIGN_OR_RETURN(const auto reader,
                           LoneReader::Create(model, backend, threads, longest, collector));
  for (const std::vector<int32_t>& document : documents) {
    collector.Begin(static_cast<int64_t>(document.size()));
    ANNULUS_RETURN_IF_ERROR(reader->Read(document));
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
  shape.heads = model.config.heads;
  shape.kv_heads = model.config.kv_heads;
  shape.k_dim = model.config.head_dim;
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

}  // namespace annulus
