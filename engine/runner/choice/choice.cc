#include "engine/runner/choice/choice.h"

#include <algorithm>
#include <utility>

#include "engine/sparse/draw.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Ask = ChoiceQuery::Ask;

// Steps of the ladder before all blocks. Four of them halve the remainder (1 - tau): coarser steps
// would take more blocks than a contract needs.
constexpr int kRaises = 20;
constexpr double kRaise = 0.8408964152537145;  // 2^-0.25

bool HasProbes(int32_t end, int32_t block) { return end >= kProbeBlocks * block; }

// The blocks of pages, each once, ascending.
std::vector<int32_t> BlocksOfPages(std::span<const ShardPage> pages, int32_t block_tokens) {
  std::vector<int32_t> blocks;
  for (const ShardPage& page : pages) {
    const int32_t block = page.first_position / block_tokens;
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }
  return blocks;
}

ChoiceQuery MakeQuery(const ChoiceContext& context, const ChoiceLayer& layer, const Choice& item,
                      Ask kind, int32_t stride) {
  const RingItem& ring = *item.ring;
  ChoiceQuery query;
  query.kind = kind;
  query.stride = stride;
  query.owed.resize(static_cast<size_t>(ring.degree()));
  query.scored.resize(static_cast<size_t>(ring.degree()));
  std::vector<int32_t> probes;
  if (kind == Ask::kExact) {
    const uint64_t seed = Mix(static_cast<uint64_t>(ring.begin)) + layer.layer;
    probes = ProbeRows(ring.begin, ring.end, item.choosing->block(), seed);
  }
  for (int i = 0; i < ring.degree(); ++i) {
    const std::vector<int32_t>& rows = ring.positions[i];
    std::vector<int32_t>& positions = query.positions.emplace_back();
    int64_t groups = 0;
    if (kind == Ask::kExact) {
      std::set_intersection(probes.begin(), probes.end(), rows.begin(), rows.end(),
                            std::back_inserter(positions));
      groups = static_cast<int64_t>(positions.size());
    } else if (kind == Ask::kAntidiagonal) {
      positions = rows;
      groups = CountRowGroups(rows, stride);
      const auto blocks = static_cast<int64_t>(BlocksOf(rows, item.block).size());
      query.lists.push_back(blocks * context.kv_heads());
    } else {
      positions = BlocksOf(rows, item.block);
      groups = static_cast<int64_t>(positions.size());
    }
    query.groups.push_back(groups);
    if (kind != Ask::kAntidiagonal) query.lists.push_back(groups * context.heads());
  }
  return query;
}

// What the ranks that hold the keys are asked for; nullopt: nothing.
std::optional<Ask> AskFor(BlockEstimate::Source source) {
  switch (source) {
    case BlockEstimate::Source::kNothing:
      return std::nullopt;
    case BlockEstimate::Source::kAntidiagonals:
      return Ask::kAntidiagonal;
    case BlockEstimate::Source::kMeans:
      return Ask::kMeans;
    case BlockEstimate::Source::kBounds:
      return Ask::kBounds;
    case BlockEstimate::Source::kGates:
      return Ask::kGates;
  }
  return std::nullopt;
}

// The shares of estimated attention that are tried.
std::vector<double> Ladder(const ChoosingPart& part, ChoiceKind kind) {
  const AttentionPolicy& policy = *part.policy;
  if (kind == ChoiceKind::kNone && part.pattern == nullptr) return {1};
  std::vector<double> ladder;
  if (kind == ChoiceKind::kRanking) {
    ladder.push_back(policy.coverage > 0 ? policy.coverage : policy.tau);
    for (int raise = 1; policy.coverage > 0 && raise <= kRaises; ++raise) {
      ladder.push_back(1 - (1 - ladder.back()) * kRaise);
    }
  } else {
    ladder.push_back(0);  // the policy's own lists
  }
  if (policy.coverage > 0) ladder.push_back(1);
  return ladder;
}

}  // namespace

ChoiceKind HowToChoose(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end) {
  const bool probes = !sampled && HasProbes(end, policy.block) && begin < end;
  const PolicyType& type = TypeOf(policy.kind);
  const ChoiceKind kind = sampled ? type.answers : type.prompts;
  // Picks need probes only to keep a contract.
  const bool without = kind == ChoiceKind::kPicked && policy.coverage == 0;
  return probes || without ? kind : ChoiceKind::kNone;
}

bool UsesPattern(const AttentionPolicy& policy, bool sampled, int32_t begin, int32_t end) {
  if (!FollowsPattern(policy)) return false;
  return policy.coverage == 0 || HowToChoose(policy, sampled, begin, end) == ChoiceKind::kLists;
}

absl::StatusOr<std::byte*> ChoiceContext::KeepBytes(size_t bytes) const {
  ANNULUS_ASSIGN_OR_RETURN(DeviceBuffer buffer, backend.AllocateHost(bytes));
  messages.layer.push_back(std::move(buffer));
  return messages.layer.back().data();
}

absl::StatusOr<std::span<float>> ChoiceContext::Keep(size_t count) const {
  ANNULUS_ASSIGN_OR_RETURN(std::byte* const memory, KeepBytes(count * sizeof(float)));
  return std::span<float>(reinterpret_cast<float*>(memory), count);
}

absl::Status ChoiceContext::ScoreBlocks(const BlockScoresItem& item, int32_t block_tokens,
                                        int32_t stride) const {
  BlockScoresParams params;
  params.shape = config.shape;
  params.heads = config.heads;
  params.scale = config.scale;
  params.soft_cap = config.soft_cap;
  params.block_tokens = block_tokens;
  params.stride = stride;
  params.items = {&item, 1};
  return ops.block_scores(stream, params);
}

int32_t PartChoice::Count(size_t q, int kv_head, size_t at_rung) const {
  const int32_t all = ranking->query_blocks()[q] + 1;
  if (policy().top > 0 && at_rung == 0) return std::min(all, policy().top + 2);
  return ranking->Count(q, kv_head, ladder[at_rung]);
}

bool Asks(const Choice& item, const ChoiceQuery& query, int holder) {
  return !query.positions[item.index()].empty() && !item.held[holder].empty();
}
bool Owes(const Choice& item, const ChoiceQuery& query, int runner) {
  return !query.positions[runner].empty() && !item.seen[runner].empty();
}

const PartChoice& Choice::part_of(int kv_head) const {
  const auto found = std::find_if(parts.begin(), parts.end(), [&](const PartChoice& part) {
    return part.part->heads[kv_head];
  });
  ANNULUS_CHECK(found != parts.end()) << "kv head " << kv_head << " has no policy";
  return *found;
}

Choice MakeChoice(const ChoiceContext& context, const ChoiceLayer& layer,
                  const ChoosingItem& choosing, int32_t block) {
  Choice item;
  item.choosing = &choosing;
  item.block = block;
  item.ring = &layer.items[choosing.item];
  const RingItem& ring = *item.ring;
  item.query_blocks = BlocksOf(item.positions(item.index()), item.block);
  for (int i = 0; i < ring.degree(); ++i) {
    item.held.push_back(BlocksOfPages(choosing.candidates.held_by[i], item.block));
    item.seen.push_back(BlocksOfPages(choosing.candidates.seen_by[i], item.block));
    std::vector<int32_t>& pages = item.held_page_blocks.emplace_back();
    for (const ShardPage& page : choosing.candidates.held_by[i]) {
      pages.push_back(page.first_position / item.block);
    }
  }
  for (const ChoosingPart& part : choosing.parts) {
    PartChoice& choice = item.parts.emplace_back();
    choice.part = &part;
    choice.kind = HowToChoose(*part.policy, ring.sampled, ring.begin, ring.end);
    choice.ladder = Ladder(part, choice.kind);
    if (choice.kind == ChoiceKind::kNone) continue;
    const BlockEstimate estimate = EstimateOf(*part.policy);
    const std::optional<Ask> ask = AskFor(estimate.source);
    if (!ask.has_value()) continue;
    choice.estimate.emplace(MakeQuery(context, layer, item, *ask, estimate.stride));
  }
  if ((!ring.sampled || choosing.samples_answer) && HasProbes(ring.end, choosing.block()) &&
      context.ops.block_scores != nullptr) {
    item.probes.emplace(MakeQuery(context, layer, item, Ask::kExact, 1));
  }
  return item;
}

std::vector<int32_t> BlocksOf(std::span<const int32_t> positions, int32_t block_tokens) {
  std::vector<int32_t> blocks;
  for (const int32_t position : positions) {
    const int32_t block = position / block_tokens;
    if (blocks.empty() || blocks.back() != block) blocks.push_back(block);
  }
  return blocks;
}

int IndexOf(const RingItem& item, int rank) {
  const auto found = std::find(item.ring.begin(), item.ring.end(), rank);
  return found == item.ring.end() ? -1 : static_cast<int>(found - item.ring.begin());
}

}  // namespace annulus
