#include "server/generation/attention_messages.h"

#include <string>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"

namespace annulus::server {
namespace {

constexpr size_t kLongestPolicy = 1024;
constexpr int kDefaultCells = 64;

absl::Status CheckPolicyLength(const std::string& text, absl::string_view field) {
  if (text.size() <= kLongestPolicy) return absl::OkStatus();
  return FieldError(field, absl::StrCat("an attention policy of ", text.size(),
                                        " bytes is not allowed: at most ", kLongestPolicy));
}

absl::StatusOr<AttentionAssignment> ReadAssignment(const std::string& text,
                                                   absl::string_view field) {
  ANNULUS_RETURN_IF_ERROR(CheckPolicyLength(text, field));
  auto assignment = ParseAssignment(text);
  if (!assignment.ok()) return FieldError(field, assignment.status().message());
  return assignment;
}

// Sets the coverage that a policy must keep. `alone`: there are no rules for single layers and
// heads. Among rules, a dense part is left as it is, since it covers everything.
absl::Status SetCoverage(double coverage, bool alone, absl::string_view field,
                         AttentionPolicy& policy) {
  if (!alone && AttendsAll(policy)) return absl::OkStatus();
  if (!KeepsContract(policy)) {
    return FieldError(field, absl::StrCat("attention policy ", PolicyName(policy.kind),
                                          " cannot guarantee a coverage: leave coverage out, or "
                                          "use a policy that can, such as adaptive"));
  }
  policy.coverage = coverage;
  return absl::OkStatus();
}

absl::Status CheckRange(absl::string_view field, int64_t value, int64_t most) {
  if (value >= 1 && value <= most) return absl::OkStatus();
  return FieldError(field, absl::StrCat(value, " is not allowed: 1 to ", most));
}

v1::AttentionDetail ToMessage(const AttentionDetail& detail) {
  v1::AttentionDetail message;
  message.set_layer(detail.layer);
  message.set_kv_head(detail.kv_head);
  message.set_density(detail.density);
  if (detail.estimated_coverage) message.set_estimated_coverage(*detail.estimated_coverage);
  if (detail.sampled_coverage) message.set_sampled_coverage(*detail.sampled_coverage);
  message.set_map(std::string(detail.map.begin(), detail.map.end()));
  message.set_computed(std::string(detail.computed.begin(), detail.computed.end()));
  return message;
}

}  // namespace

absl::StatusOr<std::optional<AttentionAssignment>> ReadAttention(const v1::AttentionSpec& message,
                                                                 absl::string_view place) {
  std::optional<AttentionAssignment> policy;
  if (message.has_policy()) {
    ANNULUS_ASSIGN_OR_RETURN(policy,
                             ReadAssignment(message.policy(), absl::StrCat(place, ".policy")));
  }
  if (!message.has_coverage()) return policy;
  const std::string field = absl::StrCat(place, ".coverage");
  const double coverage = message.coverage();
  if (!(coverage > 0 && coverage <= 1)) {
    return FieldError(field,
                      absl::StrCat("coverage ", coverage, " is not allowed: above 0, at most 1"));
  }
  if (!policy.has_value()) policy.emplace().policy.kind = kCoveragePolicy;
  const bool alone = policy->rules.empty();
  ANNULUS_RETURN_IF_ERROR(SetCoverage(coverage, alone, field, policy->policy));
  for (AttentionRule& rule : policy->rules) {
    ANNULUS_RETURN_IF_ERROR(SetCoverage(coverage, alone, field, rule.policy));
  }
  return policy;
}

absl::StatusOr<BlockMapSpec> ReadMapRequest(const v1::MapAttentionRequest& request,
                                            const AttentionAssignment& default_attention) {
  AttentionAssignment attention = default_attention;
  if (request.has_policy()) {
    ANNULUS_ASSIGN_OR_RETURN(attention, ReadAssignment(request.policy(), "policy"));
  }
  if (!attention.rules.empty()) {
    return FieldError(
        "policy",
        absl::StrCat(
            "'", AssignmentText(attention).substr(0, 200),
            "' has rules for layers or heads, and a map shows one policy; name a single policy"));
  }
  BlockMapSpec spec;
  spec.policy = attention.policy;
  ANNULUS_RETURN_IF_ERROR(CheckRange("tokens", request.tokens(), spec.kMostTokens));
  spec.tokens = request.tokens();
  spec.heads = 0;  // the model's
  if (request.has_heads()) {
    ANNULUS_RETURN_IF_ERROR(CheckRange("heads", request.heads(), spec.kMostHeads));
    spec.heads = request.heads();
  }
  spec.cells = kDefaultCells;
  if (request.has_cells()) {
    ANNULUS_RETURN_IF_ERROR(CheckRange("cells", request.cells(), spec.kMostCells));
    spec.cells = request.cells();
  }
  return spec;
}

v1::AttentionReport ToMessage(const AttentionReport& report) {
  v1::AttentionReport message;
  message.set_policy(report.policy);
  message.set_choice(report.choice);
  message.set_density(report.density);
  message.set_ring_degree(report.ring_degree);
  message.set_steps_pass_kv(report.steps_pass_kv);
  message.set_steps_pass_q(report.steps_pass_q);
  if (report.estimated_coverage) message.set_estimated_coverage(*report.estimated_coverage);
  if (report.sampled) {
    v1::SampledCoverage& sampled = *message.mutable_sampled_coverage();
    sampled.set_mean(report.sampled->coverage);
    sampled.set_minimum(report.sampled->minimum);
    sampled.set_first_percentile(report.sampled->first_percentile);
    sampled.set_rows(report.sampled->rows);
  }
  message.set_layer_steps(report.layer_steps);
  message.set_layers_raised(report.layers_raised);
  message.set_layers_dense(report.layers_dense);
  message.set_contract_met(report.contract_met);
  if (report.inherited_coverage) message.set_inherited_coverage(*report.inherited_coverage);
  message.set_estimate_seconds(report.estimate_seconds);
  message.set_attend_seconds(report.attend_seconds);
  message.set_estimate_wall_seconds(report.estimate_wall_seconds);
  message.set_attend_wall_seconds(report.attend_wall_seconds);
  for (const AttentionDetail& detail : report.details) *message.add_details() = ToMessage(detail);
  return message;
}

v1::MapAttentionResponse ToMessage(const BlockMap& map, const AttentionPolicy& policy) {
  v1::MapAttentionResponse message;
  message.set_policy(PolicyText(policy));
  message.set_block_tokens(policy.block);
  message.set_blocks(map.blocks);
  message.set_side(map.side);
  for (const BlockMap::Head& head : map.heads) {
    v1::AttentionHeadMap& drawn = *message.add_heads();
    drawn.set_first_head(head.first_head);
    drawn.set_head_count(head.head_count);
    drawn.set_density(head.density);
    drawn.set_map(std::string(head.cells.begin(), head.cells.end()));
  }
  return message;
}

}  // namespace annulus::server
