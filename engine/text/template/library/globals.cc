#include "engine/text/template/library/globals.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/operators.h"
#include "engine/text/template/library/filters.h"
#include "engine/text/template/library/format_value.h"

namespace annulus::jinja {
namespace {

Value Range(Runtime& runtime, const Value&, Arguments& arguments) {
  const std::vector<Value>& given = arguments.positional;
  if (given.empty() || given.size() > 3 || !arguments.keywords.empty()) {
    Fail("range takes one to three integers");
  }
  const int64_t begin = given.size() == 1 ? 0 : RequireInt(given[0], "range's start");
  const int64_t end = RequireInt(given[given.size() == 1 ? 0 : 1], "range's end");
  const int64_t step = given.size() == 3 ? RequireInt(given[2], "range's step") : 1;
  if (step == 0) Fail("range's step must not be zero");
  const int64_t limit = runtime.limits().range_length;
  std::vector<Value> items;
  for (int64_t i = begin; step > 0 ? i < end : i > end;) {
    if (static_cast<int64_t>(items.size()) == limit) {
      Fail("range is too big: at most ", limit, " items are allowed");
    }
    runtime.Hold(Runtime::kHeldForElement);
    items.push_back(Value::Int(i));
    if (__builtin_add_overflow(i, step, &i)) break;
  }
  return runtime.List(std::move(items), ListKind::kRange);
}

// dict(mapping or pairs, key=value, ..).
DictData MakeDict(Runtime& runtime, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    Fail(arguments.callee, " takes at most one positional argument");
  }
  DictData dict;
  if (!arguments.positional.empty() && arguments.positional[0].is(Kind::kDict)) {
    runtime.Step(sizeof(Value) * arguments.positional[0].dict().items.size());
    runtime.Hold(Runtime::kHeldForMember * arguments.positional[0].dict().items.size());
    dict = arguments.positional[0].dict();
  } else if (!arguments.positional.empty()) {
    for (const Value& item : runtime.Items(arguments.positional[0])) {
      const std::vector<Value> pair = runtime.Items(item);
      if (pair.size() != 2) Fail(arguments.callee, " needs pairs of a key and a value");
      CheckHashable(pair[0]);
      runtime.Step(WeightOf(pair[0]));
      runtime.SetMember(dict, pair[0], pair[1]);
    }
  }
  for (const auto& [name, value] : arguments.keywords) {
    runtime.SetMember(dict, runtime.String(std::string(name)), value);
  }
  return dict;
}

Value Dict(Runtime& runtime, const Value&, Arguments& arguments) {
  return runtime.Dict(MakeDict(runtime, arguments));
}

Value Namespace(Runtime& runtime, const Value&, Arguments& arguments) {
  const Value ns = runtime.Namespace();
  for (const auto& [name, value] : MakeDict(runtime, arguments).items) {
    SetAttribute(runtime, ns.ns(), RequireText(name, "the name of an attribute"), value);
  }
  return ns;
}

Value RaiseException(Runtime& runtime, const Value&, Arguments& arguments) {
  const Value& message = arguments.Require("message");
  arguments.Finish();
  Fail("the template refuses these messages: ", Str(runtime, message));
}

Value FormatNow(Runtime& runtime, const Value&, Arguments& arguments) {
  const std::string& format = RequireText(arguments.Require("format"), "the format");
  arguments.Finish();
  constexpr size_t kLongest = 1000;
  if (format.size() > kLongest) Fail("the format of strftime_now has more than 1000 bytes");
  runtime.Step(64 * kLongest);
  // One more character tells an empty result from one that does not fit.
  const std::string closed = absl::StrCat(format, ".");
  std::string text(64 * kLongest, '\0');
  const size_t size = std::strftime(text.data(), text.size(), closed.c_str(), &runtime.now());
  if (size == 0) Fail("the format of strftime_now gives too long a text");
  text.resize(size - 1);
  return runtime.String(std::move(text));
}

constexpr NamedBuiltin kGlobals[] = {
    {"dict", Dict},   {"namespace", Namespace},    {"raise_exception", RaiseException},
    {"range", Range}, {"strftime_now", FormatNow},
};

}  // namespace

Builtin FindGlobal(absl::string_view name) { return FindBuiltin(kGlobals, name); }

void SetAttribute(Runtime& runtime, NamespaceData& ns, absl::string_view name, const Value& value) {
  if (absl::StartsWith(name, "_")) {
    Fail("a namespace cannot have the attribute '", name, "': it begins with an underscore");
  }
  runtime.Charge(name.size() + 2 * sizeof(Value));
  runtime.Step(name.size());
  runtime.SetMember(ns.attributes, runtime.String(std::string(name)), value);
}

}  // namespace annulus::jinja
