#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/text/text_file.h"
#include "engine/text/tokenizer.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/small_tokenizers.h"
#include "tests/support/processor_time.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

std::string Repeat(const std::string& unit, size_t bytes) {
  std::string text;
  text.reserve(bytes + unit.size());
  while (text.size() < bytes) text += unit;
  return text;
}

// In parts of `part` bytes.
void EncodeParts(const Tokenizer& tokenizer, absl::string_view text, size_t part) {
  const auto stream = tokenizer.NewStream(false);
  std::vector<int32_t> ids;
  for (size_t at = 0; at < text.size(); at += part) {
    ASSERT_TRUE(stream->Append(text.substr(at, part), &ids).ok());
  }
  EXPECT_TRUE(stream->Finish(&ids).ok());
}

double Seconds(const Tokenizer& tokenizer, const std::string& text, size_t part) {
  const double start = testing::ThreadSeconds();
  EncodeParts(tokenizer, text, part);
  return testing::ThreadSeconds() - start;
}

// Quadratic time would be four times as long in every round; a shared machine is slow in some.
void ExpectLinear(const Tokenizer& tokenizer, const std::string& unit, size_t bytes, size_t part) {
  const std::string text = Repeat(unit, bytes);
  const std::string longer = Repeat(unit, 2 * bytes);
  double least = 1e9;
  for (int round = 0; round < 5 && least > 3; ++round) {
    const double once = Seconds(tokenizer, text, part);
    const double twice = Seconds(tokenizer, longer, part);
    least = std::min(least, (twice - 1e-3) / once);
  }
  EXPECT_LE(least, 3) << unit;
}

const std::string kUnits[] = {
    "a",
    " ",
    "\u4e2d",
    "\u0301",
    "\u0301\u0323",
    " \n",
    "\U0001F600",
    "\u1100\u1161\u11a8",
    "<|end|>",
    "<|en",
    " a",
    "1",
    "!",
};

// Every kind: the made ones and those of golden/small.
std::vector<std::unique_ptr<Tokenizer>> Tokenizers() {
  std::vector<std::unique_ptr<Tokenizer>> tokenizers;
  tokenizers.push_back(testing::Load(testing::ByteLevelTokenizer()));
  tokenizers.push_back(testing::Load(testing::ByteFallbackTokenizer()));
  for (const char* name : {"split_sequence", "whitespace_words", "unigram_words", "unigram_bytes",
                           "replaced_spaces", "metaspace_first"}) {
    std::ifstream file(testing::TestFile(absl::StrCat("engine/text/golden/small/", name, ".json")));
    tokenizers.push_back(testing::Load(nlohmann::json::parse(file)));
  }
  const auto bytes = ReadTextFile(testing::TestFile("engine/text/golden/small/unigram_map.model"));
  tokenizers.push_back(LoadTokenizerModel(bytes.value(), "unigram_map.model", "{}", "").value());
  return tokenizers;
}

TEST(LinearTime, TwiceTheTextTakesAboutTwiceTheTime) {
  constexpr size_t kBytes = kSanitized ? 20'000 : 60'000;
  for (const auto& tokenizer : Tokenizers()) {
    for (const std::string& unit : kUnits) {
      ExpectLinear(*tokenizer, unit, kBytes, 2 * kBytes);
    }
  }
}

// What is held back is not looked at again with every part.
TEST(LinearTime, SmallPartsTakeNoQuadraticTime) {
  constexpr size_t kBytes = kSanitized ? 20'000 : 60'000;
  for (const auto& tokenizer : Tokenizers()) {
    for (const char* unit : {"a", " ", "\u0301"}) {
      ExpectLinear(*tokenizer, unit, kBytes, 5);
    }
  }
}

void RunWithStack(size_t bytes, const std::function<void()>& work) {
  pthread_attr_t attributes;
  ASSERT_EQ(pthread_attr_init(&attributes), 0);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, bytes), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<const std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)),
            0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(LinearTime, StackUseDoesNotDependOnTheText) {
  for (const auto& tokenizer : Tokenizers()) {
    for (const std::string& unit : kUnits) {
      const std::string text = Repeat(unit, kSanitized ? 50'000 : 200'000);
      RunWithStack(256 << 10, [&] { EXPECT_TRUE(tokenizer->Encode(text, true).ok()); });
    }
  }
}

}  // namespace
}  // namespace annulus
