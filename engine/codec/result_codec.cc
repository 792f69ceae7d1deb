#include <algorithm>
#include <cmath>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "annulus/internal/v1/step.pb.h"
#include "engine/codec/message_parts.h"
#include "engine/codec/status_message.h"
#include "engine/codec/step_codec.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

namespace wire = internal::v1;
using codec::Countable;
using codec::Encode;
using codec::FromMessage;
using codec::kPositions;
using codec::Parse;
using codec::Put;
using codec::Take;
using codec::ToMessage;
using codec::Within;
using codec::Wrong;

wire::TokenLogprob ToMessage(const TokenLogprob& logprob) {
  wire::TokenLogprob message;
  message.set_token_id(logprob.token_id);
  message.set_logprob(logprob.logprob);
  for (const auto& [id, value] : logprob.alternatives) {
    message.add_alternative_ids(id);
    message.add_alternative_logprobs(value);
  }
  return message;
}

absl::StatusOr<TokenLogprob> FromMessage(const wire::TokenLogprob& from,
                                         const CodecLimits& limits) {
  if (from.alternative_ids_size() != from.alternative_logprobs_size()) {
    return Wrong("alternatives whose lists differ in length");
  }
  ANNULUS_RETURN_IF_ERROR(Within("the token id", from.token_id(), 0, limits.vocabulary));
  TokenLogprob logprob;
  logprob.token_id = from.token_id();
  logprob.logprob = from.logprob();
  if (std::isnan(logprob.logprob)) return Wrong("a logprob that is not a number");
  for (int i = 0; i < from.alternative_ids_size(); ++i) {
    ANNULUS_RETURN_IF_ERROR(Within("the token id", from.alternative_ids(i), 0, limits.vocabulary));
    if (std::isnan(from.alternative_logprobs(i))) return Wrong("a logprob that is not a number");
    logprob.alternatives.emplace_back(from.alternative_ids(i), from.alternative_logprobs(i));
  }
  return logprob;
}

wire::SampledToken ToMessage(const SampledToken& token) {
  wire::SampledToken message;
  message.set_sequence(token.sequence);
  message.set_token(token.token);
  message.set_ends_text(token.ends_text);
  if (token.logprob.has_value()) *message.mutable_logprob() = ToMessage(*token.logprob);
  if (!token.status.ok()) *message.mutable_status() = ToMessage(token.status);
  for (const EvidenceShare& share : token.shares) {
    message.add_share_begins(share.begin);
    message.add_share_ends(share.end);
    message.add_shares(share.share);
  }
  return message;
}

absl::StatusOr<std::vector<EvidenceShare>> ReadShares(const wire::SampledToken& message) {
  if (message.share_begins_size() != message.shares_size() ||
      message.share_ends_size() != message.shares_size()) {
    return Wrong("shares whose lists differ in length");
  }
  ANNULUS_RETURN_IF_ERROR(
      Within("the number of shares", message.shares_size(), 0, kMostEvidenceShares + 1));
  std::vector<EvidenceShare> shares;
  int64_t last = 0;
  for (int i = 0; i < message.shares_size(); ++i) {
    const EvidenceShare share{message.share_begins(i), message.share_ends(i), message.shares(i)};
    ANNULUS_RETURN_IF_ERROR(Within("the position", share.begin, last, kPositions - 1));
    ANNULUS_RETURN_IF_ERROR(Within("the end", share.end, int64_t{share.begin} + 1, kPositions));
    ANNULUS_RETURN_IF_ERROR(Countable("the share", share.share));
    last = share.end;
    shares.push_back(share);
  }
  return shares;
}

absl::StatusOr<SampledToken> FromMessage(const wire::SampledToken& message,
                                         const CodecLimits& limits) {
  SampledToken token;
  token.sequence = message.sequence();
  token.token = message.token();
  token.ends_text = message.ends_text();
  if (message.has_status()) token.status = FromMessage(message.status());
  if (token.status.ok()) {
    ANNULUS_RETURN_IF_ERROR(Within("the token id", token.token, 0, limits.vocabulary));
  }
  if (message.has_logprob()) {
    ANNULUS_ASSIGN_OR_RETURN(token.logprob, FromMessage(message.logprob(), limits));
  }
  ANNULUS_ASSIGN_OR_RETURN(token.shares, ReadShares(message));
  return token;
}

absl::StatusOr<LogitsRow> FromMessage(const wire::LogitsRow& message, const CodecLimits& limits) {
  if (message.logits_size() != limits.vocabulary) return Wrong("logits of another vocabulary");
  ANNULUS_RETURN_IF_ERROR(Within("the row of logits", message.position(), 0, kPositions));
  return LogitsRow{message.sequence(), message.position(), Take(message.logits())};
}

absl::StatusOr<ScoredRow> FromMessage(const wire::ScoredRow& message, const CodecLimits& limits) {
  ScoredRow row{message.sequence(), message.position(), {}};
  ANNULUS_ASSIGN_OR_RETURN(row.logprob, FromMessage(message.logprob(), limits));
  return row;
}

wire::BlockPattern ToMessage(const BlockPattern& pattern) {
  wire::BlockPattern message;
  message.set_head_groups(pattern.shape.head_groups);
  message.set_first_block(pattern.shape.first_block);
  message.set_blocks(pattern.shape.blocks);
  message.set_block_tokens(pattern.block_tokens);
  Put(pattern.offsets, message.mutable_offsets());
  Put(pattern.chosen, message.mutable_chosen());
  return message;
}

absl::StatusOr<BlockPattern> FromMessage(const wire::BlockPattern& message,
                                         const CodecLimits& limits) {
  BlockPattern pattern;
  if (message.head_groups() != 1 && message.head_groups() != limits.model.kv_heads) {
    return Wrong(absl::StrCat("lists of ", message.head_groups(), " heads; the model has ",
                              limits.model.kv_heads, " of keys and values"));
  }
  ANNULUS_RETURN_IF_ERROR(Within("the first block", message.first_block(), 0, kPositions));
  ANNULUS_RETURN_IF_ERROR(Within("the blocks", message.blocks(), 0, kPositions));
  ANNULUS_RETURN_IF_ERROR(Within("the block's tokens", message.block_tokens(), 1, kPositions));
  pattern.shape = {message.head_groups(), message.first_block(), message.blocks()};
  pattern.block_tokens = message.block_tokens();
  pattern.offsets = Take(message.offsets());
  pattern.chosen = Take(message.chosen());
  const int64_t lists = int64_t{message.head_groups()} * message.blocks();
  if (std::ssize(pattern.offsets) != lists + 1) return Wrong("lists without their offsets");
  int64_t last = 0;
  for (const int64_t offset : pattern.offsets) {
    ANNULUS_RETURN_IF_ERROR(Within("the offset", offset, last, std::ssize(pattern.chosen) + 1));
    last = offset;
  }
  if (pattern.offsets.front() != 0 || last != std::ssize(pattern.chosen)) {
    return Wrong("lists that their offsets do not cover");
  }
  const int64_t blocks = int64_t{message.first_block()} + message.blocks();
  for (const int32_t block : pattern.chosen) {
    ANNULUS_RETURN_IF_ERROR(Within("the key block", block, 0, blocks));
  }
  return pattern;
}

wire::LayerAttention ToMessage(const LayerAttention& part) {
  wire::LayerAttention message;
  message.set_sequence(part.sequence);
  message.set_layer(part.layer);
  message.set_begin(part.begin);
  message.set_pairs_chosen(part.pairs.chosen);
  message.set_pairs_causal(part.pairs.causal);
  message.set_estimated(part.estimated);
  message.set_estimates(part.estimates);
  Put(part.covered, message.mutable_covered());
  message.set_probes(part.probes);
  message.set_contract(part.contract);
  message.set_raised(part.raised);
  message.set_dense(part.dense);
  message.set_estimate_seconds(part.estimate_seconds);
  Put(part.rows, message.mutable_rows());
  if (part.lists.has_value()) *message.mutable_lists() = ToMessage(*part.lists);
  for (const DilatedBranch& branch : part.branches) {
    wire::DilatedBranch& added = *message.add_branches();
    added.set_segment(branch.segment);
    added.set_rate(branch.rate);
  }
  return message;
}

// Coverage may be NaN, as that of a request whose activations are: its own token says so.
absl::Status CheckCounts(const LayerAttention& part) {
  ANNULUS_RETURN_IF_ERROR(Countable("the chosen pairs", part.pairs.chosen));
  ANNULUS_RETURN_IF_ERROR(Countable("the causal pairs", part.pairs.causal));
  ANNULUS_RETURN_IF_ERROR(Countable("the estimates", static_cast<double>(part.estimates)));
  ANNULUS_RETURN_IF_ERROR(Countable("the probes", part.probes));
  ANNULUS_RETURN_IF_ERROR(Countable("the contract", part.contract));
  return Countable("the seconds of estimates", part.estimate_seconds);
}

absl::StatusOr<LayerAttention> FromMessage(const wire::LayerAttention& message,
                                           const CodecLimits& limits) {
  LayerAttention part;
  part.sequence = message.sequence();
  part.layer = message.layer();
  part.begin = message.begin();
  ANNULUS_RETURN_IF_ERROR(Within("the layer", part.layer, 0, limits.model.layers));
  part.pairs = {message.pairs_chosen(), message.pairs_causal()};
  part.estimated = message.estimated();
  part.estimates = message.estimates();
  part.covered = Take(message.covered());
  part.probes = message.probes();
  part.contract = message.contract();
  part.raised = message.raised();
  part.dense = message.dense();
  part.estimate_seconds = message.estimate_seconds();
  part.rows = Take(message.rows());
  ANNULUS_RETURN_IF_ERROR(CheckCounts(part));
  if (message.has_lists()) {
    ANNULUS_ASSIGN_OR_RETURN(part.lists, FromMessage(message.lists(), limits));
  }
  for (const wire::DilatedBranch& from : message.branches()) {
    ANNULUS_RETURN_IF_ERROR(Within("the segment", from.segment(), 1, kPositions));
    ANNULUS_RETURN_IF_ERROR(Within("the rate", from.rate(), 1, kPositions));
    part.branches.push_back({from.segment(), from.rate()});
  }
  return part;
}

// Values for counters, which must never decrease or become NaN.
absl::StatusOr<RingCounters> FromMessage(const wire::RingCounters& message) {
  const RingCounters ring = {message.compute_seconds(), message.wait_seconds(),
                             message.send_seconds(),    message.bytes_pass_kv(),
                             message.bytes_pass_q(),    message.bytes_estimate()};
  for (const double seconds : {ring.compute_seconds, ring.wait_seconds, ring.send_seconds}) {
    ANNULUS_RETURN_IF_ERROR(Countable("the seconds of a ring", seconds));
  }
  for (const int64_t bytes : {ring.bytes_pass_kv, ring.bytes_pass_q, ring.bytes_estimate}) {
    ANNULUS_RETURN_IF_ERROR(Countable("the bytes of a ring", static_cast<double>(bytes)));
  }
  return ring;
}

// The items of a plan by their sequence, which has two at most. A result has an answer for each
// item, and reports for each of its layers: a search through all items for every one would take
// their square.
class ItemIndex {
 public:
  explicit ItemIndex(const StepPlan& plan) {
    for (const PlanItem& item : plan.items) items_[item.sequence].push_back(&item);
  }

  // Null: the plan has no such item.
  template <typename Fits>
  const PlanItem* Find(SequenceId sequence, const Fits& fits) const {
    const auto own = items_.find(sequence);
    if (own == items_.end()) return nullptr;
    for (const PlanItem* item : own->second) {
      if (fits(*item)) return item;
    }
    return nullptr;
  }

 private:
  std::unordered_map<SequenceId, std::vector<const PlanItem*>> items_;
};

// Rows of the report are rows of its item, and its lists have a list for each.
absl::Status CheckReport(const LayerAttention& part, const ItemIndex& items) {
  const PlanItem* const item =
      items.Find(part.sequence, [&](const PlanItem& i) { return i.begin == part.begin; });
  if (item == nullptr) return Wrong("a report of rows that no item has");
  int64_t last = item->begin - int64_t{1};
  for (const int32_t row : part.rows) {
    ANNULUS_RETURN_IF_ERROR(Within("the reported row", row, last + 1, item->end));
    last = row;
    if (!part.lists.has_value()) continue;
    const PatternShape& shape = part.lists->shape;
    ANNULUS_RETURN_IF_ERROR(Within("the block of a row", row / part.lists->block_tokens,
                                   shape.first_block, int64_t{shape.first_block} + shape.blocks));
  }
  return absl::OkStatus();
}

absl::Status CheckScores(const RankResult& result, const ItemIndex& items) {
  std::set<std::pair<SequenceId, int32_t>> rows;
  for (const ScoredRow& row : result.scored) {
    const auto wants = [&](const PlanItem& item) {
      return item.score.has_value() && row.position >= item.begin && row.position < item.end &&
             std::ssize(row.logprob.alternatives) <= item.score->alternatives;
    };
    if (items.Find(row.sequence, wants) == nullptr ||
        !rows.insert({row.sequence, row.position}).second) {
      return Wrong("a log probability that no item asked for");
    }
  }
  return absl::OkStatus();
}

absl::Status CheckAnswers(const RankResult& result, const StepPlan& plan) {
  if (!EndsItsChunks(plan) && !(result.tokens.empty() && result.logits.empty() &&
                                result.scored.empty() && result.attention.empty())) {
    return Wrong("answers of a chunk that is suspended");
  }
  const ItemIndex items(plan);
  std::unordered_map<SequenceId, int32_t> answered;  // tokens
  for (const SampledToken& token : result.tokens) {
    const PlanItem* const item =
        items.Find(token.sequence, [](const PlanItem& i) { return i.sampled; });
    if (item == nullptr || ++answered[token.sequence] > item->end - item->begin) {
      return Wrong("a token that no item asked for");
    }
  }
  std::set<std::pair<SequenceId, int32_t>> rows;
  for (const LogitsRow& row : result.logits) {
    const auto wants = [&](const PlanItem& item) {
      return std::binary_search(item.logits_positions.begin(), item.logits_positions.end(),
                                row.position);
    };
    if (items.Find(row.sequence, wants) == nullptr ||
        !rows.insert({row.sequence, row.position}).second) {
      return Wrong("logits that no item asked for");
    }
  }
  ANNULUS_RETURN_IF_ERROR(CheckScores(result, items));
  for (const LayerAttention& part : result.attention) {
    ANNULUS_RETURN_IF_ERROR(CheckReport(part, items));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::string> EncodeResult(const RankResult& result, const CodecLimits& limits) {
  wire::RankResult message;
  if (!result.status.ok()) *message.mutable_status() = ToMessage(result.status);
  for (const SampledToken& token : result.tokens) *message.add_tokens() = ToMessage(token);
  for (const LogitsRow& row : result.logits) {
    wire::LogitsRow& added = *message.add_logits();
    added.set_sequence(row.sequence);
    added.set_position(row.position);
    Put(row.logits, added.mutable_logits());
  }
  for (const ScoredRow& row : result.scored) {
    wire::ScoredRow& added = *message.add_scored();
    added.set_sequence(row.sequence);
    added.set_position(row.position);
    *added.mutable_logprob() = ToMessage(row.logprob);
  }
  wire::RingCounters& ring = *message.mutable_ring();
  ring.set_compute_seconds(result.ring.compute_seconds);
  ring.set_wait_seconds(result.ring.wait_seconds);
  ring.set_send_seconds(result.ring.send_seconds);
  ring.set_bytes_pass_kv(result.ring.bytes_pass_kv);
  ring.set_bytes_pass_q(result.ring.bytes_pass_q);
  ring.set_bytes_estimate(result.ring.bytes_estimate);
  for (const LayerAttention& part : result.attention) *message.add_attention() = ToMessage(part);
  return Encode(message, "a result", limits.bytes);
}

absl::StatusOr<RankResult> DecodeResult(absl::string_view bytes, const StepPlan& plan,
                                        const CodecLimits& limits) {
  wire::RankResult message;
  ANNULUS_RETURN_IF_ERROR(Parse(bytes, "result", limits.bytes, message));
  RankResult result;
  if (message.has_status()) result.status = FromMessage(message.status());
  for (const wire::SampledToken& from : message.tokens()) {
    ANNULUS_ASSIGN_OR_RETURN(SampledToken token, FromMessage(from, limits));
    result.tokens.push_back(std::move(token));
  }
  for (const wire::LogitsRow& from : message.logits()) {
    ANNULUS_ASSIGN_OR_RETURN(LogitsRow row, FromMessage(from, limits));
    result.logits.push_back(std::move(row));
  }
  for (const wire::ScoredRow& from : message.scored()) {
    ANNULUS_ASSIGN_OR_RETURN(ScoredRow row, FromMessage(from, limits));
    result.scored.push_back(std::move(row));
  }
  ANNULUS_ASSIGN_OR_RETURN(result.ring, FromMessage(message.ring()));
  for (const wire::LayerAttention& from : message.attention()) {
    ANNULUS_ASSIGN_OR_RETURN(LayerAttention part, FromMessage(from, limits));
    result.attention.push_back(std::move(part));
  }
  ANNULUS_RETURN_IF_ERROR(CheckAnswers(result, plan));
  return result;
}

}  // namespace annulus
