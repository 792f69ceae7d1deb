#include "engine/sparse/policy.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/check.h"
#include "kernels/base/nearest_name.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status ReadParameter(absl::string_view text, AttentionPolicy& policy) {
  const size_t equals = text.find('=');
  const absl::string_view name = text.substr(0, equals);
  const absl::string_view value =
      equals == absl::string_view::npos ? absl::string_view() : text.substr(equals + 1);
  const PolicyType& type = TypeOf(policy.kind);
  std::vector<std::string> known;
  for (const PolicyParameter* parameter : type.parameters) {
    if (parameter->name() == name) return parameter->Read(value, policy);
    known.emplace_back(parameter->name());
  }
  if (known.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention policy ", type.name, " has no parameters; give only its name"));
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "attention policy ", type.name, " has no parameter '", name.substr(0, 32), "'; did you mean ",
      NearestName(name, known), "? It has: ", absl::StrJoin(known, ", ")));
}

absl::StatusOr<PolicyKind> FindKind(absl::string_view name) {
  std::vector<std::string> known;
  for (size_t kind = 0; kind < kPolicyTypes.size(); ++kind) {
    if (kPolicyTypes[kind]->name == name) return static_cast<PolicyKind>(kind);
    known.emplace_back(kPolicyTypes[kind]->name);
  }
  return absl::InvalidArgumentError(absl::StrCat("unknown attention policy '", name.substr(0, 64),
                                                 "'; did you mean ", NearestName(name, known),
                                                 "? Known: ", absl::StrJoin(known, ", ")));
}

}  // namespace

const PolicyType& TypeOf(PolicyKind kind) {
  const auto row = static_cast<size_t>(kind);
  ANNULUS_CHECK(row < kPolicyTypes.size()) << "unknown policy " << row;
  return *kPolicyTypes[row];
}

absl::string_view PolicyName(PolicyKind kind) { return TypeOf(kind).name; }

bool AttendsAll(const AttentionPolicy& policy) {
  return AttendsAllInPrompts(policy) && TypeOf(policy.kind).answers == ChoiceKind::kNone;
}

bool AttendsAllInPrompts(const AttentionPolicy& policy) {
  const PolicyType& type = TypeOf(policy.kind);
  return type.prompts == ChoiceKind::kNone && type.branches == nullptr && !type.automatic;
}

bool ChoosesByContent(const AttentionPolicy& policy) {
  const PolicyType& type = TypeOf(policy.kind);
  return type.estimate != nullptr || type.automatic;
}

bool FollowsPattern(const AttentionPolicy& policy) {
  return !AttendsAll(policy) && !ChoosesByContent(policy);
}

bool IsAutomatic(const AttentionPolicy& policy) { return TypeOf(policy.kind).automatic; }

bool KeepsContract(const AttentionPolicy& policy) {
  const auto parameters = TypeOf(policy.kind).parameters;
  return std::find(parameters.begin(), parameters.end(), &kCoverageParameter) != parameters.end();
}

BlockEstimate EstimateOf(const AttentionPolicy& policy) {
  const PolicyType& type = TypeOf(policy.kind);
  return type.estimate == nullptr ? BlockEstimate() : type.estimate(policy);
}

absl::StatusOr<AttentionPolicy> ParsePolicy(absl::string_view text) {
  const size_t colon = text.find(':');
  AttentionPolicy policy;
  ANNULUS_ASSIGN_OR_RETURN(policy.kind, FindKind(text.substr(0, colon)));
  if (colon == absl::string_view::npos) return policy;
  for (const absl::string_view part : absl::StrSplit(text.substr(colon + 1), ',')) {
    ANNULUS_RETURN_IF_ERROR(ReadParameter(part, policy));
  }
  return policy;
}

std::string PolicyText(const AttentionPolicy& policy) {
  const PolicyType& type = TypeOf(policy.kind);
  std::string text(type.name);
  char separator = ':';
  for (const PolicyParameter* parameter : type.parameters) {
    const std::optional<std::string> value = parameter->Text(policy);
    if (!value.has_value()) continue;
    text.push_back(separator);
    separator = ',';
    absl::StrAppend(&text, parameter->name(), "=", *value);
  }
  return text;
}

absl::Status CheckPolicy(const AttentionPolicy& policy, int page_tokens) {
  const PolicyType& type = TypeOf(policy.kind);
  for (const PolicyParameter* parameter : type.parameters) {
    ANNULUS_RETURN_IF_ERROR(parameter->Check(policy));
  }
  if (type.check != nullptr) ANNULUS_RETURN_IF_ERROR(type.check(policy));
  if (AttendsAll(policy) || policy.block % page_tokens == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "attention policy ", type.name, ": block ", policy.block,
      " is not allowed: give a multiple of the page, which has ", page_tokens, " tokens"));
}

AttentionPolicy ResolvePolicy(const AttentionPolicy& policy, int64_t tokens) {
  AttentionPolicy resolved = policy;
  const PolicyType& type = TypeOf(policy.kind);
  if (type.resolve != nullptr) type.resolve(tokens, resolved);
  return resolved;
}

bool IsResolved(const AttentionPolicy& policy) {
  return !IsAutomatic(policy) && ResolvePolicy(policy, 1) == policy;
}

std::string DescribePolicies() {
  const AttentionPolicy defaults;
  std::string text;
  for (const PolicyType* type : kPolicyTypes) {
    std::vector<std::string> parts;
    for (const PolicyParameter* parameter : type->parameters) {
      parts.push_back(absl::StrCat(parameter->name(), "=", parameter->Describe(defaults)));
    }
    absl::StrAppend(&text, type->name, ": ", type->summary, parts.empty() ? "" : "; ",
                    absl::StrJoin(parts, ", "), "\n");
  }
  return text;
}

}  // namespace annulus
