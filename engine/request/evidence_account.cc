#include "engine/request/evidence_account.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "engine/runner/choice/evidence_masses.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

constexpr int32_t kSinkTokens = 4;
constexpr double kShareOfBest = 0.25;
constexpr double kTimesMedian = 4;

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
    : parts_(EvidenceParts(EvidenceRanges(documents), block).size()) {
  for (const PromptDocument& document : documents) {
    documents_.push_back({document.begin, "", document.tokens});
  }
}

void EvidenceAccount::AddShares(std::span<const EvidenceShare> shares) {
  for (const EvidenceShare& share : shares) {
    Block& block = fresh_[share.begin];
    block.end = share.end;
    block.score = std::max<double>(block.score, share.share);
  }
}

void EvidenceAccount::AddText(absl::string_view text, std::vector<SentenceEvidence>& ended) {
  for (const char c : text) {
    ++end_;
    if (ends_.Push(c)) EndSentence(ended);
  }
  if (text.empty()) return;
  for (const auto& [begin, block] : fresh_) {
    Block& into = blocks_[begin];
    into.end = block.end;
    into.score = std::max(into.score, block.score);
  }
  fresh_.clear();
}

void EvidenceAccount::Finish(std::vector<SentenceEvidence>& ended) {
  if (end_ > begin_) EndSentence(ended);
}

void EvidenceAccount::EndSentence(std::vector<SentenceEvidence>& ended) {
  SentenceEvidence sentence{begin_, end_, PassagesOf(blocks_)};
  blocks_.clear();
  ends_.Restart();
  begin_ = end_;
  const size_t left = kMostPassages - given_;
  if (sentence.passages.size() > left) sentence.passages.resize(left);
  if (sentence.passages.empty()) return;
  given_ += sentence.passages.size();
  ended.push_back(std::move(sentence));
}

// The lower median of the scores of all blocks but one, whose score is `own`.
double EvidenceAccount::MedianOfOthers(const Blocks& blocks, double own) const {
  if (parts_ < 2) return 0;
  std::vector<double> scores;
  for (const auto& [begin, block] : blocks) scores.push_back(block.score);
  std::sort(scores.begin(), scores.end());
  scores.erase(std::find(scores.begin(), scores.end(), own));
  const size_t others = std::max(parts_, blocks.size()) - 1;
  const size_t zeros = others - scores.size();  // blocks that no token attended
  const size_t middle = (others - 1) / 2;
  return middle < zeros ? 0 : scores[middle - zeros];
}

std::vector<Passage> EvidenceAccount::PassagesOf(const Blocks& blocks) const {
  double best = 0;
  for (const auto& [begin, block] : blocks) best = std::max(best, block.score);
  std::vector<Passage> passages;
  for (const auto& [begin, block] : blocks) {
    if (block.score < std::max(kLeastScore, kShareOfBest * best)) continue;
    if (block.score < kTimesMedian * MedianOfOthers(blocks, block.score)) continue;
    const auto after =
        std::upper_bound(documents_.begin(), documents_.end(), begin,
                         [](int32_t at, const PromptDocument& one) { return at < one.begin; });
    ANNULUS_CHECK(after != documents_.begin()) << "evidence before the first document";
    const PromptDocument& document = *std::prev(after);
    const auto index = static_cast<int32_t>(std::prev(after) - documents_.begin());
    const Passage next{index, begin - document.begin, block.end - document.begin, block.score, {}};
    if (!passages.empty() && passages.back().document == index &&
        passages.back().end == next.begin) {
      passages.back().end = next.end;
      passages.back().score = std::max(passages.back().score, next.score);
    } else {
      passages.push_back(next);
    }
  }
  std::stable_sort(passages.begin(), passages.end(),
                   [](const Passage& a, const Passage& b) { return a.score > b.score; });
  if (passages.size() > kMostOfSentence) passages.resize(kMostOfSentence);
  return passages;
}

}  // namespace annulus
