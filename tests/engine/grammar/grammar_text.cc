#include "tests/engine/grammar/grammar_text.h"

#include <gtest/gtest.h>

#include <utility>

namespace annulus::testing {

absl::StatusOr<std::shared_ptr<const Machine>> Compile(const OutputConstraint& constraint) {
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  std::bitset<256> bytes;
  bytes.set();
  return CompileConstraint(constraint, bytes, &work, &MemoryGrant::Unlimited());
}

SmallVocabulary::SmallVocabulary(const std::vector<std::string>& more) {
  for (int byte = 0; byte < 256; ++byte) tokens.push_back(std::string(1, static_cast<char>(byte)));
  tokens.insert(tokens.end(), more.begin(), more.end());
  std::vector<std::pair<std::string, int32_t>> pairs;
  for (size_t i = 0; i < tokens.size(); ++i) pairs.emplace_back(tokens[i], static_cast<int32_t>(i));
  end = static_cast<int32_t>(tokens.size());
  trie = std::make_shared<const TokenTrie>(std::move(pairs), end + 1);
}

std::shared_ptr<GrammarCache> NewCache(const OutputConstraint& constraint,
                                       const SmallVocabulary& vocabulary) {
  auto machine = Compile(constraint);
  if (!machine.ok()) {
    ADD_FAILURE() << machine.status() << "\n" << constraint.text;
    return nullptr;
  }
  return std::make_shared<GrammarCache>(*machine, vocabulary.trie,
                                        std::vector<int32_t>{vocabulary.end});
}

bool Accepts(GrammarMatcher matcher, absl::string_view text) {
  for (const char byte : text) {
    const absl::StatusOr<bool> read = matcher.AdvanceBytes(absl::string_view(&byte, 1));
    EXPECT_TRUE(read.ok()) << read.status();
    if (!read.ok() || !*read) return false;
  }
  return matcher.may_end();
}

bool Accepts(const OutputConstraint& constraint, absl::string_view text) {
  static const auto& vocabulary = *new SmallVocabulary();
  auto cache = NewCache(constraint, vocabulary);
  return cache != nullptr && Accepts(GrammarMatcher(std::move(cache)), text);
}

}  // namespace annulus::testing
