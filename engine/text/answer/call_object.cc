#include "engine/text/answer/call_object.h"

#include <nlohmann/json.hpp>

namespace annulus {
namespace {

constexpr size_t kMostKey = 16;  // longer ones are no name that is looked for

}  // namespace

CallObject::Result CallObject::Bad(const char* why) {
  why_ = why;
  return Result::kBad;
}

// A value of the outermost object begins with `c`, which the scanner has not taken yet.
CallObject::Result CallObject::BeginMember(char c) {
  const bool is_name = key_ == "name" || key_ == "tool_name";
  const bool is_arguments = key_ == "arguments" || key_ == "parameters";
  const bool first = first_;
  first_ = false;
  member_ = is_name ? Member::kName : is_arguments ? Member::kArguments : Member::kOther;
  if (name_first_ && first && !is_name) return Bad("");
  if (is_name) {
    if (c != '"') return Bad(name_first_ ? "" : "the name of the function is not a JSON string");
    if (!name_.empty()) return Bad("the call has two names");
  }
  if (is_arguments) {
    if (c != '{') return Bad("the arguments are not a JSON object");
    if (has_arguments()) return Bad("the call has arguments twice");
    arguments_ = Arguments::kOpen;
  }
  return Result::kOther;
}

CallObject::Result CallObject::EndName() {
  const auto name = nlohmann::json::parse(written_name_, nullptr, /*allow_exceptions=*/false);
  if (!name.is_string() || name.get_ref<const std::string&>().empty()) {
    return Bad("the name of the function is empty or malformed");
  }
  name_ = name.get<std::string>();
  return Result::kName;
}

CallObject::Result CallObject::Push(char c) {
  const bool outside = scanner_.depth() == 1;
  const bool was_key = outside && scanner_.in_key();
  const bool was_string = scanner_.in_string();
  if (outside && scanner_.expects_value() && !IsJsonSpace(c)) {
    if (BeginMember(c) == Result::kBad) return Result::kBad;
  }
  const JsonScanner::Result result = scanner_.Push(c);
  if (result == JsonScanner::Result::kBad) return Bad("the call is not valid JSON");
  if (result == JsonScanner::Result::kEnd) return Result::kEnd;
  if (was_key) {
    if (scanner_.in_string() && key_.size() < kMostKey) key_.push_back(c);
  } else if (outside && scanner_.in_key()) {
    key_.clear();
  }
  if (arguments_ == Arguments::kOpen) {
    if (scanner_.depth() == 1) arguments_ = Arguments::kRead;
    return Result::kArguments;
  }
  if (!outside || member_ != Member::kName || !(was_string || scanner_.in_string()) || was_key) {
    return Result::kOther;
  }
  written_name_.push_back(c);
  if (written_name_.size() > kMostName) return Bad("the name of the function is too long");
  if (scanner_.in_string()) return Result::kOther;
  member_ = Member::kOther;
  return EndName();
}

}  // namespace annulus
