#include "engine/request/evidence_account.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/runner/choice/evidence_masses.h"

namespace annulus {
namespace {

constexpr int32_t kSinkTokens = 4;
constexpr double kShareOfBest = 0.25;
constexpr double kTimesMedian = 4;

// The lower median of all scores but one, found by a binary search: many blocks may ask for theirs.
class OthersMedian {
 public:
  // `attended`: those of the `all` scores that are not 0, ascending. Must outlive the object.
  OthersMedian(std::span<const float> attended, size_t all) : attended_(attended), all_(all) {}

  // `own`: one of `attended`. 0 if there are no others.
  double Without(float own) const {
    const size_t zeros = all_ - attended_.size();
    const size_t others = all_ - 1;
    if (others == 0 || (others - 1) / 2 < zeros) return 0;
    const size_t at = (others - 1) / 2 - zeros;
    const auto left_out = static_cast<size_t>(
        std::lower_bound(attended_.begin(), attended_.end(), own) - attended_.begin());
    return attended_[at < left_out ? at : at + 1];
  }

 private:
  const std::span<const float> attended_;
  const size_t all_;
};

}  // namespace

std::vector<RowRange> EvidenceRanges(std::span<const PromptDocument> documents) {
  std::vector<RowRange> ranges;
  for (const PromptDocument& document : documents) {
    const RowRange range{std::max(document.begin, kSinkTokens), document.begin + document.tokens};
    if (range.begin < range.end) ranges.push_back(range);
  }
  return ranges;
}

EvidenceAccount::EvidenceAccount(std::span<const PromptDocument> documents, int32_t block)
    : parts_(EvidenceParts(EvidenceRanges(documents), block)),
      fresh_(parts_.size()),
      scores_(parts_.size()) {
  for (const PromptDocument& document : documents) {
    documents_.push_back({document.begin, "", document.tokens});
  }
}

bool EvidenceAccount::AddShares(std::span<const EvidenceShare> shares) {
  const auto part_of = [&](const EvidenceShare& share) {
    const auto part =
        std::lower_bound(parts_.begin(), parts_.end(), share.begin,
                         [](const RowRange& one, int32_t begin) { return one.begin < begin; });
    return part != parts_.end() && *part == RowRange{share.begin, share.end} ? part : parts_.end();
  };
  for (const EvidenceShare& share : shares) {
    if (part_of(share) == parts_.end()) return false;
  }
  for (const EvidenceShare& share : shares) {
    float& score = fresh_[static_cast<size_t>(part_of(share) - parts_.begin())];
    score = std::max(score, share.share);
  }
  has_fresh_ = has_fresh_ || !shares.empty();
  return true;
}

void EvidenceAccount::AddText(absl::string_view text, std::vector<SentenceEvidence>& ended) {
  for (const char c : text) {
    ++end_;
    if (ends_.Push(c)) EndSentence(ended);
  }
  if (text.empty() || !has_fresh_) return;
  for (size_t part = 0; part < parts_.size(); ++part) {
    scores_[part] = std::max(scores_[part], fresh_[part]);
  }
  Drop();
}

void EvidenceAccount::Drop() {
  if (has_fresh_) std::fill(fresh_.begin(), fresh_.end(), 0.0F);
  has_fresh_ = false;
}

void EvidenceAccount::Finish(std::vector<SentenceEvidence>& ended) {
  if (end_ > begin_) EndSentence(ended);
}

void EvidenceAccount::EndSentence(std::vector<SentenceEvidence>& ended) {
  const size_t left = kMostPassages - given_;
  SentenceEvidence sentence{begin_, end_, {}};
  if (left > 0) sentence.passages = PassagesOfSentence();
  std::fill(scores_.begin(), scores_.end(), 0.0F);
  ends_.Restart();
  begin_ = end_;
  if (sentence.passages.size() > left) sentence.passages.resize(left);
  if (sentence.passages.empty()) return;
  given_ += sentence.passages.size();
  ended.push_back(std::move(sentence));
}

std::vector<Passage> EvidenceAccount::PassagesOfSentence() const {
  std::vector<float> attended;  // scores of parts that any token attended, ascending
  std::copy_if(scores_.begin(), scores_.end(), std::back_inserter(attended),
               [](float score) { return score > 0; });
  std::sort(attended.begin(), attended.end());
  if (attended.empty() || attended.back() < kLeastScore) return {};
  const double least = std::max(kLeastScore, kShareOfBest * attended.back());
  const OthersMedian median(attended, parts_.size());
  std::vector<Passage> passages;
  for (size_t part = 0; part < parts_.size(); ++part) {
    const double score = scores_[part];
    if (score < least || score < kTimesMedian * median.Without(scores_[part])) continue;
    AddPassage(parts_[part], score, passages);
  }
  std::stable_sort(passages.begin(), passages.end(),
                   [](const Passage& a, const Passage& b) { return a.score > b.score; });
  if (passages.size() > kMostOfSentence) passages.resize(kMostOfSentence);
  return passages;
}

// Joins it with the last passage, if that ends where the part begins, in the same document.
void EvidenceAccount::AddPassage(const RowRange& part, double score,
                                 std::vector<Passage>& passages) const {
  const auto after =
      std::upper_bound(documents_.begin(), documents_.end(), part.begin,
                       [](int32_t at, const PromptDocument& one) { return at < one.begin; });
  const PromptDocument& document = *std::prev(after);
  const auto index = static_cast<int32_t>(std::prev(after) - documents_.begin());
  const Passage next{index, part.begin - document.begin, part.end - document.begin, score, {}};
  if (passages.empty() || passages.back().document != index || passages.back().end != next.begin) {
    passages.push_back(next);
    return;
  }
  passages.back().end = next.end;
  passages.back().score = std::max(passages.back().score, next.score);
}

}  // namespace annulus
