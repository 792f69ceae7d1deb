#include "engine/request/check_request.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/error_payloads.h"
#include "engine/base/field_error.h"
#include "engine/sparse/policy_type.h"
#include "kernels/base/status_macros.h"

namespace annulus {

absl::Status CheckPrefixes(const RequestSpec& spec) {
  const std::vector<int32_t>& lengths = spec.shared_prefixes;
  const bool ordered = std::is_sorted(lengths.begin(), lengths.end());
  const int32_t prompt = static_cast<int32_t>(spec.prompt.size());
  if (lengths.empty() ||
      (ordered && lengths.size() <= 64 && lengths.front() >= 0 && lengths.back() <= prompt)) {
    return absl::OkStatus();
  }
  return FieldError(
      absl::StatusCode::kInvalidArgument, "shared_prefixes",
      absl::StrCat(lengths.size(), " lengths from ", lengths.front(), " to ", lengths.back(),
                   " are not allowed: at most 64, ascending, each from 0 to ", prompt,
                   ", the tokens of the prompt"));
}

absl::Status CheckOutput(const RequestSpec& spec, const ModelInfo& model) {
  if (spec.output.machine == nullptr) return absl::OkStatus();
  if (spec.sampling.ignore_eos) {
    return FieldError(absl::StatusCode::kInvalidArgument, "sampling.ignore_eos",
                      "ignore_eos goes on after the end of the text, which an output constraint "
                      "sets; leave one of them out");
  }
  if (model.end_of_text_ids.empty()) {
    return FieldError(absl::StatusCode::kInvalidArgument, "output",
                      "the model names no end-of-text token, so a constrained output could not "
                      "end; add eos_token_id to its config.json");
  }
  return absl::OkStatus();
}

absl::Status CheckKeeping(const RequestSpec& spec) {
  if (!spec.pin && !spec.ttl.has_value()) return absl::OkStatus();
  if (!spec.prefill_only || spec.documents.empty()) {
    return FieldError(absl::StatusCode::kInvalidArgument, spec.pin ? "pin" : "ttl",
                      "only a prefilled document can be pinned or have a time to live: set "
                      "prefill_only and give documents");
  }
  constexpr auto kLongest = std::chrono::hours(365 * 24);
  if (!spec.ttl.has_value() || (*spec.ttl >= std::chrono::seconds(1) && *spec.ttl <= kLongest)) {
    return absl::OkStatus();
  }
  return FieldError(absl::StatusCode::kInvalidArgument, "ttl",
                    absl::StrCat("a time to live of ", spec.ttl->count(),
                                 " ms is not allowed: 1 s to 31,536,000 s, a year"));
}

absl::Status TenantFullError(int64_t needed, int64_t held, int64_t allowed,
                             std::optional<int64_t> retry_ms) {
  const absl::string_view remedy = retry_ms.has_value() ? "try again when the retry delay is over"
                                   : held > 0           ? "unpin or delete documents"
                                                        : "shorten the prompt or lower max_tokens";
  const std::string in_use = held > 0 ? absl::StrCat(", of which ", held, " are in use") : "";
  absl::Status status = absl::ResourceExhaustedError(
      absl::StrCat("the request needs ", needed,
                   " bytes of keys and values; its tenant is allowed ", allowed, in_use, "; ",
                   remedy, ", or ask the operator to raise the quota kv_bytes in the tokens file"));
  status.SetPayload(kLimitPayload, absl::Cord("kv_bytes"));
  if (retry_ms.has_value()) status.SetPayload(kRetryPayload, absl::Cord(absl::StrCat(*retry_ms)));
  return status;
}

absl::Status CheckTenantRoom(const RequestSpec& spec, int64_t needed) {
  const int64_t allowed = spec.tenant_room.kv_bytes;
  if (allowed == 0 || needed <= allowed) return absl::OkStatus();
  return TenantFullError(needed, 0, allowed, std::nullopt);
}

bool CanScoreBlocks(const OpTable& ops) {
  return ops.block_scores != nullptr && ops.score_sums != nullptr && ops.block_masses != nullptr &&
         ops.key_summary != nullptr && ops.summary_scores != nullptr && ops.row_means != nullptr;
}

absl::Status CheckMeans(const AttentionPolicy& policy, const RankModel& model) {
  if (IsAutomatic(policy)) return absl::OkStatus();  // takes what is there
  const bool gated = EstimateOf(policy).source == BlockEstimate::Source::kGates;
  if (gated && model.gates == nullptr) {
    return absl::InvalidArgumentError(
        absl::StrCat("attention policy ", PolicyName(policy.kind),
                     " needs gates fitted to the model, but the server has none; use adaptive, or "
                     "start the server with --attention-gates FILE"));
  }
  const OpTable& ops = *model.ops;
  const bool scores = ChoosesByContent(policy) || policy.coverage > 0;
  if (!scores || CanScoreBlocks(ops)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "attention policy ", PolicyName(policy.kind), policy.coverage > 0 ? " with a coverage" : "",
      " needs scores of blocks of keys, which the kernels ", ops.name,
      " cannot compute; use a policy with a fixed pattern, such as window, without a coverage"));
}

absl::Status CheckAttention(const AttentionAssignment& attention, const RankModel& model) {
  ANNULUS_RETURN_IF_ERROR(CheckAssignment(attention, model.assignment_limits()));
  ANNULUS_RETURN_IF_ERROR(CheckMeans(attention.policy, model));
  for (const AttentionRule& rule : attention.rules) {
    ANNULUS_RETURN_IF_ERROR(CheckMeans(rule.policy, model));
  }
  return absl::OkStatus();
}

}  // namespace annulus
