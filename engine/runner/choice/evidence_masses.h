#ifndef ANNULUS_ENGINE_RUNNER_CHOICE_EVIDENCE_MASSES_H_
#define ANNULUS_ENGINE_RUNNER_CHOICE_EVIDENCE_MASSES_H_

#include <cstdint>
#include <span>
#include <vector>

#include "engine/ring/ring_plan.h"
#include "engine/runner/choice/choice.h"
#include "engine/state/step_plan.h"

namespace annulus {

// Tokens of a block for evidence: the least multiple of a page's tokens that is 64 or more.
constexpr int32_t EvidenceBlock(int32_t page_tokens) {
  constexpr int32_t kTokens = 64;
  return (kTokens + page_tokens - 1) / page_tokens * page_tokens;
}

// The ranges cut where blocks begin, ascending: what a row's attention is given for.
std::vector<RowRange> EvidenceParts(std::span<const RowRange> ranges, int32_t block);

// A sampled item whose sequence asks for evidence.
struct EvidenceItem {
  size_t item = 0;  // index among the step's ring items
  SequenceId sequence = 0;
  const EvidenceTerms* terms = nullptr;
  std::vector<RowRange> parts;  // EvidenceParts of its ranges
  // [row][part] on its home: the softmax weight of the part's keys, summed over the heads of the
  // layers so far. Empty on other ranks.
  std::vector<std::vector<double>> sums;

  // Of a row: the mean over all heads of its terms, without parts below kLeastEvidenceShare.
  std::vector<EvidenceShare> SharesOf(size_t row) const;
};

// Sums up how much sampled rows attend the parts of a prompt, exactly, beside their attention: the
// op block_scores gives the log of the sum of exp(score) over a block's keys, and a row's final lse
// makes it a share. The row's home sends its query and lse to the ranks that hold keys of the
// parts, and gets back one number for each part. Attention itself is not changed, in any bit.
//
// A part that does not fill its block is the difference of two such sums, so what stands beside a
// document in a block does not count.
//
// The work in a layer is that of attending the parts' keys, without values, for all heads.
// Messages and scores are in host memory (Backend::AllocateHost): heads * parts floats for a row.
class EvidenceMasses {
 public:
  explicit EvidenceMasses(const ChoiceContext& context) : context_(context) {}

  // What the rank knows of a layer whose rows have been attended.
  struct Layer {
    int layer = 0;
    const RingLayer& ring;    // its state has the final lse; its items have their keys in pages
    const RingShape& shape;   // of the layer
    int32_t page_tokens = 0;  // of each page
    // [item] the page table of the layer's cache group: of all ranks, ascending.
    std::function<std::span<const PageEntry>(size_t item)> entries;
  };

  // Adds the layer to the sums of those `items` whose terms name its heads. Runs on all ranks of
  // the items' rings.
  absl::Status Run(const Layer& layer, std::span<EvidenceItem> items);

 private:
  class LayerRun;

  const ChoiceContext context_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_RUNNER_CHOICE_EVIDENCE_MASSES_H_
