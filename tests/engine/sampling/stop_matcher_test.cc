#include "engine/sampling/stop_matcher.h"

#include <gtest/gtest.h>

#include <chrono>
#include <random>
#include <string>
#include <vector>

namespace annulus {
namespace {

struct Outcome {
  std::string text;
  std::optional<std::string> matched;

  bool operator==(const Outcome&) const = default;
};

void PrintTo(const Outcome& outcome, std::ostream* out) {
  *out << '"' << outcome.text << "\" stopped by " << outcome.matched.value_or("nothing");
}

// The definition: the first end of any stop, there the longest stop.
Outcome Naive(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t end = 1; end <= text.size(); ++end) {
    const std::string* best = nullptr;
    for (const std::string& stop : stops) {
      if (stop.size() > end || text.compare(end - stop.size(), stop.size(), stop) != 0) continue;
      if (best == nullptr || stop.size() > best->size()) best = &stop;
    }
    if (best != nullptr) return {text.substr(0, end - best->size()), *best};
  }
  return {text, std::nullopt};
}

// Bytes at the end of `text` that begin a stop, the most of any stop; no stop is complete.
size_t NaiveHeld(const std::vector<std::string>& stops, const std::string& text) {
  for (size_t length = text.size(); length > 0; --length) {
    const std::string suffix = text.substr(text.size() - length);
    for (const std::string& stop : stops) {
      if (stop.compare(0, length, suffix) == 0) return length;
    }
  }
  return 0;
}

// Feeds `pieces` and checks after each that exactly the text that must be held back is.
Outcome Stream(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  std::string read, shown;
  for (const std::string& piece : pieces) {
    read += piece;
    StopMatcher::Result result = matcher.Append(piece);
    shown += result.text;
    if (result.matched.has_value()) return {shown, result.matched};
    EXPECT_EQ(matcher.held(), NaiveHeld(stops, read));
    EXPECT_EQ(shown, read.substr(0, read.size() - matcher.held()));
  }
  return {shown + matcher.Finish(), std::nullopt};
}

TEST(StopMatcherTest, WithoutStopsAllTextPasses) {
  StopMatcher matcher({});
  EXPECT_EQ(matcher.Append("any text").text, "any text");
  EXPECT_EQ(matcher.held(), 0u);
  EXPECT_EQ(matcher.Finish(), "");
}

TEST(StopMatcherTest, StopAcrossPiecesIsNeverShown) {
  EXPECT_EQ(Stream({"\n\nUser:"}, {"Hello.\n", "\nUs", "er: more"}),
            (Outcome{"Hello.", "\n\nUser:"}));
}

TEST(StopMatcherTest, HeldTextComesOutWhenItTurnsOutOrdinary) {
  EXPECT_EQ(Stream({"STOP"}, {"ST", "ST", "OW"}), (Outcome{"STSTOW", std::nullopt}));
  EXPECT_EQ(Stream({"STOP"}, {"a ST"}), (Outcome{"a ST", std::nullopt}));
}

TEST(StopMatcherTest, FirstEndWinsAndThereTheLongest) {
  EXPECT_EQ(Stream({"abcd", "bc"}, {"xabcd"}), (Outcome{"xa", "bc"}));
  EXPECT_EQ(Stream({"bc", "abc"}, {"xabc"}), (Outcome{"x", "abc"}));
  EXPECT_EQ(Stream({"abc", "bc"}, {"x", "a", "b", "c"}), (Outcome{"x", "abc"}));
}

TEST(StopMatcherTest, EqualsNaiveSearchForEveryCut) {
  std::mt19937 random(1);
  for (int round = 0; round < 20000; ++round) {
    const int letters = 1 + static_cast<int>(random() % 3);
    const auto draw = [&](int least, int most) {
      std::string text(least + random() % (most - least + 1), 'a');
      for (char& letter : text) letter = static_cast<char>('a' + random() % letters);
      return text;
    };
    std::vector<std::string> stops(random() % 5);
    for (std::string& stop : stops) stop = draw(1, 8);
    const std::string text = draw(0, 30);
    std::vector<std::string> pieces;
    for (size_t at = 0; at < text.size();) {
      const size_t size = random() % 6;  // 0 included: an empty piece is harmless
      pieces.push_back(text.substr(at, size));
      at += size;
    }
    ASSERT_EQ(Stream(stops, pieces), Naive(stops, text));
  }
}

TEST(StopMatcherTest, WholeCharactersStayWhole) {
  const std::vector<std::string> alphabet = {"a", "é", "è", "€", "漢", "😀", "😁"};
  std::mt19937 random(2);
  for (int round = 0; round < 5000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      for (size_t i = random() % 3 + 1; i > 0; --i) stop += alphabet[random() % alphabet.size()];
    }
    StopMatcher matcher(stops);
    for (int i = 0; i < 12; ++i) {
      const StopMatcher::Result result = matcher.Append(alphabet[random() % alphabet.size()]);
      const bool starts_inside =
          !result.text.empty() && (static_cast<uint8_t>(result.text[0]) & 0xC0) == 0x80;
      ASSERT_FALSE(starts_inside);
      if (result.matched.has_value()) break;
    }
  }
}

// The longest stops against text made to hold back as much as possible, one byte at a time.
TEST(StopMatcherTest, TakesLinearTime) {
  const std::string almost(1023, 'a');
  const std::vector<std::string> stops(16, almost + 'b');
  const auto seconds = [&](int bytes) {
    StopMatcher matcher(stops);
    const auto start = std::chrono::steady_clock::now();
    size_t shown = 0;
    for (int i = 0; i < bytes; ++i) shown += matcher.Append("a").text.size();
    EXPECT_EQ(shown, bytes - almost.size());
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  // A quadratic search would need about 10^11 steps here.
  EXPECT_LT(seconds(300'000), 20);
}

TEST(StopMatcherDeathTest, EmptyStopIsOurOwnBug) { EXPECT_DEATH(StopMatcher({""}), "empty stop"); }

}  // namespace
}  // namespace annulus
