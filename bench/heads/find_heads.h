#ifndef ANNULUS_BENCH_HEADS_FIND_HEADS_H_
#define ANNULUS_BENCH_HEADS_FIND_HEADS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "engine/runner/rank_model.h"
#include "engine/state/step_plan.h"
#include "engine/text/tokenizer.h"

namespace annulus::bench {

// How much a head points at planted facts.
struct HeadScore {
  LayerHead head;
  double score = 0;  // mean share of its attention on the fact's blocks, 0 to 1
};

struct FindHeadsOptions {
  int threads = 1;
  int64_t bytes = 16'384;  // of the text
  int facts = 20;          // 1 to 100, spread over it
  uint64_t seed = 7;
};

// Scores every head of the layers without a window, the best first. Reads a text with planted facts
// (bench/demo), and behind it each fact once more: its beginning and its answer. While a row of the
// second answer predicts its next token, a retrieval head attends that token in the text (Wu et al.
// 2024, arXiv 2404.15574; an induction head, Olsson et al. 2022). The score of a head is the share
// of such a row's attention on the blocks of 64 tokens that hold the fact's answer, averaged over
// the rows and facts. INVALID_ARGUMENT: layers that differ in the shape of their attention, or
// kernels that cannot score blocks.
absl::StatusOr<std::vector<HeadScore>> FindHeads(const RankModel& model, const Tokenizer& tokenizer,
                                                 Backend& backend, const FindHeadsOptions& options);

// Which of them to take evidence from: those with a score of at least kLeastHeadScore, at most
// kMostHeads, in at most MostEvidenceLayers (engine/request/evidence_heads.h), since each layer
// costs time. Empty: no head points at facts.
inline constexpr double kLeastHeadScore = 0.1;
inline constexpr size_t kMostHeads = 16;
std::vector<HeadScore> ChooseHeads(const std::vector<HeadScore>& scores, int layers);

// The section "evidence" of a profile, as engine/request/evidence_heads.h reads it.
std::string ProfileJson(const std::vector<HeadScore>& chosen, const FindHeadsOptions& options);

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_HEADS_FIND_HEADS_H_
