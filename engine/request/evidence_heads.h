#ifndef ANNULUS_ENGINE_REQUEST_EVIDENCE_HEADS_H_
#define ANNULUS_ENGINE_REQUEST_EVIDENCE_HEADS_H_

#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "engine/api/request.h"
#include "engine/runner/rank_model.h"
#include "engine/state/step_plan.h"

namespace annulus {

// How many layers of a model give evidence: one in twelve, at least one. Each of them scores every
// key once more, which costs a bit more than its attention: with one layer in eight an answer
// behind 32K tokens took 7% longer.
inline constexpr int kLayersForOneOfEvidence = 12;
constexpr int MostEvidenceLayers(int layers) {
  return layers < kLayersForOneOfEvidence ? 1 : layers / kLayersForOneOfEvidence;
}

// The heads whose attention counts as evidence. Heads that look up facts stand mostly in the middle
// and behind it (Wu et al. 2024, "Retrieval Head Mechanistically Explains Long-Context Factuality",
// arXiv 2404.15574), but which ones is a matter of the model, and these are not measured: all heads
// of those layers without a window that are nearest to 0.6 of the model's depth. There are as many
// as MostEvidenceLayers. Empty: the model has no layer without a window, or the
// kernels cannot score blocks.
std::vector<LayerHead> DefaultEvidenceHeads(const RankModel& model);

// The heads that the section "evidence" of a profile lists: {"evidence": {"heads": [{"layer": 17,
// "head": 3}]}}. `path` empty: DefaultEvidenceHeads. NOT_FOUND if the file is not there;
// INVALID_ARGUMENT, with its place in the file, for what is no such profile, or one of another
// model: heads that this one does not have, or in layers with a window.
absl::StatusOr<std::vector<LayerHead>> FindEvidenceHeads(const std::string& path,
                                                         const RankModel& model);
inline constexpr int kMostEvidenceHeads = 1024;

// For people: which layers, and how they were chosen. `path`: as for FindEvidenceHeads.
std::string DescribeEvidenceHeads(std::span<const LayerHead> heads, const std::string& path);

// Checks RequestSpec::evidence. `heads`: FindEvidenceHeads. `attention`: the policies that the
// request asks for or has by default. INVALID_ARGUMENT with the field: there are no documents, the
// model or its kernels cannot give evidence, or the policies are not dense.
absl::Status CheckEvidence(const RequestSpec& spec, std::span<const LayerHead> heads,
                           const AttentionAssignment& attention);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_EVIDENCE_HEADS_H_
