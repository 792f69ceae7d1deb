#include "engine/request/evidence_heads.h"

#include <algorithm>
#include <cmath>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/base/json_node.h"
#include "engine/text/text_file.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr double kDepth = 0.6;

}  // namespace

std::vector<LayerHead> DefaultEvidenceHeads(const RankModel& model) {
  std::vector<LayerHead> heads;
  if (model.ops->block_scores == nullptr) return heads;
  std::vector<int> layers;
  for (int layer = 0; layer < model.layers(); ++layer) {
    if (model.groups[model.group_of_layer[layer]].window == 0) layers.push_back(layer);
  }
  const auto distance = [&](int layer) {
    return std::abs((layer + 0.5) / model.layers() - kDepth);
  };
  std::stable_sort(layers.begin(), layers.end(),
                   [&](int a, int b) { return distance(a) < distance(b); });
  const auto most = static_cast<size_t>(MostEvidenceLayers(model.layers()));
  if (layers.size() > most) layers.resize(most);
  std::sort(layers.begin(), layers.end());
  for (const int layer : layers) {
    for (int head = 0; head < model.attention(layer).heads; ++head) heads.push_back({layer, head});
  }
  return heads;
}

absl::StatusOr<std::vector<LayerHead>> FindEvidenceHeads(const std::string& path,
                                                         const RankModel& model) {
  if (path.empty()) return DefaultEvidenceHeads(model);
  ANNULUS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  ANNULUS_ASSIGN_OR_RETURN(const JsonDocument document, JsonDocument::Parse(text, path));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode section, document.root().Require("evidence"));
  ANNULUS_ASSIGN_OR_RETURN(const JsonNode list, section.Require("heads"));
  std::vector<LayerHead> heads;
  ANNULUS_RETURN_IF_ERROR(list.ForEachElement([&](const JsonNode& node) -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode layer_node, node.Require("layer"));
    ANNULUS_ASSIGN_OR_RETURN(const JsonNode head_node, node.Require("head"));
    ANNULUS_ASSIGN_OR_RETURN(const int64_t layer, layer_node.Integer(0, model.layers() - 1));
    const int most = model.attention(static_cast<int>(layer)).heads - 1;
    ANNULUS_ASSIGN_OR_RETURN(const int64_t head, head_node.Integer(0, most));
    if (model.groups[model.group_of_layer[layer]].window > 0) {
      return layer_node.Error(
          "this layer has a window, so it cannot point at far passages; name heads of layers with "
          "full attention");
    }
    if (heads.size() == kMostEvidenceHeads) {
      return list.Error(absl::StrCat("more than ", kMostEvidenceHeads, " heads"));
    }
    heads.push_back({static_cast<int32_t>(layer), static_cast<int32_t>(head)});
    return absl::OkStatus();
  }));
  std::sort(heads.begin(), heads.end());
  if (heads.empty() || std::adjacent_find(heads.begin(), heads.end()) != heads.end()) {
    return list.Error("there must be at least one head, and none twice");
  }
  if (model.ops->block_scores == nullptr) heads.clear();
  return heads;
}

std::string DescribeEvidenceHeads(std::span<const LayerHead> heads, const std::string& path) {
  if (heads.empty()) return "";
  const int first = heads.front().layer;
  const int last = heads.back().layer;
  const std::string layers =
      first == last ? absl::StrCat("layer ", first) : absl::StrCat("layers ", first, " to ", last);
  return absl::StrCat(
      heads.size(), heads.size() == 1 ? " head in " : " heads in ", layers,
      path.empty() ? ", chosen by depth and not by measurement" : ", as the profile names them");
}

absl::Status CheckEvidence(const RequestSpec& spec, std::span<const LayerHead> heads,
                           const AttentionAssignment& attention) {
  if (!spec.evidence) return absl::OkStatus();
  const auto refuse = [](const auto&... parts) {
    return FieldError(absl::StatusCode::kInvalidArgument, "evidence", absl::StrCat(parts...));
  };
  if (spec.documents.empty()) {
    return refuse(
        "evidence names passages of documents, and the request has none; name some in "
        "`documents`, or leave it out");
  }
  if (spec.prefill_only) return refuse("a prefill has no answer that could have evidence");
  if (heads.empty()) {
    return refuse(
        "this model cannot give evidence: it has no layer that attends the whole prompt, "
        "or its kernels cannot score blocks of keys; leave it out");
  }
  if (!attention.dense()) {
    return refuse("evidence is measured under dense attention alone, and this request attends by ",
                  AssignmentText(attention).substr(0, 200),
                  "; set attention.policy to \"dense\", or leave it out");
  }
  int64_t end = 0;
  for (const PromptDocument& document : spec.documents) {
    const int64_t next = int64_t{document.begin} + document.tokens;
    if (document.begin < end || document.tokens < 0 || next > std::ssize(spec.prompt)) {
      return refuse("the documents must lie in the prompt one after the other");
    }
    end = next;
  }
  return absl::OkStatus();
}

}  // namespace annulus
