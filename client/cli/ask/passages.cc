#include "client/cli/ask/passages.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "client/cli/ask/text_parts.h"

namespace annulus::client {
namespace {

// A passage is two neighbouring blocks, so that what stands at the end of one is not torn.
constexpr size_t kBlockBytes = 400;
// What an answer's own words count beside those of the question.
constexpr double kAnswerShare = 0.25;

// Bytes of the character at the beginning of UTF-8 text, and its code point.
size_t TakeCharacter(absl::string_view text, uint32_t* c) {
  const auto first = static_cast<uint8_t>(text[0]);
  const size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  *c = first < 0x80 ? first : first & (0x7F >> size);
  for (size_t i = 1; i < size && i < text.size(); ++i) {
    *c = *c << 6 | (static_cast<uint8_t>(text[i]) & 0x3F);
  }
  return std::min(size, text.size());
}

// Calls take(word, offset) for each word.
template <typename Take>
void ForEachWord(absl::string_view text, const Take& take) {
  size_t begin = 0;
  const auto end_word = [&](size_t end) {
    if (end > begin) take(absl::AsciiStrToLower(text.substr(begin, end - begin)), begin);
  };
  for (size_t at = 0; at < text.size();) {
    uint32_t c = 0;
    const size_t size = TakeCharacter(text.substr(at), &c);
    const bool alone = c >= 0x2E80 && c < 0xAC00;  // Chinese and Japanese
    const bool is_mark = c >= 0x80 ? c < 0xC0 || (c >= 0x2000 && c < 0x2E80)
                                   : !absl::ascii_isalnum(static_cast<unsigned char>(c));
    if (alone || is_mark) {
      end_word(at);
      if (alone) take(std::string(text.substr(at, size)), at);
      begin = at + size;
    }
    at += size;
  }
  end_word(text.size());
}

// Words that were looked for, with their weights.
using Weights = std::map<std::string, double>;

double Sum(const Weights& weights) {
  double sum = 0;
  for (const auto& [word, weight] : weights) sum += weight;
  return sum;
}

}  // namespace

std::vector<std::string> WordsOf(absl::string_view text) {
  std::vector<std::string> words;
  ForEachWord(text, [&](std::string word, size_t) { words.push_back(std::move(word)); });
  return words;
}

PassageFinder::PassageFinder(const std::vector<absl::string_view>& texts,
                             const std::vector<std::string>& looked_for) {
  std::map<std::string, int64_t> blocks_with;
  for (const std::string& saying : looked_for) {
    for (const std::string& word : WordsOf(saying)) blocks_with[word] = 0;
  }
  int64_t blocks = 0;
  for (const absl::string_view text : texts) {
    for (const absl::string_view block : CutText(text, kBlockBytes)) {
      ++blocks;
      std::set<std::string> seen;
      ForEachWord(block, [&](const std::string& word, size_t) {
        const auto found = blocks_with.find(word);
        if (found != blocks_with.end() && seen.insert(word).second) ++found->second;
      });
    }
  }
  for (const auto& [word, with] : blocks_with) {
    weights_[word] = with == 0 ? 0 : std::log(static_cast<double>(blocks + 1) / (with + 0.5));
  }
}

Passage PassageFinder::Find(absl::string_view text, absl::string_view question,
                            absl::string_view answer) const {
  Weights asked, answered;
  for (const std::string& word : WordsOf(question)) asked[word] = weights_.at(word);
  for (const std::string& word : WordsOf(answer)) {
    if (!asked.contains(word)) answered[word] = weights_.at(word);
  }
  const double all_asked = Sum(asked), all_answered = Sum(answered);
  const double all = (all_asked > 0 ? 1 : 0) + (all_answered > 0 ? kAnswerShare : 0);
  Passage best;
  Weights asked_before, answered_before;  // words of the block before
  size_t offset = 0, before = 0, at_before = 0;
  double rarest_before = 0;
  for (const absl::string_view block : CutText(text, kBlockBytes)) {
    Weights asked_here, answered_here;
    size_t at = offset;
    double rarest = 0;
    ForEachWord(block, [&](const std::string& word, size_t where) {
      const auto in = [&](const Weights& wanted, Weights& here) {
        const auto found = wanted.find(word);
        if (found == wanted.end()) return;
        here.insert(*found);
        if (found->second > rarest) at = offset + where;
        rarest = std::max(rarest, found->second);
      };
      in(asked, asked_here);
      in(answered, answered_here);
    });
    Weights both_asked = asked_here, both_answered = answered_here;
    both_asked.insert(asked_before.begin(), asked_before.end());
    both_answered.insert(answered_before.begin(), answered_before.end());
    const double share = all_asked > 0 ? Sum(both_asked) / all_asked : 0;
    double score = share;
    score += all_answered > 0 ? kAnswerShare * Sum(both_answered) / all_answered : 0;
    score /= std::max(all, 1.0);
    if (score > best.score || best.size == 0) {
      best = {before, offset + block.size() - before, rarest >= rarest_before ? at : at_before,
              score, share};
    }
    asked_before = std::move(asked_here);
    answered_before = std::move(answered_here);
    before = offset;
    at_before = at;
    rarest_before = rarest;
    offset += block.size();
  }
  return best;
}

std::string PlaceAt(absl::string_view document, size_t offset) {
  for (const absl::string_view kind : {"page", "slide", "mail"}) {
    const std::string mark = absl::StrCat("[", kind, " ");
    for (size_t end = offset; end != absl::string_view::npos;) {
      const size_t at = document.rfind(mark, end);
      if (at == absl::string_view::npos) break;
      absl::string_view number = document.substr(at + mark.size(), 12);
      number = number.substr(0, number.find(']'));
      int page = 0;
      if ((at == 0 || document[at - 1] == '\n') && absl::SimpleAtoi(number, &page)) {
        return absl::StrCat(kind, " ", page);
      }
      end = at == 0 ? absl::string_view::npos : at - 1;
    }
  }
  const absl::string_view above = document.substr(0, offset);
  return absl::StrCat("line ", std::count(above.begin(), above.end(), '\n') + 1);
}

}  // namespace annulus::client
