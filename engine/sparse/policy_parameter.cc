#include "engine/sparse/policy_parameter.h"

#include <algorithm>
#include <charconv>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kMostListed = 64;

template <class... Parts>
absl::Status Refuse(const AttentionPolicy& policy, const Parts&... why) {
  return absl::InvalidArgumentError(
      absl::StrCat("attention policy ", PolicyName(policy.kind), ": ", why...));
}

std::string Quoted(absl::string_view text) { return absl::StrCat("'", text.substr(0, 32), "'"); }

absl::Status OutOfRange(const AttentionPolicy& policy, absl::string_view name,
                        absl::string_view value, int32_t low, int32_t high) {
  return Refuse(policy, name, " ", value, " is not allowed: ", low, " to ", high);
}

absl::Status ReadNumber(const AttentionPolicy& policy, absl::string_view name,
                        absl::string_view text, int32_t low, int32_t high, int32_t& value) {
  if (absl::SimpleAtoi(text, &value) && low <= value && value <= high) return absl::OkStatus();
  return OutOfRange(policy, name, Quoted(text), low, high);
}

bool IsShare(double value) { return value > 0 && value <= 1; }

absl::Status ShareOutOfRange(const AttentionPolicy& policy, absl::string_view name,
                             absl::string_view value) {
  return Refuse(policy, name, " ", value, " is not allowed: above 0, at most 1");
}

// The shortest text that reads back as the same number.
std::string ShareText(double value) {
  char text[32];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return std::string(text, result.ptr);
}

}  // namespace

absl::Status NumberParameter::Read(absl::string_view text, AttentionPolicy& policy) const {
  return ReadNumber(policy, name(), text, low_, high_, policy.*field_);
}

absl::Status NumberParameter::Check(const AttentionPolicy& policy) const {
  const int32_t value = policy.*field_;
  if (low_ <= value && value <= high_) return absl::OkStatus();
  return OutOfRange(policy, name(), absl::StrCat(value), low_, high_);
}

std::optional<std::string> NumberParameter::Text(const AttentionPolicy& policy) const {
  return absl::StrCat(policy.*field_);
}

std::string NumberParameter::Describe(const AttentionPolicy& defaults) const {
  return absl::StrCat(defaults.*field_, " (", low_, " to ", high_, ")");
}

absl::Status ListParameter::Read(absl::string_view text, AttentionPolicy& policy) const {
  std::vector<int32_t>& list = policy.*field_;
  list.clear();
  for (const absl::string_view part : absl::StrSplit(text, '/')) {
    if (list.size() == kMostListed) {
      return Refuse(policy, "at most ", kMostListed, " ", name(), " are allowed");
    }
    int32_t value = 0;
    ANNULUS_RETURN_IF_ERROR(ReadNumber(policy, name(), part, 1, high_, value));
    list.push_back(value);
  }
  return absl::OkStatus();
}

absl::Status ListParameter::Check(const AttentionPolicy& policy) const {
  const std::vector<int32_t>& list = policy.*field_;
  if (!list.empty() && list.size() <= kMostListed &&
      std::all_of(list.begin(), list.end(),
                  [&](int32_t value) { return 1 <= value && value <= high_; })) {
    return absl::OkStatus();
  }
  return Refuse(policy, "1 to ", kMostListed, " ", name(), " are allowed, each 1 to ", high_);
}

std::optional<std::string> ListParameter::Text(const AttentionPolicy& policy) const {
  return Joined(policy);
}

std::string ListParameter::Describe(const AttentionPolicy& defaults) const {
  return absl::StrCat(Joined(defaults), " (each 1 to ", high_, ")");
}

std::string ListParameter::Joined(const AttentionPolicy& policy) const {
  return absl::StrJoin(policy.*field_, "/");
}

absl::Status ShareParameter::Read(absl::string_view text, AttentionPolicy& policy) const {
  double& value = policy.*field_;
  if (absl::SimpleAtod(text, &value) && IsShare(value)) return absl::OkStatus();
  return ShareOutOfRange(policy, name(), Quoted(text));
}

absl::Status ShareParameter::Check(const AttentionPolicy& policy) const {
  const double value = policy.*field_;
  if (IsShare(value) || (optional_ && value == 0)) return absl::OkStatus();
  return ShareOutOfRange(policy, name(), absl::StrCat(value));
}

std::optional<std::string> ShareParameter::Text(const AttentionPolicy& policy) const {
  const double value = policy.*field_;
  if (optional_ && value == 0) return std::nullopt;
  return ShareText(value);
}

std::string ShareParameter::Describe(const AttentionPolicy& defaults) const {
  return absl::StrCat(optional_ ? "none" : ShareText(defaults.*field_), " (above 0, at most 1)");
}

}  // namespace annulus
