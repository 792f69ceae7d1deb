#include "bench/demo/document.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <unordered_map>
#include <vector>

namespace annulus::bench {
namespace {

struct Occurrences {
  int64_t count = 0;
  size_t follower = 0;  // offset of the byte after the last one
};

// What a model sees that copies the byte after the only other place with the same context.
class Recaller {
 public:
  explicit Recaller(const std::string& text) : text_(text) {
    for (size_t end = kDemoContextBytes; end < text.size(); ++end) Count(text, end, end);
  }

  // Continues text + cue greedily up to a line end; empty where a context is not unique.
  std::string Answer(const std::string& cue) const {
    std::string prompt = cue, answer;
    while (answer.size() < 1000) {
      const auto found = contexts_.find(prompt.substr(prompt.size() - kDemoContextBytes));
      if (found == contexts_.end() || found->second.count != 1) return "";
      const char next = text_[found->second.follower];
      // The prompt's own tail must not hold the context either.
      if (Count(prompt, found->first) != 1) return "";
      if (next == '\n') return answer;
      answer += next;
      prompt += next;
    }
    return "";
  }

 private:
  void Count(const std::string& text, size_t end, size_t follower) {
    Occurrences& entry = contexts_[text.substr(end - kDemoContextBytes, kDemoContextBytes)];
    ++entry.count;
    entry.follower = follower;
  }
  static int Count(const std::string& text, const std::string& context) {
    int count = 0;
    for (size_t at = text.find(context); at != std::string::npos; at = text.find(context, at + 1)) {
      ++count;
    }
    return count;
  }

  const std::string& text_;
  std::unordered_map<std::string, Occurrences> contexts_;
};

void ExpectSound(const DemoOptions& options) {
  const absl::StatusOr<DemoDocument> document = MakeDemoDocument(options);
  ASSERT_TRUE(document.ok()) << document.status();
  const std::string& text = document->text;
  ASSERT_EQ(text.size(), static_cast<size_t>(options.bytes));
  EXPECT_EQ(text.back(), '\n');
  EXPECT_TRUE(std::ranges::all_of(
      text, [](char byte) { return byte == '\n' || (byte >= ' ' && byte <= '~'); }));
  ASSERT_EQ(document->facts.size(), options.depths.size());
  const Recaller recaller(text);
  for (const DemoFact& fact : document->facts) {
    const auto offset = static_cast<size_t>(fact.offset);
    EXPECT_EQ(text.compare(offset, fact.cue.size() + fact.answer.size() + 1,
                           fact.cue + fact.answer + "\n"),
              0);
    EXPECT_TRUE(offset == 0 || text[offset - 1] == '\n');
    EXPECT_EQ(recaller.Answer(fact.cue), fact.answer) << fact.cue;
  }
}

TEST(DemoDocumentTest, AnswersAreFoundAtEverySizeAndSeed) {
  for (const int64_t bytes : {300, 1000, 4097, 65536}) {
    for (const uint64_t seed : {0, 1, 7, 12345}) {
      SCOPED_TRACE(bytes);
      ExpectSound({.bytes = bytes, .seed = seed, .depths = {0.01, 0.33, 0.99}});
    }
  }
}

TEST(DemoDocumentTest, AMillionBytesAndManyFacts) {
  std::vector<double> depths;
  for (int i = 0; i < 200; ++i) depths.push_back(i / 199.0);
  ExpectSound({.bytes = 1'000'000, .seed = 11, .depths = depths});
}

TEST(DemoDocumentTest, TenMillionBytesAreWrittenExactly) {
  const absl::StatusOr<DemoDocument> document = MakeDemoDocument({.bytes = 10'000'000});
  ASSERT_TRUE(document.ok());
  EXPECT_EQ(document->text.size(), 10'000'000u);
}

TEST(DemoDocumentTest, FactsLieWhereTheyWereAskedFor) {
  const absl::StatusOr<DemoDocument> document =
      MakeDemoDocument({.bytes = 100'000, .depths = {1, 0.25, 0, 0.75}});
  ASSERT_TRUE(document.ok());
  double previous = -1;
  for (const DemoFact& fact : document->facts) {
    EXPECT_GT(fact.depth, previous);
    previous = fact.depth;
    EXPECT_NEAR(static_cast<double>(fact.offset), fact.depth * 100'000, 300) << fact.depth;
  }
  EXPECT_EQ(document->facts.front().offset, 0);
}

TEST(DemoDocumentTest, EveryLengthCanBeReached) {
  for (int64_t bytes = 1; bytes < 600; ++bytes) {
    const absl::StatusOr<DemoDocument> document =
        MakeDemoDocument({.bytes = bytes, .seed = 3, .depths = {}});
    ASSERT_TRUE(document.ok());
    EXPECT_EQ(document->text.size(), static_cast<size_t>(bytes));
    EXPECT_EQ(document->text.back(), '\n');
  }
}

TEST(DemoDocumentTest, OptionsOutOfRangeAreRefused) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const DemoOptions refused[] = {
      {.bytes = 0, .depths = {}},
      {.bytes = -5, .depths = {}},
      {.bytes = 2'000'000'000},
      {.depths = {0.5, 1.01}},
      {.depths = {-0.1}},
      {.depths = {nan}},
      {.depths = std::vector<double>(1001, 0.5)},
  };
  for (const DemoOptions& options : refused) {
    EXPECT_EQ(MakeDemoDocument(options).status().code(), absl::StatusCode::kInvalidArgument);
  }
  const absl::Status full = MakeDemoDocument({.bytes = 150}).status();
  EXPECT_EQ(full.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(full.message().find("the document has 150"), absl::string_view::npos) << full;
}

}  // namespace
}  // namespace annulus::bench
