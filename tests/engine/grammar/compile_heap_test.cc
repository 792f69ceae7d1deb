// What compiling a constraint takes of the heap, measured, against what it asked its MemoryGrant
// for.
#include <gtest/gtest.h>

#include <algorithm>
#include <bitset>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "engine/text/answer/answer_format.h"
#include "tests/engine/grammar/grammar_text.h"
#include "tests/support/counting_heap.h"

namespace annulus {
namespace {

using testing::ChoicesConstraint;
using testing::RegexConstraint;
using testing::SchemaConstraint;

// Allows so much, and remembers what was asked for.
class Grant final : public MemoryGrant {
 public:
  explicit Grant(size_t most) : most_(most) {}
  absl::Status Allow(size_t bytes) override {
    if (bytes > most_) return absl::ResourceExhaustedError("no more");
    allowed_ = std::max(allowed_, bytes);
    return absl::OkStatus();
  }
  size_t allowed() const { return allowed_; }

 private:
  const size_t most_;
  size_t allowed_ = 0;
};

struct Compiled {
  absl::Status status;
  size_t taken = 0;
  size_t allowed = 0;
};

Compiled Measure(const OutputConstraint& constraint, size_t most) {
  std::bitset<256> bytes;
  bytes.set();
  WorkMeter work("the output constraint", kCompileSteps, CancelFlag::Never());
  Grant grant(most);
  testing::TakeHeapBytesMost();
  const int64_t before = testing::HeapBytes();
  const absl::Status status = CompileConstraint(constraint, bytes, &work, &grant).status();
  return {status, static_cast<size_t>(testing::TakeHeapBytesMost() - before), grant.allowed()};
}

// `what` count times, with $ replaced by the number, joined by commas.
std::string Times(int count, const std::string& what) {
  std::vector<std::string> all;
  for (int i = 0; i < count; ++i) {
    std::string one = what;
    for (size_t at; (at = one.find('$')) != std::string::npos;) one.replace(at, 1, absl::StrCat(i));
    all.push_back(std::move(one));
  }
  return absl::StrJoin(all, ",");
}

std::string AllOf(const std::string& schemas) { return R"({"allOf":[)" + schemas + "]}"; }
std::string AnyOf(const std::string& schemas) { return R"({"anyOf":[)" + schemas + "]}"; }

// What schemas can be made of to take much with little.
std::vector<std::pair<std::string, OutputConstraint>> Hostile() {
  const std::string two =
      R"({"anyOf":[{"properties":{"a":{"type":"string"}}},{"required":["b"]}]})";
  const std::string values = R"({"enum":[)" + Times(20'000, "$") + "]}";
  const std::string text = R"({"const":")" + std::string(50'000, 'x') + "\"}";
  const std::string name(5'000, 'n');
  std::vector<std::pair<std::string, std::string>> schemas = {
      {"alternatives of many parts",
       AllOf(Times(100, R"({"properties":{"p$":true}})") + "," + Times(11, two))},
      {"long paths", R"({"@defs":{")" + name + "\":" +
                         AllOf(Times(40, R"({"properties":{"p$":true}})") + "," + Times(9, two)) +
                         R"(},"@ref":"#/@defs/)" + name + "\"}"},
      {"long names that are required",
       AllOf(R"({"required":[")" + name + "\"]}," + Times(12, two))},
      {"values times alternatives",
       AllOf(AnyOf(Times(1'000, R"({"minLength":$})")) + "," + values)},
      {"long constants times alternatives",
       AllOf(AnyOf(Times(2'000, R"({"minLength":$})")) + "," + text)},
      {"values against values", AllOf(Times(4, values))},
      {"long patterns times alternatives",
       AllOf(R"({"pattern":"^)" + std::string(50'000, 'x') + R"("},)" +
             AnyOf(Times(2'000, R"({"minLength":$})")))},
      {"a long pattern", R"({"type":"string","pattern":")" + std::string(500'000, '.') + "\"}"},
      {"a wide class of a pattern that is repeated",
       R"({"maxLength":9000,"pattern":"^[acegikmoqsuwyACEGIKMOQSUWY02468]{3000}"})"},
      {"elements of many lists",
       AllOf(Times(200, R"({"items":[)" + Times(100, "{\"minLength\":$}") + "]}"))},
      {"prefixes of many parts",
       AllOf(Times(300,
                   R"({"patternProperties":{"^p$":{}},"additionalProperties":{"type":"null"}})"))},
      {"names of many objects",
       R"({"type":"array","items":[)" +
           Times(200, R"({"properties":{)" + Times(20, "\"name number $\":true") + "}}") + "]}"},
      {"a name of many bytes", R"({"properties":{")" + std::string(900'000, 'n') + R"(":true}})"},
      {"a list of values", R"({"enum":[)" + Times(30'000, R"("the value $")") + "]}"},
      {"many alternatives", AnyOf(Times(15'000, R"({"const":$})"))},
      {"numbers with many digits",
       AllOf(AnyOf(Times(50, R"({"minimum":$.)" + std::string(59, '7') + "}")) + "," +
             AnyOf(Times(50, R"({"maximum":9$.)" + std::string(58, '7') + "}")))},
  };
  std::vector<std::pair<std::string, OutputConstraint>> all;
  for (auto& [what, schema] : schemas) {
    std::replace(schema.begin(), schema.end(), '@', '$');  // which Times replaces
    all.emplace_back(what, SchemaConstraint(schema));
  }
  std::string nested = std::string(15'000, 'a');
  for (size_t i = 1; i < nested.size(); i += 2) nested[i] = '?';
  all.emplace_back("repetitions of what may be empty",
                   RegexConstraint(std::string(60, '(') + nested + [] {
                     std::string ends;
                     for (int i = 0; i < 60; ++i) ends += "){2,}";
                     return ends;
                   }()));
  all.emplace_back("choices", ChoicesConstraint({std::string(500'000, 'a'), "b"}));
  return all;
}

TEST(CompileHeapTest, HostileConstraintsTakeNoMoreThanTheyAskedFor) {
  for (const auto& [what, constraint] : Hostile()) {
    const Compiled compiled = Measure(constraint, SIZE_MAX);
    EXPECT_LE(compiled.taken, compiled.allowed) << what << ": " << compiled.status;
  }
}

TEST(CompileHeapTest, HostileToolsTakeNoMoreThanTheyAskedFor) {
  const auto tool = [](const std::string& name, const std::string& parameters) {
    return R"({"type":"function","function":{"name":")" + name +
           R"(","parameters":{"type":"object","properties":{)" + parameters + "}}}}";
  };
  const std::string name(2'000, 'n');
  const std::string values = R"({"enum":[)" + Times(2'000, R"("the value $")") + "]}";
  for (const std::string& tools :
       {tool("many_parameters", Times(3'000, R"("parameter_$":{"type":"string"})")),
        tool("values", Times(5, "\"parameter_$\":" + values)), tool(name, "\"" + name + "\":{}"),
        Times(1'000, tool("tool_$", R"("a":{"type":"integer"},"b":{"not":{}})"))}) {
    for (const char* family : {"hermes", "qwen3_coder"}) {
      OutputConstraint constraint{.kind = OutputConstraint::Kind::kAnyText};
      constraint.answer =
          AnswerShape{.format = AnswerFormat::Make(family, [](absl::string_view) { return false; }),
                      .calls = AnswerShape::Calls::kAllowed,
                      .tools = "[" + tools + "]"};
      const Compiled compiled = Measure(constraint, SIZE_MAX);
      EXPECT_LE(compiled.taken, compiled.allowed)
          << family << " " << tools.substr(0, 80) << ": " << compiled.status;
    }
  }
}

// Nor than there is, and they free all of it.
TEST(CompileHeapTest, TakesNoMoreThanIsAllowed) {
  constexpr size_t kMost = size_t{2} << 20;
  for (const auto& [what, constraint] : Hostile()) {
    const int64_t before = testing::HeapBytes();
    {
      const Compiled compiled = Measure(constraint, kMost);
      EXPECT_EQ(compiled.status.message(), "no more") << what;
      EXPECT_LE(compiled.taken, kMost) << what;
    }
    EXPECT_EQ(testing::HeapBytes(), before) << what;
  }
}

}  // namespace
}  // namespace annulus
