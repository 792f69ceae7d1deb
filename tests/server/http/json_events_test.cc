// Our parser of JSON against nlohmann's: the same values in the same order, and texts that are not
// valid refused at the same byte.

#include "server/http/json/json_events.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <deque>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace annulus::server {
namespace {

using ::testing::HasSubstr;

struct Parsed {
  std::string events;
  bool complete = false;
  std::optional<size_t> error_byte;
};

// Writes each event down. Ends the parsing after `most` of them.
class Recorder final : public JsonEvents {
 public:
  explicit Recorder(int most) : left_(most) {}
  const std::string& events() const { return events_; }

  bool Null() override { return Add("null"); }
  bool Bool(bool value) override { return Add(value ? "true" : "false"); }
  bool Integer(int64_t value) override { return Add(absl::StrCat("i", value)); }
  bool Natural(uint64_t value) override { return Add(absl::StrCat("n", value)); }
  bool Real(double value, absl::string_view text) override {
    return Add(absl::StrCat("r", absl::Hex(std::bit_cast<uint64_t>(value)), "=", text));
  }
  bool String(std::string& value) override {
    const std::string taken = left_ % 2 == 0 ? std::move(value) : value;
    return Add(absl::StrCat("s", taken));
  }
  bool Key(absl::string_view name) override { return Add(absl::StrCat("k", name)); }
  bool StartObject() override { return Add("{"); }
  bool EndObject() override { return Add("}"); }
  bool StartArray() override { return Add("["); }
  bool EndArray() override { return Add("]"); }

 private:
  bool Add(absl::string_view event) {
    absl::StrAppend(&events_, event, "\n");
    return --left_ > 0;
  }

  std::string events_;
  int left_;
};

// Hands nlohmann's events to a recorder.
class Theirs final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Theirs(Recorder& to) : to_(to) {}
  std::optional<size_t> error_byte() const { return error_byte_; }

  bool null() override { return to_.Null(); }
  bool boolean(bool value) override { return to_.Bool(value); }
  bool number_integer(int64_t value) override { return to_.Integer(value); }
  bool number_unsigned(uint64_t value) override { return to_.Natural(value); }
  bool number_float(double value, const std::string& text) override {
    return to_.Real(value, text);
  }
  bool string(std::string& value) override { return to_.String(value); }
  bool binary(nlohmann::json::binary_t&) override { return false; }
  bool start_object(size_t) override { return to_.StartObject(); }
  bool start_array(size_t) override { return to_.StartArray(); }
  bool end_object() override { return to_.EndObject(); }
  bool end_array() override { return to_.EndArray(); }
  bool key(std::string& name) override { return to_.Key(name); }
  bool parse_error(size_t position, const std::string&, const nlohmann::json::exception&) override {
    error_byte_ = position;
    return false;
  }

 private:
  Recorder& to_;
  std::optional<size_t> error_byte_;
};

constexpr int kAll = 1 << 30;

Parsed ByTheirs(const std::string& text, int most = kAll) {
  Recorder recorder(most);
  Theirs theirs(recorder);
  const bool complete = nlohmann::json::sax_parse(text, &theirs);
  return {recorder.events(), complete, theirs.error_byte()};
}

Parsed ByOurs(const std::string& text, size_t piece, int most = kAll) {
  std::deque<std::string> pieces;
  for (size_t at = 0; at < text.size(); at += piece) pieces.push_back(text.substr(at, piece));
  Recorder recorder(most);
  const auto survey = SurveyJson(pieces, CancelFlag::Never());
  EXPECT_TRUE(survey.ok()) << survey.status();
  const JsonEnding ending = ParseJsonEvents(pieces, *survey, CancelFlag::Never(), recorder);
  return {recorder.events(), ending.complete, ending.error_byte};
}

void ExpectSame(const std::string& text, size_t piece, int most = kAll) {
  const Parsed theirs = ByTheirs(text, most), ours = ByOurs(text, piece, most);
  SCOPED_TRACE(absl::CHexEscape(text));
  EXPECT_EQ(ours.events, theirs.events);
  EXPECT_EQ(ours.complete, theirs.complete);
  EXPECT_EQ(ours.error_byte, theirs.error_byte);
}

const std::vector<std::string>& Parts() {
  static const std::vector<std::string>* const parts = new std::vector<std::string>{
      "{",
      "}",
      "[",
      "]",
      ":",
      ",",
      " ",
      "\n",
      "\t",
      "\r",
      "\"",
      "\"a\":",
      "\"text\"",
      "true",
      "false",
      "null",
      "tru",
      "nul",
      "0",
      "-0",
      "-",
      "1",
      "-17",
      "00",
      "01",
      "1.5",
      "1.",
      ".5",
      "1e5",
      "1E+5",
      "1e-5",
      "1e",
      "1e+",
      "1e400",
      "-1e400",
      "1e-400",
      "4.9e-324",
      "18446744073709551615",
      "18446744073709551616",
      "-9223372036854775808",
      "-9223372036854775809",
      "1.0",
      "-0.0",
      "+1",
      "\"\\n\\t\\r\\b\\f\\/\\\\\\\"\"",
      "\"\\u0041\"",
      "\"\\u00e9\\u20AC\"",
      "\"\\ud83d\\ude00\"",
      "\"\\ud83d\"",
      "\"\\ude00\"",
      "\"\\ud83dx\"",
      "\"\\ud83d\\n\"",
      "\"\\ud83d\\u0041\"",
      "\"\\u00g0\"",
      "\"\\x\"",
      "\"\\u12\"",
      "\"\x1f\"",
      "\"\x7f\"",
      "\"\xc3\xa9\"",
      "\"\xe2\x82\xac\"",
      "\"\xf0\x9f\x98\x80\"",
      "\"\xc0\x80\"",
      "\"\xc1\xbf\"",
      "\"\xed\xa0\x80\"",
      "\"\xe0\x9f\xbf\"",
      "\"\xf4\x90\x80\x80\"",
      "\"\xf0\x8f\xbf\xbf\"",
      "\"\xf5\x80\x80\x80\"",
      "\"\xe2\x82\"",
      "\"\xff\"",
      "\"\x80\"",
      "\xef\xbb\xbf",
      "\xef\xbb",
      "/",
      "NaN",
      "'a'",
      std::string(1, '\0'),
      "\"" + std::string(1, '\0') + "\"",
      "\"" + std::string(70, 'x') + "\\n" + std::string(9, 'y') + "\""};
  return *parts;
}

TEST(JsonEventsTest, PartsAloneAndInPairsAreReadAsByNlohmann) {
  for (const std::string& one : Parts()) {
    ExpectSame(one, 1 + one.size() / 2);
    ExpectSame(absl::StrCat("[", one, "]"), 100);
    ExpectSame(absl::StrCat("{\"a\":", one, "}"), 3);
    for (const std::string& other : Parts()) {
      ExpectSame(one + other, 100);
      ExpectSame(absl::StrCat("[", one, ",", other), 7);
    }
  }
}

// A valid text of any shape.
std::string AnyValue(std::mt19937_64& random, int depth) {
  const auto below = [&](size_t limit) { return static_cast<size_t>(random() % limit); };
  static constexpr std::array<const char*, 10> kScalars = {
      "null",
      "true",
      "-17",
      "3.25e2",
      "12345678901234567890",
      "\"\"",
      "\"plain text of some length\"",
      "\"a\\nb\\u00e9\\ud83d\\ude00\"",
      "\"\xc3\xa9t\xc3\xa9 \xe4\xb8\xad\xe6\x96\x87 \xf0\x9f\x98\x80\"",
      "0"};
  if (depth == 0 || below(3) == 0) return kScalars[below(kScalars.size())];
  const bool is_array = below(2) == 0;
  std::string text = is_array ? "[" : "{";
  for (size_t left = below(6), first = left; left > 0; --left) {
    absl::StrAppend(&text, left == first ? "" : ", ",
                    is_array ? "" : "\"k\\t\xc3\xa9y\" : ", AnyValue(random, depth - 1));
  }
  return text + (is_array ? "]" : "}");
}

TEST(JsonEventsTest, RandomTextsAndTheirMutationsAreReadAsByNlohmann) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  int complete = 0;
  for (int i = 0; i < 20'000 && !HasFailure(); ++i) {
    std::string text = AnyValue(random, 5);
    for (size_t changes = random() % 3; changes > 0; --changes) {
      const size_t at = random() % (text.size() + 1);
      switch (random() % 4) {
        case 0:
          text.insert(at, Parts()[random() % Parts().size()]);
          break;
        case 1:
          text.erase(at, random() % 4);
          break;
        case 2:
          text.resize(at);
          break;
        default:
          if (at < text.size()) text[at] = static_cast<char>(random());
      }
    }
    const int most = random() % 4 == 0 ? 1 + static_cast<int>(random() % 10) : kAll;
    ExpectSame(text, 1 + random() % 50, most);
    if (ByTheirs(text).complete) ++complete;
  }
  EXPECT_GT(complete, 5'000);
}

TEST(JsonEventsTest, SurveyFindsTheLongestString) {
  const auto survey = [](const std::string& text, size_t piece) {
    std::deque<std::string> pieces;
    for (size_t at = 0; at < text.size(); at += piece) pieces.push_back(text.substr(at, piece));
    return SurveyJson(pieces, CancelFlag::Never());
  };
  const std::string inside = std::string(3000, 'x') + "\\\"\\\\" + std::string(4000, 'y');
  for (const size_t piece : {size_t{1}, size_t{7}, size_t{100'000}}) {
    const size_t decoded = inside.size() - 2;
    EXPECT_EQ(survey("[\"a\",\"" + inside + "\",\"b\"]", piece)->longest_string, decoded);
    EXPECT_EQ(survey("[\"" + inside, piece)->longest_string, decoded);
    EXPECT_EQ(survey("[\"a\"," + std::string(9000, ' ') + "]", piece)->longest_string,
              kLongestJsonWord);
    EXPECT_TRUE(survey(std::string(kLongestJsonWord, '1'), piece).ok());
    const absl::Status status = survey(std::string(kLongestJsonWord + 1, '1'), piece).status();
    EXPECT_THAT(std::string(status.message()), HasSubstr("1024"));
  }
}

}  // namespace
}  // namespace annulus::server
