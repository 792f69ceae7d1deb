#include "engine/text/template/json_value.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "engine/text/template/language/failure.h"

namespace annulus::jinja {
namespace {

// Builds values from the events of the parser, which itself needs no stack for nested values.
class Builder : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit Builder(Runtime& runtime) : runtime_(runtime) {}

  Value result() const { return result_; }

  bool null() override { return Add(Value::None()); }
  bool boolean(bool value) override { return Add(Value::Bool(value)); }
  bool number_integer(number_integer_t value) override { return Add(Value::Int(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > static_cast<uint64_t>(INT64_MAX)) Fail("JSON: an integer does not fit 64 bits");
    return Add(Value::Int(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (text.find_first_of(".eE") == std::string::npos) {
      Fail("JSON: an integer does not fit 64 bits");
    }
    return Add(Value::Float(value));
  }
  bool string(string_t& value) override {
    runtime_.StepCharacters(value.size());
    return Add(runtime_.String(std::string(value)));  // the parser goes on with its buffer
  }
  bool binary(binary_t&) override { Fail("JSON: binary data"); }

  bool start_object(std::size_t) override { return Open(/*is_dict=*/true); }
  bool key(string_t& value) override {
    open_.back().key = runtime_.String(std::string(value));
    return true;
  }
  bool end_object() override {
    Level level = Close();
    return Add(runtime_.Dict(std::move(level.dict)));
  }
  bool start_array(std::size_t) override { return Open(/*is_dict=*/false); }
  bool end_array() override {
    Level level = Close();
    return Add(runtime_.List(std::move(level.items)));
  }

  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception&) override {
    Fail("not JSON at byte ", position);
  }

 private:
  struct Level {
    bool is_dict = false;
    Value key;
    DictData dict;
    std::vector<Value> items;
  };

  bool Open(bool is_dict) {
    if (open_.size() >= kMaxValueDepth) Fail("JSON is nested more than ", kMaxValueDepth, " deep");
    open_.emplace_back().is_dict = is_dict;
    return true;
  }

  Level Close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return level;
  }

  bool Add(const Value& value) {
    runtime_.Step();
    if (open_.empty()) {
      result_ = value;
    } else if (open_.back().is_dict) {
      runtime_.SetMember(open_.back().dict, open_.back().key, value);
    } else {
      runtime_.Hold(Runtime::kHeldForElement);
      open_.back().items.push_back(value);
    }
    return true;
  }

  Runtime& runtime_;
  std::vector<Level> open_;
  Value result_;
};

// The parser keeps the bytes of a token both as written and unescaped; both buffers may grow by
// doubling.
constexpr size_t kHeldForToken = 6;

// At most as long as this: the longest stretch from one quote, or end of a text, to the next.
size_t LongestToken(absl::string_view json) {
  size_t longest = 0;
  size_t begin = 0;
  for (size_t i = 0; i < json.size(); ++i) {
    if (json[i] == '\\') {
      ++i;
    } else if (json[i] == '"') {
      longest = std::max(longest, i - begin);
      begin = i;
    }
  }
  return std::max(longest, json.size() - std::min(begin, json.size()));
}

}  // namespace

Value ParseJson(Runtime& runtime, absl::string_view json) {
  runtime.Hold(kHeldForToken * LongestToken(json));
  Builder builder(runtime);
  nlohmann::json::sax_parse(json.begin(), json.end(), &builder);
  return builder.result();
}

}  // namespace annulus::jinja
