#ifndef ANNULUS_ENGINE_REQUEST_EVIDENCE_ACCOUNT_H_
#define ANNULUS_ENGINE_REQUEST_EVIDENCE_ACCOUNT_H_

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/api/request.h"
#include "engine/api/result.h"
#include "engine/api/sentence_ends.h"
#include "engine/state/step_plan.h"

namespace annulus {

// The positions of a prompt whose attention counts as evidence: those of its documents, without the
// prompt's first four tokens. These are sinks, attended whatever they are (Xiao et al. 2024,
// arXiv 2309.17453).
std::vector<RowRange> EvidenceRanges(std::span<const PromptDocument> documents);

// Finds the passages that each sentence of an answer attends most, by the shares of its tokens
// (SampledToken::shares).
//
// The rule. The score of a block of 64 tokens for a sentence is the largest share that any of the
// sentence's tokens gave it: a mean over the chosen heads, so between 0 and 1. A block stands out
// if its score is at least
// - kLeastScore,
// - a quarter of the sentence's best score, and
// - four times the median score of all other blocks of the documents.
// Neighbours that stand out become one passage with the largest of their scores. A sentence has at
// most kMostOfSentence passages, the best ones, and an answer at most kMostPassages: those of its
// first sentences. A sentence without a block that stands out has none.
//
// Sentences end where SentenceEnds says. What a token attended counts for the sentence that its
// text ends in. Reasoning and calls of tools are no sentences, and what they attended is dropped.
//
// Takes memory for two numbers of each part and no more, however long a sentence becomes, and at
// its end time for sorting them once.
//
// Used by the coordinator's thread alone.
class EvidenceAccount {
 public:
  static constexpr double kLeastScore = 1.0 / 32;
  static constexpr size_t kMostOfSentence = 4;
  static constexpr size_t kMostPassages = 32;

  // `block`: see EvidenceBlock.
  EvidenceAccount(std::span<const PromptDocument> documents, int32_t block);

  // The attention of the next token, before AddText or Drop for it. False if a share is not of
  // one of the documents' parts, as a broken rank may send it; then nothing is added.
  bool AddShares(std::span<const EvidenceShare> shares);
  // What the token adds to the answer's text; may be empty. Appends the sentences that end in it
  // and have evidence.
  void AddText(absl::string_view text, std::vector<SentenceEvidence>& ended);
  // The token belongs to reasoning or a call.
  void Drop();
  // The text ends, or reasoning or a call interrupts it. The same for its last sentence.
  void Finish(std::vector<SentenceEvidence>& ended);

 private:
  void EndSentence(std::vector<SentenceEvidence>& ended);
  std::vector<Passage> PassagesOfSentence() const;
  void AddPassage(const RowRange& part, double score, std::vector<Passage>& passages) const;

  std::vector<PromptDocument> documents_;  // without their content
  std::vector<RowRange> parts_;            // EvidenceParts of the documents, ascending
  // [part] the largest share that a token gave it.
  std::vector<float> fresh_;   // of tokens whose text has not come
  std::vector<float> scores_;  // of the sentence
  bool has_fresh_ = false;     // any of fresh_ is above 0
  SentenceEnds ends_;
  int64_t begin_ = 0;  // of the sentence, in bytes of the text
  int64_t end_ = 0;    // of the text so far
  size_t given_ = 0;   // passages
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_REQUEST_EVIDENCE_ACCOUNT_H_
