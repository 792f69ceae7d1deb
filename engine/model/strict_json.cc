#include "engine/model/strict_json.h"

#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kLongestQuote = 80;
constexpr size_t kDeepestNesting = 32;
constexpr int kNumberOverflow = 406;  // the parser's exception id

// Builds the tree. `open_` holds the containers from the root to the one being filled; elements of
// a container do not move while a deeper one is open.
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
    keys_.back() = name;
    if (open_.back()->contains(name)) return Fail("is given twice");
    return true;
  }

 protected:
  std::string Where() const override {
    std::string path;
    for (const std::string& key : keys_) {
      if (!key.empty()) absl::StrAppend(&path, path.empty() ? "" : ".", QuoteForMessage(key));
    }
    return path;
  }

 private:
  nlohmann::json* Place(nlohmann::json value) {
    if (open_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    nlohmann::json& parent = *open_.back();
    if (parent.is_array()) return &parent.emplace_back(std::move(value));
    return &(parent[keys_.back()] = std::move(value));
  }

  bool Add(nlohmann::json value) {
    Place(std::move(value));
    return true;
  }

  bool Descend(nlohmann::json container) {
    if (open_.size() == kDeepestNesting) {
      return Fail(absl::StrCat("is nested more than ", kDeepestNesting, " levels deep"));
    }
    open_.push_back(Place(std::move(container)));
    keys_.emplace_back();
    return true;
  }

  bool Ascend() {
    open_.pop_back();
    keys_.pop_back();
    return true;
  }

  nlohmann::json root_;
  std::vector<nlohmann::json*> open_;
  std::vector<std::string> keys_;  // of each open container, the key now being read
};

}  // namespace

std::string QuoteForMessage(absl::string_view text) {
  const std::string cut = absl::Utf8SafeCHexEscape(text.substr(0, kLongestQuote));
  return text.size() <= kLongestQuote ? cut : absl::StrCat(cut, "...");
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

absl::StatusOr<nlohmann::json> ParseStrictJson(absl::string_view text,
                                               absl::string_view file_name) {
  TreeBuilder builder;
  ANNULUS_RETURN_IF_ERROR(ParseJson(text, file_name, builder));
  return builder.Take();
}

}  // namespace annulus
