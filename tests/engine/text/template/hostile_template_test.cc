// Templates that loop for ever, recurse, grow or look for a way out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <pthread.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>

#include "absl/strings/str_cat.h"
#include "engine/text/template/chat_template.h"
#include "kernels/base/sanitizers.h"
#include "tests/engine/text/template/fixed_clock.h"

namespace annulus {
namespace {

using ::testing::HasSubstr;

absl::StatusOr<std::string> RenderText(const std::string& source,
                                       const std::string& variables = "{}",
                                       const RenderLimits& limits = RenderLimits()) {
  const absl::StatusOr<ChatTemplate> parsed = ChatTemplate::Parse(source, "chat.jinja");
  if (!parsed.ok()) return parsed.status();
  return parsed->Render(variables, testing::FixedNow(), limits);
}

std::string Repeat(const std::string& text, int times) {
  std::string result;
  for (int i = 0; i < times; ++i) result += text;
  return result;
}

void ExpectRefused(const std::string& source, const std::string& words,
                   const RenderLimits& limits = RenderLimits()) {
  const auto begin = std::chrono::steady_clock::now();
  const auto text = RenderText(source, "{}", limits);
  ASSERT_FALSE(text.ok()) << source.substr(0, 200);
  EXPECT_EQ(text.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(text.status().message()), HasSubstr(words)) << source.substr(0, 200);
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

// The address sanitizer's frames are several times as large as the program's.
constexpr size_t kSmallStack = kAddressSanitizer ? size_t{2} << 20 : size_t{256} << 10;

// Runs `work` on a thread with little stack.
void OnSmallStack(std::function<void()> work) {
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstacksize(&attributes, kSmallStack), 0);
  pthread_t thread;
  const auto run = [](void* argument) -> void* {
    (*static_cast<std::function<void()>*>(argument))();
    return nullptr;
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, run, &work), 0);
  pthread_join(thread, nullptr);
  pthread_attr_destroy(&attributes);
}

TEST(HostileTemplateTest, EndlessWorkEndsAtTheLimitOfSteps) {
  RenderLimits limits;
  limits.steps = 100'000;
  const std::string words = "chat.jinja:2: the template takes more than 100000 steps";
  ExpectRefused(
      "{% for a in range(99999) %}{% for b in range(99999) %}\n{% set x = a + b %}"
      "{% endfor %}{% endfor %}",
      words, limits);
  ExpectRefused("\n{{ ('a' * 999999).count('b') + ('a' * 9999999).count('b') }}", words, limits);
  ExpectRefused(
      absl::StrCat("{% set s = 'a' * 1000000 %}\n{{ ", Repeat("s | length + ", 50), "0 }}"), words,
      limits);
}

TEST(HostileTemplateTest, AnotherThreadEndsARendering) {
  const auto parsed = ChatTemplate::Parse(
      "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
      "chat.jinja");
  ASSERT_TRUE(parsed.ok());
  RenderLimits limits;
  limits.steps = INT64_MAX / 2;
  limits.value_bytes = size_t{1} << 40;
  CancelFlag cancel;
  std::thread canceller([&] { cancel.Cancel(); });
  const auto text = parsed->Render("{}", testing::FixedNow(), limits, cancel);
  canceller.join();
  EXPECT_EQ(text.status().code(), absl::StatusCode::kCancelled) << text.status();
}

TEST(HostileTemplateTest, RecursionIsBounded) {
  const std::string words = "inside each other";
  ExpectRefused("{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", words);
  ExpectRefused("{% macro m(x) %}{% if x %}{{ m(x + 1) ~ 'a' }}{% endif %}{% endmacro %}{{ m(1) }}",
                words);
  ExpectRefused("{% macro a(x=b()) %}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ b() }}",
                words);
  ExpectRefused(absl::StrCat("{{ ", Repeat("(", 5000), "1", Repeat(")", 5000), " }}"), words);
  ExpectRefused(absl::StrCat("{{ ", Repeat("[", 5000), Repeat("]", 5000), " }}"), words);
  ExpectRefused(absl::StrCat("{{ ", Repeat("-", 5000), "1 }}"), words);
  ExpectRefused(absl::StrCat("{{ ", Repeat("not ", 5000), "1 }}"), words);
  ExpectRefused(absl::StrCat("{{ 1", Repeat(" + 1", 5000), " }}"), words);
  ExpectRefused(absl::StrCat("{{ a", Repeat(".a", 5000), " }}"), words);
  ExpectRefused(absl::StrCat("{{ a", Repeat("|list", 5000), " }}"), words);
  ExpectRefused(absl::StrCat("{{ ", Repeat("1 if 1 else ", 5000), "1 }}"), words);
  ExpectRefused(absl::StrCat(Repeat("{% if 1 %}", 5000), Repeat("{% endif %}", 5000)), words);
  ExpectRefused(absl::StrCat("{% set ", Repeat("(", 5000), "a", Repeat(")", 5000), " = 1 %}"),
                words);
}

TEST(HostileTemplateTest, LongChainsNeedNoDepth) {
  const std::string elifs =
      absl::StrCat("{% if 0 %}", Repeat("{% elif 0 %}", 5000), "{% else %}last{% endif %}");
  EXPECT_EQ(*RenderText(elifs), "last");
  EXPECT_EQ(RenderText(absl::StrCat("{{ 'a'", Repeat(" ~ 'a'", 5000), " }}"))->size(), 5001u);
}

TEST(HostileTemplateTest, DeepestAllowedNestingFitsASmallStack) {
  OnSmallStack([] {
    for (int depth = 1; depth <= 64; ++depth) {
      const std::string ifs = Repeat("{% if 1 %}", depth);
      const std::string ends = Repeat("{% endif %}", depth);
      const std::string open = Repeat("(", depth);
      const std::string close = Repeat(")", depth);
      RenderText(absl::StrCat(ifs, "x", ends)).IgnoreError();
      RenderText(absl::StrCat("{{ ", open, "1", close, " }}")).IgnoreError();
      RenderText(absl::StrCat(ifs, "{{ [", open, "1", close, "] }}", ends)).IgnoreError();
      RenderText(absl::StrCat("{% macro m(x) %}", ifs, "{{ m(", open, "x", close, ") }}", ends,
                              "{% endmacro %}{{ m(1) }}"))
          .IgnoreError();
    }
    RenderText(
        "{% macro m(x) %}{% for y in [1] %}{{ m(*[x | default(1) ~ 'a' if x else {1: [x]}]) }}"
        "{% endfor %}{% endmacro %}{% set q %}{{ m(1) }}{% endset %}")
        .IgnoreError();
    const std::string nested = absl::StrCat(Repeat("[", 99), Repeat("]", 99));
    const auto text = RenderText("{{ x | tojson }}{{ x }}{{ x == x[0] }}{{ x < x[0] }}",
                                 absl::StrCat("{\"x\": ", nested, "}"));
    ASSERT_TRUE(text.ok()) << text.status();
    EXPECT_THAT(*text, HasSubstr(nested));
    RenderText(absl::StrCat("{{ [1] | map(", Repeat("'map', ", 500), "'list') | list }}"))
        .IgnoreError();
  });
}

TEST(HostileTemplateTest, ValuesAreBounded) {
  const std::string words = "bytes";
  ExpectRefused("{{ 'abcdefgh' * 99999999999 }}", words);
  ExpectRefused("{{ [1, 2] * 99999999999 }}", words);
  ExpectRefused(
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s * 2 %}"
      "{% endfor %}",
      words);
  ExpectRefused(
      "{% set ns = namespace(s='a') %}{% for i in range(99) %}{% set ns.s = ns.s ~ ns.s "
      "%}{% endfor %}",
      words);
  ExpectRefused(
      "{% set ns = namespace(s='a') %}{% for i in range(9999) %}"
      "{% set ns.s = ns.s.replace('a', 'aa') %}{% endfor %}",
      "more than");
  ExpectRefused(
      "{% set ns = namespace(s=[1]) %}{% for i in range(99) %}{% set ns.s = ns.s + ns.s "
      "%}{% endfor %}",
      words);
  // A value that contains itself twice, sixty times over, is small in memory and huge as text.
  const std::string doubling =
      "{% set ns = namespace(s='ab') %}{% for i in range(60) %}{% set ns.s = [ns.s, ns.s] %}"
      "{% endfor %}";
  ExpectRefused(absl::StrCat(doubling, "{{ ns.s }}"), words);
  ExpectRefused(absl::StrCat(doubling, "{{ ns.s | tojson }}"), words);
  ExpectRefused("{{ 'a'.center(99999999999) }}", words);
  ExpectRefused("{{ 'a'.zfill(99999999999) }}", words);
  ExpectRefused("{{ 'a\nb' | indent(99999999999) }}", words);
  ExpectRefused("{{ [1] | batch(99999999999, 0) | list }}", words);
  ExpectRefused("{{ ('x' * 100000).replace('', 'y' * 100000) }}", words);
  ExpectRefused("{{ ('y' * 10000).join('x' * 10000) }}", words);
  ExpectRefused("{{ ('{0:>1000}' * 99999).format(1) }}", words);
  ExpectRefused("{{ ('%(a)1000s' * 99999) % {'a': 1} }}", words);
  ExpectRefused(
      "{% for i in range(99999) %}{% for j in range(999) %}0123456789{% endfor %}"
      "{% endfor %}",
      words);
}

TEST(HostileTemplateTest, NumbersThatFormatsAndRangesTakeAreBounded) {
  ExpectRefused("{{ '{:99999999999}'.format(1) }}", "above 1000");
  ExpectRefused("{{ '%99999999999d' % 1 }}", "above 1000");
  ExpectRefused("{{ range(100001) }}", "at most 100000");
  ExpectRefused("{{ range(9223372036854775807) }}", "at most 100000");
  ExpectRefused("{{ [1] | tojson(indent=100) }}", "above 64");
  ExpectRefused(
      "{% set ns = namespace(s=[]) %}{% for i in range(200) %}{% set ns.s = [ns.s] %}"
      "{% endfor %}",
      "deep inside each other");
}

TEST(HostileTemplateTest, IntegersBeyond64BitsFail) {
  for (const char* expression :
       {"9223372036854775807 + 1", "-9223372036854775807 - 2", "9223372036854775807 * 2", "2 ** 63",
        "-(-9223372036854775807 - 1)", "(-9223372036854775807 - 1) // -1",
        "(-9223372036854775807 - 1) | abs", "9223372036854775808", "'9223372036854775808' | int",
        "1e300 | int", "'%d' % 1e300"}) {
    ExpectRefused(absl::StrCat("{{ ", expression, " }}"), "64 bits");
  }
  EXPECT_EQ(*RenderText("{{ (-9223372036854775807 - 1) % -1 }}"), "0");
  EXPECT_FALSE(RenderText("{{ x }}", R"({"x": 18446744073709551616})").ok());
}

TEST(HostileTemplateTest, NothingLeadsOutOfTheValues) {
  const std::string variables = R"({"s": "x", "d": {}, "l": []})";
  for (const char* expression :
       {"s.__class__.__mro__", "''.__class__.__base__.__subclasses__()", "d.__init__.__globals__",
        "l.__len__()", "s.format.__self__.__class__", "range.__globals__.x", "namespace.__init__.x",
        "cycler.__init__.__globals__", "self.__init__", "d.pop('x')", "l.append(1)",
        "d.setdefault('x', 1)", "d.update(a=1)", "('{0.__class__.__mro__}').format(s)",
        "'{a.__init__.__globals__}'.format(a=range)", "config.items()", "request.environ",
        "dict.fromkeys('ab').pop('a')"}) {
    const auto text = RenderText(absl::StrCat("{{ ", expression, " }}"), variables);
    EXPECT_FALSE(text.ok()) << expression << " gives " << *text;
  }
  for (const char* tag : {"include 'etc/passwd'", "import 'os' as os", "from 'a' import b",
                          "extends 'base'", "block a", "do l.append(1)", "autoescape true"}) {
    const auto text = RenderText(absl::StrCat("{% ", tag, " %}"), variables);
    ASSERT_FALSE(text.ok()) << tag;
    EXPECT_THAT(std::string(text.status().message()), HasSubstr("is not supported")) << tag;
  }
}

TEST(HostileTemplateTest, ErrorsNameFileAndLine) {
  const auto starts = [](const std::string& source) {
    return std::string(RenderText(source, R"({"m": [1]})").status().message());
  };
  EXPECT_EQ(starts("a\nb\n{{ nope.x }}"), "chat.jinja:3: 'nope' is undefined");
  EXPECT_EQ(starts("{%- if 1 -%}\n\n{{ raise_exception('Roles!') }}{% endif %}"),
            "chat.jinja:3: the template refuses these messages: Roles!");
  EXPECT_EQ(starts("\n\n{% for x in m %}"),
            "chat.jinja:3: the template ends where 'endfor' or 'else' is expected");
  EXPECT_THAT(starts("{{ 1 | shout }}"), HasSubstr("chat.jinja:1: the filter 'shout' is not "
                                                   "supported; supported are abs"));
  EXPECT_THAT(starts("{{ m\n[ }}"), HasSubstr("chat.jinja:2: unexpected '}'"));
  EXPECT_THAT(starts(std::string("\xff")), HasSubstr("byte 0 is not UTF-8"));
  EXPECT_THAT(starts(std::string(kMaxTemplateBytes + 1, 'x')), HasSubstr("at most 1048576"));
}

// Templates name what other programs have, in branches for them.
TEST(HostileTemplateTest, UnknownFiltersAndTestsFailWhereTheyAreReached) {
  EXPECT_EQ(*RenderText("{% if false %}{{ 1 | shout }}{{ 1 is loud }}{% endif %}x"), "x");
  EXPECT_EQ(*RenderText("{{ 'y' if true else 1 | shout }}"), "y");
  ExpectRefused("{% if true %}\n{{ 1 is loud }}{% endif %}",
                "chat.jinja:2: the test 'loud' is not supported; supported are boolean");
  ExpectRefused("{% filter shout %}a{% endfilter %}", "the filter 'shout' is not supported");
  ExpectRefused("{{ [1] | map('shout') | list }}", "the filter 'shout' is not supported");
}

TEST(HostileTemplateTest, MessagesOfTemplatesAreShort) {
  const auto text = RenderText("{{ raise_exception('a' * 1000000) }}");
  EXPECT_LT(text.status().message().size(), 4096u);
}

TEST(HostileTemplateTest, VariablesMustBeAnObject) {
  for (const char* json : {"", "[]", "1", "{", "{\"a\": }", "nonsense", "{} {}",
                           "{\"a\": \"\xff\"}", "{\"a\": \"\\ud800\"}"}) {
    EXPECT_FALSE(RenderText("x", json).ok()) << json;
  }
  const std::string deep = absl::StrCat("{\"x\": ", Repeat("[", 100000));
  EXPECT_THAT(std::string(RenderText("x", deep).status().message()),
              HasSubstr("nested more than 100"));
  EXPECT_EQ(*RenderText("{{ a }}", R"({"a": 1, "a": 2})"), "2");
}

}  // namespace
}  // namespace annulus
