#include "tests/engine/text/template/operations.h"

#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"

namespace annulus::testing {

std::string OperationVariables(size_t size) {
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

OperationLines StringMethodLines() {
  return {
      {"capitalize", {"s.capitalize()"}},
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
      {"rsplit", {"s.rsplit('a')", "words.rsplit()", "s.rsplit(behind)", "words.rsplit('\\n', 3)"}},
      {"rstrip", {"s.rstrip('a')", "s.rstrip(near)", "spaces.rstrip()"}},
      {"split", {"s.split('a')", "words.split()", "s.split(near)", "words.split(None, 2)"}},
      {"splitlines", {"words.splitlines()", "s.splitlines()"}},
      {"startswith", {"s.startswith(near)", "s.startswith((near, behind, s))"}},
      {"strip", {"s.strip('a')", "s.strip(near)", "spaces.strip()", "s.strip('xyza')"}},
      {"swapcase", {"s.swapcase()"}},
      {"title", {"words.title()"}},
      {"upper", {"s.upper()"}},
      {"zfill", {"digits.zfill(2 * size)"}}};
}

OperationLines FilterLines() {
  return {
      {"abs", {"size | abs"}},
      {"attr", {"members | attr(s)"}},
      {"batch", {"numbers | batch(3) | list | length", "numbers | batch(size, 0) | list | length"}},
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
      {"wordcount", {"words | wordcount"}}};
}

OperationLines TestLines() {
  return {{"boolean", {"s is boolean"}},
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
          {">=", {"[s] | select('>=', other) | list"}}};
}

std::vector<std::string> OperatorSources() {
  return {"{{ near in s }}",
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
          "{% set ns = namespace(d='') %}{% for x in alike %}{% set ns.d = x %}{% endfor %}"};
}

}  // namespace annulus::testing
