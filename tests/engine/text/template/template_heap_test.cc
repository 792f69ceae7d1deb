// What rendering takes of the heap, measured, against what it asked its MemoryGrant for.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/memory_grant.h"
#include "engine/text/template/chat_template.h"
#include "engine/text/template/json_value.h"
#include "engine/text/template/language/ast.h"
#include "engine/text/template/language/evaluator.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/lexer.h"
#include "engine/text/template/language/parser.h"
#include "engine/text/template/runtime.h"
#include "tests/engine/text/template/fixed_clock.h"
#include "tests/engine/text/template/operations.h"
#include "tests/support/counting_heap.h"

namespace annulus {
namespace {

constexpr size_t kSize = size_t{1} << 14;

// Allows so much and remembers what was asked for.
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

struct Rendered {
  absl::StatusOr<std::string> text;
  size_t taken = 0;
  size_t allowed = 0;
};

Rendered Measure(const std::string& source, const std::string& variables, size_t most) {
  const auto parsed = ChatTemplate::Parse(source, "chat.jinja");
  if (!parsed.ok()) return {parsed.status()};
  Grant grant(most);
  testing::TakeHeapBytesMost();
  const int64_t before = testing::HeapBytes();
  Rendered rendered{parsed->Render(variables, testing::FixedNow(),
                                   RenderLimits::ForInput(variables.size()), CancelFlag::Never(),
                                   grant)};
  rendered.taken = static_cast<size_t>(testing::TakeHeapBytesMost() - before);
  rendered.allowed = grant.allowed();
  return rendered;
}

// The same of the template alone, whose variables another rendering has read: what that asked for
// must not hide what this one does not ask for.
Rendered MeasureAlone(const std::string& source, const jinja::Value& variables,
                      const RenderLimits& limits) {
  jinja::Ast ast;
  jinja::Parser(jinja::Tokenize(source), ast).Parse();
  Grant grant(SIZE_MAX);
  testing::TakeHeapBytesMost();
  const int64_t before = testing::HeapBytes();
  Rendered rendered{absl::UnknownError("")};
  {
    jinja::Runtime runtime(limits, testing::FixedNow(), CancelFlag::Never(), grant);
    try {
      jinja::Evaluator evaluator(runtime, variables);
      rendered.text = evaluator.Render(ast);
    } catch (const jinja::Failure& failure) {
      rendered.text = absl::InvalidArgumentError(failure.message);
    }
  }
  rendered.taken = static_cast<size_t>(testing::TakeHeapBytesMost() - before);
  rendered.allowed = grant.allowed();
  return rendered;
}

void ExpectAllowed(const std::string& source, const std::string& variables) {
  Rendered rendered = Measure(source, variables, SIZE_MAX);
  EXPECT_LE(rendered.taken, rendered.allowed) << source << ": " << rendered.text.status();
  const RenderLimits limits = RenderLimits::ForInput(variables.size());
  jinja::Runtime owner(limits, testing::FixedNow(), CancelFlag::Never());
  rendered = MeasureAlone(source, jinja::ParseJson(owner, variables), limits);
  EXPECT_LE(rendered.taken, rendered.allowed) << source << ": " << rendered.text.status();
}

std::vector<std::string> AllExpressions() {
  std::vector<std::string> all;
  for (const auto& lines :
       {testing::StringMethodLines(), testing::FilterLines(), testing::TestLines()}) {
    for (const auto& [name, expressions] : lines) {
      all.insert(all.end(), expressions.begin(), expressions.end());
    }
  }
  return all;
}

TEST(TemplateHeapTest, NoOperationTakesMoreThanItAskedFor) {
  const std::string variables = testing::OperationVariables(kSize);
  for (const std::string& expression : AllExpressions()) {
    ExpectAllowed(absl::StrCat("{{ ", expression, " }}"), variables);
  }
  for (const std::string& source : testing::OperatorSources()) ExpectAllowed(source, variables);
}

// What templates can be made of to take much with little.
TEST(TemplateHeapTest, HostileTemplatesTakeNoMoreThanTheyAskedFor) {
  const std::string growing = "{% set ns = namespace(s='a') %}{% for i in range(30) %}";
  for (const std::string& source : std::vector<std::string>{
           growing + "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           growing + "{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
           growing + "{% set ns.s = [ns.s, ns.s] %}{% endfor %}{{ ns.s }}",
           growing + "{% set ns.s = ns.s * 2 %}{% endfor %}{{ ns.s | list | tojson(indent=60) }}",
           "{% for i in range(50000) %}{% set x = i %}{% set y = [i] %}{% endfor %}",
           "{% for i in range(50000) if i %}{{ loop.length }}{% break %}{% endfor %}",
           "{% macro m(a, b=1) %}{{ a }}{% endmacro %}{% for i in range(20000) %}{{ m(i) }}{% "
           "endfor %}",
           "{{ range(100000) | list }}{{ range(100000) | map('string') | join }}",
           "{{ '\\x01' * 0 }}{{ (control * 3) | tojson }}{{ [control] }}",
           "{{ [quotes, quotes] | string | e }}{{ quotes | urlize }}",
           "{{ quotes | e | e }}",
           "{{ ('a,' * 50000) | sort(attribute='a,' * 5000) }}",
           "{{ numbers | sort(attribute='a.' * 5000) }}",
           "{{ dict(range(50000) | batch(2)) | tojson(sort_keys=true) }}",
           "{{ ' '.join(s | list).split() | unique | list | length }}",
           "{{ s.strip(wide) }}{{ wide | trim(wide) }}{{ wide.rsplit('b') }}",
           "{{ range(50000) | slice(40000, 1) | list | length }}",
           "{{ '{}' * 20000 }}{{ ('{0}' * 20000).format(near) }}",
           "{% set q %}{% for c in s %}{{ c }}{% endfor %}{% endset %}{{ q | upper | title }}",
           "{% macro m() %}{{ m(*numbers) }}{% endmacro %}{{ m(*numbers) }}"}) {
    const std::string variables = testing::OperationVariables(1 << 13);
    const std::string more = absl::StrCat(
        variables.substr(0, variables.size() - 1), R"(,"control":")",
        [] {
          std::string text;
          for (int i = 0; i < 20'000; ++i) text += "\\u0001";
          return text;
        }(),
        R"(","quotes":")", std::string(50'000, '\''), R"(","wide":")",
        [] {
          std::string text;
          for (int i = 0; i < 5'000; ++i) {
            text += static_cast<char>(0xc4 + i / 64 % 20);
            text += static_cast<char>(0x80 + i % 64);
          }
          return text;
        }(),
        "\"}");
    ExpectAllowed(source, more);
  }
}

TEST(TemplateHeapTest, RandomCombinationsTakeNoMoreThanTheyAskedFor) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE(seed);
  std::mt19937_64 random(seed);
  const std::string variables = testing::OperationVariables(1 << 13);
  std::vector<std::string> tails;
  for (const auto& [name, expressions] : testing::FilterLines()) {
    for (const std::string& expression : expressions) {
      const size_t bar = expression.find(" | ");
      if (bar != std::string::npos) tails.push_back(expression.substr(bar));
    }
  }
  const std::vector<std::string> all = AllExpressions();
  const auto any = [&](const std::vector<std::string>& of) { return of[random() % of.size()]; };
  for (int i = 0; i < 300 && !::testing::Test::HasFailure(); ++i) {
    const std::string first = absl::StrCat("(", any(all), ")", any(tails), any(tails));
    std::string source = absl::StrCat("{{ ", first, " }}");
    if (i % 4 == 1)
      source = absl::StrCat("{% for x in ", any(all), " %}{{ x }}", source, "{% endfor %}");
    if (i % 4 == 2)
      source = absl::StrCat("{% set y = [", any(all), ", ", first, "] %}{{ y }}{{ y | tojson }}");
    if (i % 4 == 3)
      source = absl::StrCat("{{ (", any(all), ") ~ ", first, " ~ (", any(all), ") }}");
    ExpectAllowed(source, variables);
  }
}

TEST(TemplateHeapTest, VariablesTakeNoMoreThanTheyAskFor) {
  std::string members = "{\"a\":1";
  for (int i = 0; i < 40'000; ++i) absl::StrAppend(&members, ",\"", i, "\":", i);
  std::string lists = "{\"a\":[1";
  for (int i = 0; i < 40'000; ++i) absl::StrAppend(&lists, ",[", i, "]");
  const std::string text = absl::StrCat("{\"a\":\"", std::string(1 << 20, 'x'), "\"");
  for (const std::string& variables : {members + "}", lists + "]}", text + "}"}) {
    ExpectAllowed("{{ a }}", variables);
  }
  EXPECT_LE(Measure("{{ a }}", text + "}", SIZE_MAX).allowed, 14u << 20);
}

// What is refused is refused with the grant's own status, and before it is taken.
TEST(TemplateHeapTest, ARefusalEndsTheRenderingAsItIs) {
  const std::string variables = testing::OperationVariables(kSize);
  for (const size_t most : {size_t{1}, size_t{1} << 18, size_t{1} << 21, size_t{1} << 24}) {
    const Rendered rendered = Measure(
        "{% set ns = namespace(s=s) %}{% for i in range(30) %}"
        "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
        variables, most);
    EXPECT_EQ(rendered.text.status(), absl::ResourceExhaustedError("no more")) << most;
    EXPECT_LE(rendered.taken, most + (size_t{1} << 14)) << most;
  }
}

}  // namespace
}  // namespace annulus
