// Every operation of a template counts steps in proportion to its data, and its time in proportion
// to its steps. Each string method, filter and test has a line here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <time.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/text/template/ast.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/template/evaluator.h"
#include "engine/text/template/failure.h"
#include "engine/text/template/filters.h"
#include "engine/text/template/json_value.h"
#include "engine/text/template/lexer.h"
#include "engine/text/template/parser.h"
#include "engine/text/template/string_methods.h"
#include "engine/text/template/value_tests.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/template/fixed_clock.h"
#include "tests/support/test_data.h"

namespace annulus::jinja {
namespace {

constexpr size_t kSize = kSanitized ? 1 << 14 : 1 << 16;
// A step takes up to a few hundred nanoseconds; machines and instrumented programs are slower.
constexpr double kMostSecondsPerStep = kAddressSanitizer || kThreadSanitizer ? 2e-5 : 1e-6;
constexpr double kMostSecondsBeside = 0.01;

double CpuSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// Data of about `size` bytes each, in the forms that make naive operations slow.
std::string Variables(size_t size) {
  const size_t half = size / 2;
  std::vector<std::string> alike;  // they differ at their ends only
  for (size_t i = 0; i < 64; ++i) {
    alike.push_back(absl::StrCat(std::string(size / 64, 'a'), 1000 - i));
  }
  std::vector<int> numbers;
  std::vector<std::vector<int>> pairs;
  nlohmann::json members = nlohmann::json::object();
  std::vector<nlohmann::json> items;
  for (size_t i = 0; i < size / 16; ++i) {
    numbers.push_back(static_cast<int>((i * 7919) % (size / 16)));
    pairs.push_back({static_cast<int>(i), 1});
    members[absl::StrCat("k", i)] = i;
    items.push_back({{"v", i % 50}});
  }
  nlohmann::json deep = std::string(half, 'a');
  for (int i = 0; i < 90; ++i) deep = nlohmann::json::array({deep});
  std::string words;
  while (words.size() < size) words += "a\n";
  return nlohmann::json({{"s", std::string(size, 'a')},
                         {"other", std::string(size - 1, 'a') + "b"},
                         {"near", std::string(half, 'a') + "b"},  // as far as it goes in s
                         {"behind", "b" + std::string(half, 'a')},
                         {"short", std::string(200, 'a') + "b"},
                         {"words", words},
                         {"spaces", std::string(size, ' ') + "x" + std::string(size, ' ')},
                         {"digits", "1" + std::string(size, '0') + "x"},
                         {"fields", std::string(half, '%') + std::string(half & 1, '%')},
                         {"json", nlohmann::json(numbers).dump()},
                         {"alike", alike},
                         {"numbers", numbers},
                         {"pairs", pairs},
                         {"members", members},
                         {"items", items},
                         {"deep", deep},
                         {"size", size}})
      .dump();
}

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
  const double begin = CpuSeconds();
  Evaluator evaluator(runtime, values);
  try {
    evaluator.Render(ast);
  } catch (const Failure&) {
  }
  return {runtime.steps() - before, CpuSeconds() - begin};
}

void ExpectProportional(const std::string& source) {
  static const std::string some = Variables(kSize);
  static const std::string twice_as_much = Variables(2 * kSize);
  const Cost once = Measure(source, some);
  const Cost twice = Measure(source, twice_as_much);
  EXPECT_LE(static_cast<double>(twice.steps), 2.3 * static_cast<double>(once.steps) + 300)
      << source << " takes " << once.steps << " and then " << twice.steps << " steps";
  EXPECT_LE(twice.seconds,
            kMostSecondsPerStep * static_cast<double>(twice.steps) + kMostSecondsBeside)
      << source << " counts " << twice.steps << " steps";
}

using Lines = std::map<std::string, std::vector<std::string>>;

// Each name that the program knows has a line, and each line holds.
void ExpectAll(const std::string& names, const Lines& lines) {
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

TEST(StepCountingTest, StringMethods) {
  ExpectAll(StringMethodNames(),
            {{"capitalize", {"s.capitalize()"}},
             {"center", {"s.center(size * 2)", "'a'.center(size, s)"}},
             {"count", {"s.count(near)", "s.count(short)", "s.count('a')", "s.count('')"}},
             {"endswith", {"s.endswith(behind)", "s.endswith(s)"}},
             {"find", {"s.find(near)", "s.find(short)", "s.find('b', size // 2)"}},
             {"format",
              {"'{}{}{}'.format(s, s, s)", "s.format(1)", "'{:>999}'.format(s)",
               "('{k1}' * (size // 16)).format(**{'k1': 1})"}},
             {"index", {"s.index(near)"}},
             {"isalnum", {"s.isalnum()"}},
             {"isalpha", {"s.isalpha()"}},
             {"isdecimal", {"digits.isdecimal()"}},
             {"isdigit", {"digits.isdigit()"}},
             {"islower", {"s.islower()"}},
             {"isnumeric", {"digits.isnumeric()"}},
             {"isspace", {"spaces.isspace()"}},
             {"isupper", {"spaces.isupper()"}},
             {"join", {"', '.join(alike)", "near.join(['a', 'b', 'c'])", "''.join(s)"}},
             {"ljust", {"s.ljust(2 * size)"}},
             {"lower", {"s.lower()"}},
             {"lstrip", {"s.lstrip('a')", "s.lstrip(behind)", "spaces.lstrip()"}},
             {"partition", {"s.partition(near)", "s.partition(short)"}},
             {"removeprefix", {"s.removeprefix(near)"}},
             {"removesuffix", {"s.removesuffix(behind)"}},
             {"replace",
              {"s.replace('a', 'bc')", "s.replace(near, '')", "s.replace(short, 'x')",
               "s.replace('', 'x')", "words.replace('\\n', ' ')"}},
             {"rfind", {"s.rfind(behind)", "other.rfind('b' + short)"}},
             {"rindex", {"s.rindex(behind)"}},
             {"rjust", {"s.rjust(2 * size)"}},
             {"rpartition", {"s.rpartition(behind)", "s.rpartition('b' + short)"}},
             {"rsplit",
              {"s.rsplit('a')", "words.rsplit()", "s.rsplit(behind)", "words.rsplit('\\n', 3)"}},
             {"rstrip", {"s.rstrip('a')", "s.rstrip(near)", "spaces.rstrip()"}},
             {"split", {"s.split('a')", "words.split()", "s.split(near)", "words.split(None, 2)"}},
             {"splitlines", {"words.splitlines()", "s.splitlines()"}},
             {"startswith", {"s.startswith(near)", "s.startswith((near, behind, s))"}},
             {"strip", {"s.strip('a')", "s.strip(near)", "spaces.strip()", "s.strip('xyza')"}},
             {"swapcase", {"s.swapcase()"}},
             {"title", {"words.title()"}},
             {"upper", {"s.upper()"}},
             {"zfill", {"digits.zfill(2 * size)"}}});
}

TEST(StepCountingTest, Filters) {
  ExpectAll(
      FilterNames(),
      {{"abs", {"size | abs"}},
       {"attr", {"members | attr(s)"}},
       {"batch",
        {"numbers | batch(3) | list | length", "numbers | batch(size, 0) | list | length"}},
       {"capitalize", {"s | capitalize"}},
       {"center", {"s | center(2 * size)"}},
       {"count", {"s | count"}},
       {"d", {"nothing | d(s)"}},
       {"default", {"nothing | default(s)"}},
       {"dictsort", {"members | dictsort | length", "members | dictsort(by='value') | length"}},
       {"e", {"s | e"}},
       {"escape", {"s | escape"}},
       {"first", {"s | first", "numbers | first"}},
       {"float", {"digits | float"}},
       {"forceescape", {"s | forceescape"}},
       {"format", {"'%s%s' | format(s, s)", "'%.1s' | format(s)", "fields | format(1)"}},
       {"from_json", {"json | from_json | length"}},
       {"fromjson", {"json | fromjson | length"}},
       {"groupby", {"items | groupby('v') | length"}},
       {"indent", {"words | indent(4)", "words | indent(4, true, true)"}},
       {"int", {"digits | int", "s | int"}},
       {"items", {"members | items | list | length"}},
       {"join", {"numbers | join(', ')", "alike | join(short)", "items | join('', attribute='v')"}},
       {"last", {"s | last", "numbers | last"}},
       {"length", {"s | length", "numbers | length"}},
       {"list", {"s | list | length", "members | list | length"}},
       {"lower", {"s | lower"}},
       {"map",
        {"numbers | map('string') | list | length", "items | map(attribute='v') | sum",
         "alike | map('upper') | join"}},
       {"max", {"alike | max | length", "numbers | max", "[deep, deep, deep] | max | length"}},
       {"min", {"alike | min | length"}},
       {"reject", {"numbers | reject('odd') | list | length"}},
       {"rejectattr", {"items | rejectattr('v', 'eq', 1) | list | length"}},
       {"replace", {"s | replace('a', 'bc')", "s | replace(near, '')", "s | replace(short, '')"}},
       {"reverse", {"s | reverse", "numbers | reverse | list | length"}},
       {"round", {"1.5 | round(2)"}},
       {"safe", {"s | safe"}},
       {"select", {"numbers | select('odd') | list | length"}},
       {"selectattr", {"items | selectattr('v') | list | length"}},
       {"slice", {"numbers | slice(size // 16) | list | length"}},
       {"sort",
        {"numbers | sort | length", "alike | sort | length", "items | sort(attribute='v') | length",
         "s | sort | length"}},
       {"string", {"numbers | string | length", "s | string"}},
       {"sum", {"numbers | sum"}},
       {"title", {"words | title"}},
       {"tojson",
        {"numbers | tojson", "numbers | tojson(indent=40)", "deep | tojson(indent=60)",
         "members | tojson(sort_keys=true)", "s | tojson", "alike | tojson"}},
       {"trim", {"spaces | trim", "s | trim('a')", "s | trim(near)"}},
       {"truncate", {"s | truncate(10)", "s | truncate(size // 2)", "words | truncate(10, end=s)"}},
       {"unique",
        {"numbers | unique | list | length", "alike | unique | list | length",
         "pairs | map('first') | unique | list | length"}},
       {"upper", {"s | upper"}},
       {"wordcount", {"words | wordcount"}}});
}

TEST(StepCountingTest, Tests) {
  ExpectAll(TestNames(), {{"boolean", {"s is boolean"}},
                          {"callable", {"s is callable"}},
                          {"defined", {"s is defined"}},
                          {"divisibleby", {"size is divisibleby(3)"}},
                          {"eq", {"s is eq(other)", "numbers is eq(numbers + [])"}},
                          {"equalto", {"s is equalto(other)"}},
                          {"even", {"size is even", "s is even"}},
                          {"false", {"s is false"}},
                          {"filter", {"s is filter"}},
                          {"float", {"s is float"}},
                          {"ge", {"s is ge(other)"}},
                          {"greaterthan", {"s is greaterthan(other)"}},
                          {"gt", {"s is gt(other)"}},
                          {"in", {"near is in(s)", "s is in(alike)"}},
                          {"integer", {"s is integer"}},
                          {"iterable", {"s is iterable"}},
                          {"le", {"s is le(other)"}},
                          {"lessthan", {"s is lessthan(other)"}},
                          {"lower", {"s is lower"}},
                          {"lt", {"s is lt(other)", "deep is lt(deep)"}},
                          {"mapping", {"s is mapping"}},
                          {"ne", {"s is ne(other)"}},
                          {"none", {"s is none"}},
                          {"number", {"s is number"}},
                          {"odd", {"size is odd"}},
                          {"sameas", {"s is sameas(other)"}},
                          {"sequence", {"s is sequence"}},
                          {"string", {"s is string"}},
                          {"test", {"s is test"}},
                          {"true", {"s is true"}},
                          {"undefined", {"s is undefined"}},
                          {"upper", {"s is upper"}},
                          {"==", {"[s] | select('==', other) | list"}},
                          {"!=", {"[s] | select('!=', other) | list"}},
                          {"<", {"[s] | select('<', other) | list"}},
                          {"<=", {"[s] | select('<=', other) | list"}},
                          {">", {"[s] | select('>', other) | list"}},
                          {">=", {"[s] | select('>=', other) | list"}}});
}

TEST(StepCountingTest, OperatorsAndStatements) {
  for (const char* source :
       {"{{ near in s }}",
        "{{ short in s }}",
        "{{ near not in s }}",
        "{{ s in alike }}",
        "{{ size in numbers }}",
        "{{ s == other }}",
        "{{ s < other }}",
        "{{ s <= other }}",
        "{{ deep < deep }}",
        "{{ [deep, 1] < [deep, 2] }}",
        "{{ deep == deep }}",
        "{{ s + other }}",
        "{{ s ~ other ~ size }}",
        "{{ 'a' * size }}",
        "{{ ([1] * size) | length }}",
        "{{ numbers + numbers }}",
        "{{ s[1:size - 1] }}",
        "{{ s[::-1] }}",
        "{{ s[::2] }}",
        "{{ s[size // 2] }}",
        "{{ numbers[::-1] }}",
        "{{ '%s' % s }}",
        "{{ '%r' % (s,) }}",
        "{{ numbers }}",
        "{{ members }}",
        "{{ members[s] }}",
        "{{ members.get(s) }}",
        "{{ members.keys() | list }}",
        "{{ members.items() | list | length }}",
        "{{ numbers.index(size // 16 - 1) }}",
        "{{ numbers.count(1) }}",
        "{{ (s, 1) == (other, 1) }}",
        "{{ dict(pairs) | length }}",
        "{{ dict(members) | length }}",
        "{{ namespace(a=s).a }}",
        "{{ range(size // 2) | list | length }}",
        "{{ raise_exception(s) }}",
        "{% for x in s %}{{ loop.index }}{% endfor %}",
        "{% for x in numbers %}{% endfor %}",
        "{% for x in numbers if x is odd %}{{ loop.last }}{% endfor %}",
        "{% for x in numbers %}{{ loop.changed(x) }}{% endfor %}",
        "{% set x %}{{ s }}{% endset %}{{ x }}",
        "{% filter upper %}{{ s }}{% endfilter %}",
        "{% macro m(x) %}{{ x }}{% endmacro %}{{ m(s) }}",
        "{% set a, b = s, s %}{{ a }}",
        "{% set ns = namespace(d='') %}{% for x in alike %}{% set ns.d = x %}{% endfor %}"}) {
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
