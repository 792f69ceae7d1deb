#include "engine/base/json_parser.h"

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

// Builds the tree. The containers from the root to the one being filled are open; elements of a
// container do not move while a deeper one is open.
class TreeBuilder final : public JsonHandler {
 public:
  nlohmann::json Take() { return std::move(root_); }

  bool null() override { return Add(nullptr); }
  bool boolean(bool value) override { return Add(value); }
  bool number_integer(int64_t value) override { return Add(value); }
  bool number_unsigned(uint64_t value) override { return Add(value); }
  bool number_float(double value, const std::string&) override { return Add(value); }
  bool string(std::string& value) override { return Add(std::move(value)); }
  bool start_object(size_t) override { return Descend(nlohmann::json::object()); }
  bool start_array(size_t) override { return Descend(nlohmann::json::array()); }
  bool end_object() override { return Ascend(); }
  bool end_array() override { return Ascend(); }

  bool key(std::string& name) override {
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
      Fail(absl::StrCat("comes after ", kMaxJsonValues, " values; allowed: at most so many"));
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

absl::StatusOr<nlohmann::json> ParseJsonTree(absl::string_view text, absl::string_view file_name) {
  TreeBuilder builder;
  ANNULUS_RETURN_IF_ERROR(ParseJson(text, file_name, builder));
  return builder.Take();
}

}  // namespace annulus
