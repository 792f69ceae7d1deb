// Every operation of a template counts steps in proportion to its data, and its time in proportion
// to its steps. Each string method, filter and test has a line in operations.cc.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/template/json_value.h"
#include "engine/text/template/language/ast.h"
#include "engine/text/template/language/evaluator.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/lexer.h"
#include "engine/text/template/language/parser.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/value_tests.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/template/fixed_clock.h"
#include "tests/engine/text/template/operations.h"
#include "tests/support/processor_time.h"
#include "tests/support/test_data.h"

namespace annulus::jinja {
namespace {

constexpr size_t kSize = kSanitized ? 1 << 14 : 1 << 16;
// A step takes up to a few hundred nanoseconds; machines and instrumented programs are slower.
constexpr double kMostSecondsPerStep = kAddressSanitizer || kThreadSanitizer ? 2e-5 : 1e-6;
constexpr double kMostSecondsBeside = 0.01;

struct Cost {
  int64_t steps = 0;
  double seconds = 0;
};

// Of the template alone, without reading the variables. A template that fails counts too.
Cost Measure(const std::string& source, const std::string& variables) {
  Ast ast;
  Parser(Tokenize(source), ast).Parse();
  RenderLimits limits;
  limits.steps = int64_t{1} << 40;
  limits.value_bytes = size_t{1} << 32;
  limits.output_bytes = size_t{1} << 32;
  Runtime runtime(limits, testing::FixedNow(), CancelFlag::Never());
  const Value values = ParseJson(runtime, variables);
  const int64_t before = runtime.steps();
  const double begin = testing::ThreadSeconds();
  Evaluator evaluator(runtime, values);
  try {
    evaluator.Render(ast);
  } catch (const Failure&) {
  }
  return {runtime.steps() - before, testing::ThreadSeconds() - begin};
}

void ExpectProportional(const std::string& source) {
  static const std::string some = testing::OperationVariables(kSize);
  static const std::string twice_as_much = testing::OperationVariables(2 * kSize);
  const Cost once = Measure(source, some);
  const Cost twice = Measure(source, twice_as_much);
  EXPECT_LE(static_cast<double>(twice.steps), 2.3 * static_cast<double>(once.steps) + 300)
      << source << " takes " << once.steps << " and then " << twice.steps << " steps";
  EXPECT_LE(twice.seconds,
            kMostSecondsPerStep * static_cast<double>(twice.steps) + kMostSecondsBeside)
      << source << " counts " << twice.steps << " steps";
}

// Each name that the program knows has a line, and each line holds.
void ExpectAll(const std::string& names, const testing::OperationLines& lines) {
  std::set<std::string> known;
  for (const absl::string_view name : absl::StrSplit(names, ", ")) known.emplace(name);
  for (const std::string& name : known) EXPECT_TRUE(lines.contains(name)) << "no line for " << name;
  for (const auto& [name, expressions] : lines) {
    EXPECT_TRUE(known.contains(name)) << name;
    for (const std::string& expression : expressions) {
      ExpectProportional(absl::StrCat("{{ ", expression, " }}"));
    }
  }
}

// Methods of Python's str, less those with two underscores.
constexpr char kPythonMethods[] =
    "capitalize, casefold, center, count, encode, endswith, expandtabs, find, format, format_map, "
    "index, isalnum, isalpha, isascii, isdecimal, isdigit, isidentifier, islower, isnumeric, "
    "isprintable, isspace, istitle, isupper, join, ljust, lower, lstrip, maketrans, partition, "
    "removeprefix, removesuffix, replace, rfind, rindex, rjust, rpartition, rsplit, rstrip, "
    "split, splitlines, startswith, strip, swapcase, title, translate, upper, zfill";

// Whether a call of it fails for another reason at most than that it is not supported.
bool IsSupported(absl::string_view method) {
  Ast ast;
  Parser(Tokenize(absl::StrCat("{{ 'a'.", method, "() }}")), ast).Parse();
  Runtime runtime(RenderLimits(), testing::FixedNow(), CancelFlag::Never());
  const Value values = ParseJson(runtime, "{}");
  try {
    Evaluator(runtime, values).Render(ast);
  } catch (const Failure& failure) {
    return !absl::StrContains(failure.message, "is not supported");
  }
  return true;
}

TEST(StepCountingTest, StringMethods) {
  std::vector<absl::string_view> supported;
  for (const absl::string_view method : absl::StrSplit(kPythonMethods, ", ")) {
    if (IsSupported(method)) supported.push_back(method);
  }
  ExpectAll(absl::StrJoin(supported, ", "), testing::StringMethodLines());
}

TEST(StepCountingTest, Filters) { ExpectAll(FilterNames(), testing::FilterLines()); }

TEST(StepCountingTest, Tests) { ExpectAll(TestNames(), testing::TestLines()); }

TEST(StepCountingTest, OperatorsAndStatements) {
  for (const std::string& source : testing::OperatorSources()) {
    ExpectProportional(source);
  }
}

// A client's options become variables: a name is found as fast among many of them.
TEST(StepCountingTest, NamesAmongManyVariables) {
  const std::string source = "{% for x in range(2000) %}{{ nothing }}{{ a }}{% endfor %}";
  nlohmann::json few = {{"a", 1}};
  nlohmann::json many = few;
  for (int i = 0; i < 50'000; ++i) many[absl::StrCat("v", i)] = i;
  const Cost among_few = Measure(source, few.dump());
  const Cost among_many = Measure(source, many.dump());
  EXPECT_EQ(among_many.steps, among_few.steps);
  EXPECT_LE(among_many.seconds, 20 * among_few.seconds + 0.1);
}

// Keys that are no strings are hashed too: a dict of n of them takes n steps, not n * n / 2.
TEST(StepCountingTest, KeysOfOtherTypes) {
  std::string source = "{% set d = dict(range(size // 4) | batch(2)) %}{{ d | length }}";
  ExpectProportional(source);
  Ast ast;
  Parser(Tokenize("{% set d = {1: 'a', 1.0: 'b', true: 'c', 2.5: 'd', (1, 'x'): 'e', none: 'f'} %}"
                  "{{ d[1] }}{{ d[1.0] }}{{ d[2.5] }}{{ d[(1.0, 'x')] }}{{ d[none] }}"
                  "{{ d[(2,)] is defined }}{{ d | length }}"),
         ast)
      .Parse();
  Runtime runtime(RenderLimits(), testing::FixedNow(), CancelFlag::Never());
  const Value values = ParseJson(runtime, "{}");
  EXPECT_EQ(Evaluator(runtime, values).Render(ast), "ccdefFalse4");
}

// `tool_call.name in builtin_tools`, with texts that agree for as long as they can.
TEST(StepCountingTest, HostileCallsThroughAPublishedTemplate) {
  const auto folder = testing::TestData("chat_templates");
  if (!folder.has_value()) GTEST_SKIP() << "needs the test data";
  std::ifstream file(*folder / "meta-llama-Llama-3.1-8B-Instruct.jinja");
  const std::string source{std::istreambuf_iterator<char>(file), {}};
  ASSERT_FALSE(source.empty());
  constexpr size_t kHalf = 750'000;
  const nlohmann::json call = {
      {"function", {{"name", std::string(kHalf / 2, 'a') + "b"}, {"arguments", {{"x", "y"}}}}}};
  const nlohmann::json variables = {
      {"bos_token", "<s>"},
      {"builtin_tools", std::string(kHalf, 'a')},
      {"messages",
       {{{"role", "user"}, {"content", std::string(kHalf / 2, ' ') + "x"}},
        {{"role", "assistant"}, {"tool_calls", nlohmann::json::array({call})}}}},
      {"tools", nullptr},
      {"add_generation_prompt", true}};
  const Cost cost = Measure(source, variables.dump());
  // The template also looks at each character of builtin_tools.
  EXPECT_LE(cost.steps, 10'000'000);
  EXPECT_LE(cost.seconds, kSanitized ? 10 : 0.5) << cost.steps << " steps";
}

}  // namespace
}  // namespace annulus::jinja
