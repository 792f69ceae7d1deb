#include "engine/base/json_parser.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kLongestQuote = 80;
constexpr int kNumberOverflow = 406;  // the parser's exception id

// A number that JSON has no word for.
struct PythonNumber {
  absl::string_view word;
  absl::string_view mark;  // the string that stands for it while the text is parsed
  double value;
};
constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr std::array<PythonNumber, 3> kPythonNumbers = {{
    {"NaN", {"\0NaN", 4}, std::numeric_limits<double>::quiet_NaN()},
    {"Infinity", {"\0Infinity", 9}, kInfinity},
    {"-Infinity", {"\0-Infinity", 10}, -kInfinity},
}};

const PythonNumber* OfMark(absl::string_view text) {
  for (const PythonNumber& number : kPythonNumbers) {
    if (number.mark == text) return &number;
  }
  return nullptr;
}

// Puts marks for Python's numbers outside of strings. A word in any other place than a value's
// leaves a text that is no JSON.
std::string MarkPythonNumbers(absl::string_view text) {
  std::string marked;
  bool in_string = false;
  while (!text.empty()) {
    const auto number =
        std::find_if(kPythonNumbers.begin(), kPythonNumbers.end(),
                     [&](const PythonNumber& one) { return absl::StartsWith(text, one.word); });
    if (!in_string && number != kPythonNumbers.end()) {
      absl::StrAppend(&marked, "\"\\u0000", number->word, "\"");
      text.remove_prefix(number->word.size());
      continue;
    }
    if (text.front() == '"') in_string = !in_string;
    const size_t taken = in_string && text.front() == '\\' ? 2 : 1;
    absl::StrAppend(&marked, text.substr(0, taken));
    text.remove_prefix(std::min(taken, text.size()));
  }
  return marked;
}

// Builds the tree. The containers from the root to the one being filled are open; elements of a
// container do not move while a deeper one is open.
class TreeBuilder final : public JsonHandler {
 public:
  explicit TreeBuilder(JsonNumbers numbers) : numbers_(numbers) {}

  nlohmann::json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override {
    const PythonNumber* const number = numbers_ == JsonNumbers::kPython ? OfMark(value) : nullptr;
    return number != nullptr ? Add(number->value) : Add(std::move(value));
  }
  bool start_object(size_t) override { return Descend(nlohmann::json::object()); }
  bool start_array(size_t) override { return Descend(nlohmann::json::array()); }
  bool end_object() override { return Ascend(); }
  bool end_array() override { return Ascend(); }

  bool key(std::string& name) override {
    if (numbers_ == JsonNumbers::kPython && OfMark(name) != nullptr) {
      return Fail("has a number for a key; allowed: strings");
    }
    Open& object = open_.back();
    const auto [member, inserted] = object.container->emplace(name, nullptr);
    object.key = &member.key();
    object.member = &*member;
    return inserted || Fail("is given twice");
  }

 protected:
  std::string Where() const override {
    std::string path;
    for (const Open& open : open_) {
      if (open.key == nullptr) continue;
      absl::StrAppend(&path, path.empty() ? "" : ".", QuoteForMessage(*open.key));
    }
    return path;
  }

 private:
  struct Open {
    nlohmann::json* container;
    const std::string* key = nullptr;  // of an object: the one now being read, and its place
    nlohmann::json* member = nullptr;
  };

  // Null: too many values.
  nlohmann::json* Place(nlohmann::json value) {
    if (++values_ > kMaxJsonValues) {
      Fail(absl::StrCat("comes after ", kMaxJsonValues, " values; no more are allowed"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    const Open& open = open_.back();
    if (open.member == nullptr) return &open.container->emplace_back(std::move(value));
    *open.member = std::move(value);
    return open.member;
  }

  bool Add(nlohmann::json value) { return Place(std::move(value)) != nullptr; }

  bool Descend(nlohmann::json container) {
    if (open_.size() == kMaxJsonDepth) {
      return Fail(absl::StrCat("is nested more than ", kMaxJsonDepth, " levels deep"));
    }
    nlohmann::json* const place = Place(std::move(container));
    if (place == nullptr) return false;
    open_.push_back({place});
    return true;
  }

  bool Ascend() {
    open_.pop_back();
    return true;
  }

  const JsonNumbers numbers_;
  nlohmann::json root_;
  std::vector<Open> open_;
  size_t values_ = 0;
};

// Appends the text of `value`; stops once it is longer than a message shows.
void AppendCut(const nlohmann::json& value, std::string* text) {
  if (value.is_string()) {
    // A character that was cut is shown as the replacement character.
    absl::StrAppend(text,
                    nlohmann::json(value.get_ref<const std::string&>().substr(0, kLongestQuote))
                        .dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    return;
  }
  if (value.is_number_float() && !std::isfinite(value.get<double>())) {
    const double number = value.get<double>();
    absl::StrAppend(text, std::isnan(number) ? "NaN" : number > 0 ? "Infinity" : "-Infinity");
    return;
  }
  if (!value.is_structured()) {
    absl::StrAppend(text, value.dump());
    return;
  }
  text->push_back(value.is_object() ? '{' : '[');
  const size_t begin = text->size();
  for (const auto& [key, element] : value.items()) {
    if (text->size() > kLongestQuote) return;
    if (text->size() > begin) text->push_back(',');
    if (value.is_object()) {
      AppendCut(key, text);
      text->push_back(':');
    }
    AppendCut(element, text);
  }
  text->push_back(value.is_object() ? '}' : ']');
}

}  // namespace

std::string QuoteForMessage(absl::string_view text) {
  const std::string cut = absl::Utf8SafeCHexEscape(text.substr(0, kLongestQuote));
  return text.size() <= kLongestQuote ? cut : absl::StrCat(cut, "...");
}

std::string QuoteJson(const nlohmann::json& value) {
  std::string text;
  AppendCut(value, &text);
  if (text.size() > kLongestQuote) text.replace(kLongestQuote, std::string::npos, "...");
  return text;
}

std::string DescribeJson(absl::string_view file_name, absl::string_view place,
                         const nlohmann::json* value, absl::string_view allowed) {
  return absl::StrCat(file_name, ": ", place, place.empty() ? "" : " ", "is ",
                      value == nullptr ? "missing" : QuoteJson(*value), "; allowed: ", allowed);
}

bool JsonHandler::Fail(absl::string_view reason) {
  if (status_.ok()) {
    const std::string where = Where();
    status_ = absl::InvalidArgumentError(absl::StrCat(where, where.empty() ? "" : " ", reason));
  }
  return false;
}

bool JsonHandler::parse_error(size_t position, const std::string& last_token,
                              const nlohmann::json::exception& error) {
  if (error.id == kNumberOverflow) {
    return Fail(absl::StrCat("is ", QuoteForMessage(last_token),
                             "; allowed: numbers within the range of a double"));
  }
  return Fail(absl::StrCat("is not valid JSON at byte ", position, ", after \"",
                           QuoteForMessage(last_token), "\""));
}

absl::Status ParseJson(absl::string_view text, absl::string_view file_name, JsonHandler& handler) {
  const size_t nul = text.find('\0');
  if (nul != absl::string_view::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": not valid JSON: a NUL byte at ", nul));
  }
  if (absl::StartsWith(text, "\xEF\xBB\xBF")) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name, ": not valid JSON: begins with a byte order mark"));
  }
  if (nlohmann::json::sax_parse(text.begin(), text.end(), &handler)) return absl::OkStatus();
  return absl::Status(handler.status().code(),
                      absl::StrCat(file_name, ": ", handler.status().message()));
}

absl::StatusOr<nlohmann::json> ParseJsonTree(absl::string_view text, absl::string_view file_name,
                                             JsonNumbers numbers) {
  TreeBuilder builder(numbers);
  const std::string marked =
      numbers == JsonNumbers::kPython ? MarkPythonNumbers(text) : std::string();
  ANNULUS_RETURN_IF_ERROR(
      ParseJson(numbers == JsonNumbers::kPython ? marked : text, file_name, builder));
  return builder.Take();
}

}  // namespace annulus
