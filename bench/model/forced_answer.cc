#include "bench/model/forced_answer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/scheduler/prompt_lookup.h"
#include "engine/text/text_file.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int32_t kMatch = PromptLookup::kMatch;

std::vector<int32_t> RandomIds(int32_t count, int32_t vocabulary, std::mt19937& random) {
  std::uniform_int_distribution<int32_t> id(0, vocabulary - 1);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& each : ids) each = id(random);
  return ids;
}

absl::StatusOr<std::vector<int32_t>> ReadIds(const std::string& path, int32_t vocabulary) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(path));
  std::vector<int32_t> ids;
  for (const absl::string_view word :
       absl::StrSplit(text, absl::ByAnyChar(" \t\r\n,"), absl::SkipEmpty())) {
    int32_t id = 0;
    if (!absl::SimpleAtoi(word, &id) || id < 0 || id >= vocabulary) {
      return absl::InvalidArgumentError(absl::StrCat(path, ": '", word.substr(0, 40),
                                                     "' is no token id; the model has 0 to ",
                                                     vocabulary - 1));
    }
    ids.push_back(id);
  }
  if (!ids.empty()) return ids;
  return absl::InvalidArgumentError(absl::StrCat(path, ": it holds no token ids"));
}

absl::Status TooShort(int32_t depth, int64_t least) {
  return absl::InvalidArgumentError(
      absl::StrCat("--force-tokens: a prompt of ", depth, " tokens is too short for the answer; ",
                   "give --depth of at least ", least, ", or a smaller --generate"));
}

// Behind every three tokens of the answer the prompt goes on otherwise.
absl::StatusOr<ForcedAnswer> Mislead(int32_t depth, int32_t tokens, int32_t vocabulary,
                                     std::mt19937& random) {
  const int64_t least = int64_t{tokens} * (kMatch + 1) + kMatch;
  if (depth < least) return TooShort(depth, least);
  ForcedAnswer forced;
  forced.answer = RandomIds(tokens, vocabulary, random);
  forced.prompt = RandomIds(depth - static_cast<int32_t>(least), vocabulary, random);
  std::vector<int32_t> text = RandomIds(kMatch, vocabulary, random);
  const std::vector<int32_t> end = text;  // of the prompt
  text.insert(text.end(), forced.answer.begin(), forced.answer.end());
  for (int32_t i = 0; i < tokens; ++i) {
    forced.prompt.insert(forced.prompt.end(), text.begin() + i, text.begin() + i + kMatch);
    forced.prompt.push_back((text[i + kMatch] + 1) % vocabulary);
  }
  forced.prompt.insert(forced.prompt.end(), end.begin(), end.end());
  return forced;
}

}  // namespace

absl::StatusOr<ForcedAnswer> ForceAnswer(const std::string& what, int32_t depth, int32_t tokens,
                                         int32_t vocabulary, std::mt19937& random) {
  if (what == "mislead") return Mislead(depth, tokens, vocabulary, random);
  ForcedAnswer forced;
  forced.prompt = RandomIds(std::max(1, depth), vocabulary, random);
  if (what != "quote") {
    ANNULUS_ASSIGN_OR_RETURN(forced.answer, ReadIds(what, vocabulary));
    return forced;
  }
  if (depth < 2 * tokens) return TooShort(depth, int64_t{2} * tokens);
  const auto from = forced.prompt.begin() + (depth - tokens) / 2;
  forced.answer.assign(from, from + tokens);
  return forced;
}

}  // namespace annulus::bench
