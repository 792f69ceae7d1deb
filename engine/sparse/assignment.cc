#include "engine/sparse/assignment.h"

#include <algorithm>
#include <iterator>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status Malformed(absl::string_view rule) {
  return absl::InvalidArgumentError(
      absl::StrCat("attention rule '", rule.substr(0, 64),
                   "' is not allowed: write layers=A-B:POLICY, heads=A-B:POLICY or "
                   "layers=A-B,heads=A-B:POLICY, with numbers from 0 to ",
                   AttentionRule::kLast, " and A at most B, or one number instead of A-B"));
}

// "3" or "3-7".
bool ReadRange(absl::string_view text, int32_t& first, int32_t& last) {
  const std::pair<absl::string_view, absl::string_view> ends =
      absl::StrSplit(text, absl::MaxSplits('-', 1));
  if (!absl::SimpleAtoi(ends.first, &first)) return false;
  last = first;
  if (text.find('-') != absl::string_view::npos && !absl::SimpleAtoi(ends.second, &last)) {
    return false;
  }
  return 0 <= first && first <= last && last <= AttentionRule::kLast;
}

absl::StatusOr<AttentionRule> ReadRule(absl::string_view text) {
  const size_t colon = text.find(':');
  if (colon == absl::string_view::npos) return Malformed(text);
  AttentionRule rule;
  bool layers = false;
  bool heads = false;
  for (absl::string_view part : absl::StrSplit(text.substr(0, colon), ',')) {
    part = absl::StripAsciiWhitespace(part);
    const size_t equals = part.find('=');
    if (equals == absl::string_view::npos) return Malformed(text);
    const absl::string_view name = part.substr(0, equals);
    const absl::string_view range = part.substr(equals + 1);
    bool& seen = name == "layers" ? layers : heads;
    if (seen || (name != "layers" && name != "heads")) return Malformed(text);
    seen = true;
    const bool good = name == "layers" ? ReadRange(range, rule.first_layer, rule.last_layer)
                                       : ReadRange(range, rule.first_head, rule.last_head);
    if (!good) return Malformed(text);
  }
  ANNULUS_ASSIGN_OR_RETURN(rule.policy,
                           ParsePolicy(absl::StripAsciiWhitespace(text.substr(colon + 1))));
  return rule;
}

std::string RangeText(const char* name, int32_t first, int32_t last) {
  return first == last ? absl::StrCat(name, "=", first) : absl::StrCat(name, "=", first, "-", last);
}

// "layers=0-3,heads=1".
std::string PlaceText(const AttentionRule& rule) {
  std::string text;
  if (rule.first_layer != 0 || rule.last_layer != AttentionRule::kLast) {
    text = RangeText("layers", rule.first_layer, rule.last_layer);
  }
  if (rule.all_heads() && !text.empty()) return text;
  return absl::StrCat(text, text.empty() ? "" : ",",
                      RangeText("heads", rule.first_head, rule.last_head));
}

absl::Status CheckPlace(const AttentionRule& rule, const AssignmentLimits& limits) {
  const auto check = [&](const char* name, int32_t first, int32_t last, int count) -> absl::Status {
    if (0 <= first && first <= last && first < count &&
        (last < count || last == AttentionRule::kLast)) {
      return absl::OkStatus();
    }
    return absl::InvalidArgumentError(absl::StrCat("attention rule: ", RangeText(name, first, last),
                                                   " is not allowed: the model's ", name,
                                                   " are 0 to ", count - 1));
  };
  ANNULUS_RETURN_IF_ERROR(check("layers", rule.first_layer, rule.last_layer, limits.layers));
  return check("heads", rule.first_head, rule.last_head, limits.kv_heads);
}

// Reports draw all layers with one size of blocks, and lists of one layer must share it.
absl::Status CheckBlocks(const AttentionAssignment& assignment) {
  const AttentionPolicy* first = nullptr;
  const auto check = [&](const AttentionPolicy& policy) -> absl::Status {
    if (AttendsAll(policy)) return absl::OkStatus();
    if (first == nullptr) first = &policy;
    if (policy.block == first->block) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("attention rules: blocks of ", first->block, " and of ", policy.block,
                     " tokens are not allowed together; give all policies the same block"));
  };
  ANNULUS_RETURN_IF_ERROR(check(assignment.policy));
  for (const AttentionRule& rule : assignment.rules) ANNULUS_RETURN_IF_ERROR(check(rule.policy));
  return absl::OkStatus();
}

absl::Status CheckLayer(int32_t layer, std::span<const LayerPart> parts) {
  if (parts.size() == 1) return absl::OkStatus();
  const auto whole = std::find_if(parts.begin(), parts.end(), [](const LayerPart& part) {
    return TypeOf(part.policy.kind).branches != nullptr;
  });
  if (whole == parts.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("attention rule: ", PolicyName(whole->policy.kind),
                                                 " is not allowed for some heads of layer ", layer,
                                                 "; give it to all heads of the layer"));
}

}  // namespace

const AttentionPolicy& AttentionAssignment::Of(int32_t layer, int32_t kv_head) const {
  const auto rule = std::find_if(rules.rbegin(), rules.rend(), [&](const AttentionRule& each) {
    return each.Names(layer, kv_head);
  });
  return rule == rules.rend() ? policy : rule->policy;
}

bool AttentionAssignment::dense() const {
  return AttendsAll(policy) &&
         std::all_of(rules.begin(), rules.end(),
                     [](const AttentionRule& rule) { return AttendsAll(rule.policy); });
}

bool AttentionAssignment::automatic() const { return IsAutomatic(policy); }

absl::StatusOr<AttentionAssignment> ParseAssignment(absl::string_view text) {
  const std::vector<absl::string_view> parts = absl::StrSplit(text, ';');
  if (parts.size() > kMostRules + 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(parts.size() - 1, " attention rules are not allowed: at most ", kMostRules));
  }
  AttentionAssignment assignment;
  ANNULUS_ASSIGN_OR_RETURN(assignment.policy,
                           ParsePolicy(absl::StripAsciiWhitespace(parts.front())));
  for (size_t i = 1; i < parts.size(); ++i) {
    ANNULUS_ASSIGN_OR_RETURN(AttentionRule rule, ReadRule(absl::StripAsciiWhitespace(parts[i])));
    assignment.rules.push_back(std::move(rule));
  }
  return assignment;
}

std::string AssignmentText(const AttentionAssignment& assignment) {
  std::string text = PolicyText(assignment.policy);
  for (const AttentionRule& rule : assignment.rules) {
    absl::StrAppend(&text, "; ", PlaceText(rule), ": ", PolicyText(rule.policy));
  }
  return text;
}

absl::Status CheckAssignment(const AttentionAssignment& assignment,
                             const AssignmentLimits& limits) {
  ANNULUS_RETURN_IF_ERROR(CheckPolicy(assignment.policy, limits.page_tokens));
  if (assignment.rules.empty()) return absl::OkStatus();
  bool automatic = assignment.automatic();
  for (const AttentionRule& rule : assignment.rules) {
    ANNULUS_RETURN_IF_ERROR(CheckPolicy(rule.policy, limits.page_tokens));
    ANNULUS_RETURN_IF_ERROR(CheckPlace(rule, limits));
    automatic = automatic || IsAutomatic(rule.policy);
  }
  if (automatic) {
    return absl::InvalidArgumentError(
        "attention policy auto is not allowed together with rules, because it chooses one policy "
        "for all layers and heads; remove the rules, or give another policy");
  }
  ANNULUS_RETURN_IF_ERROR(CheckBlocks(assignment));
  for (int32_t layer = 0; layer < limits.layers; ++layer) {
    ANNULUS_RETURN_IF_ERROR(CheckLayer(layer, PartsOf(assignment, layer, limits.kv_heads)));
  }
  return absl::OkStatus();
}

AttentionAssignment ResolveAssignment(const AttentionAssignment& assignment, int64_t tokens) {
  AttentionAssignment resolved = assignment;
  resolved.policy = ResolvePolicy(assignment.policy, tokens);
  for (AttentionRule& rule : resolved.rules) rule.policy = ResolvePolicy(rule.policy, tokens);
  return resolved;
}

bool IsResolved(const AttentionAssignment& assignment) {
  return IsResolved(assignment.policy) &&
         std::all_of(assignment.rules.begin(), assignment.rules.end(),
                     [](const AttentionRule& rule) { return IsResolved(rule.policy); });
}

std::vector<LayerPart> PartsOf(const AttentionAssignment& assignment, int32_t layer, int kv_heads) {
  std::vector<LayerPart> parts;
  for (int head = 0; head < kv_heads; ++head) {
    const AttentionPolicy& policy = assignment.Of(layer, head);
    auto part = std::find_if(parts.begin(), parts.end(),
                             [&](const LayerPart& each) { return each.policy == policy; });
    if (part == parts.end()) {
      parts.push_back({policy, std::vector<bool>(static_cast<size_t>(kv_heads))});
      part = std::prev(parts.end());
    }
    part->heads[head] = true;
  }
  // Lists of one layer have blocks of one size.
  const auto sparse = std::find_if(parts.begin(), parts.end(),
                                   [](const LayerPart& part) { return !AttendsAll(part.policy); });
  for (LayerPart& part : parts) {
    if (sparse != parts.end() && AttendsAll(part.policy)) {
      part.policy.block = sparse->policy.block;
    }
  }
  return parts;
}

}  // namespace annulus
