#ifndef ANNULUS_ENGINE_SPARSE_POLICY_TYPE_H_
#define ANNULUS_ENGINE_SPARSE_POLICY_TYPE_H_

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "engine/sparse/policy.h"
#include "engine/sparse/policy_parameter.h"
#include "kernels/ops/attention.h"

namespace annulus {

// How the rows of an item choose blocks.
enum class ChoiceKind : uint8_t {
  kNone,     // no choice: they attend all, or branches that do not depend on content
  kLists,    // lists of a content-free policy; coverage is sampled
  kRanking,  // by descending estimate until `tau` of the attention is covered, or the best `top`
  kPicked,   // PolicyType::pick takes them by their scores
};

// What the scores of blocks are computed from.
struct BlockEstimate {
  enum class Source : uint8_t {
    kNothing,        // no scores
    kAntidiagonals,  // sums along antidiagonals of stride x stride tiles
    kMeans,          // the mean query of a block and the mean key of each page
    kBounds,         // the mean query of a block and the bounds of every kBoundTokens keys
    kGates,          // the mean query of a block and the gates of the model
  };

  Source source = Source::kNothing;
  int32_t stride = 1;  // tokens; only for kAntidiagonals
};

// A form in which `auto` may take a policy: see engine/request/auto_policy.h.
struct AutoForm {
  const char* label = "";     // in the reason that the engine gives
  const char* policy = "";    // for ParsePolicy
  double estimate_share = 0;  // first guess: cost to estimate a causal pair, if attending it is 1
  double density = 0;         // first guess: the density that kAutoCoverage needs
};

// The parameter that makes a policy's lists denser or sparser.
struct PolicyExtent {
  void (*set)(AttentionPolicy& policy, int64_t blocks) = nullptr;  // blocks >= 1; null: none
  bool denser = false;  // whether more blocks make them denser; otherwise sparser
};

// A row of the table of policies. Constant data; what a policy does not do is left out.
struct PolicyType {
  // As in ParsePolicy's text.
  absl::string_view name;
  // What its rows attend, for help texts.
  absl::string_view summary;
  // In the order of PolicyText. That text is part of the identity of keys and values, so a change
  // of the order makes a server forget what it keeps on disk.
  std::span<const PolicyParameter* const> parameters = {};
  // INVALID_ARGUMENT unless parameters that are each in range fit together.
  absl::Status (*check)(const AttentionPolicy& policy) = nullptr;
  // See ResolvePolicy.
  void (*resolve)(int64_t tokens, AttentionPolicy& policy) = nullptr;

  // Appends the blocks that query block i attends: ascending, i last. Pictures (DrawBlockMap) show
  // them. Null: they depend on content, so there is no picture without a request.
  using AppendBlocks = void(const AttentionPolicy& policy, int head_group, int32_t i,
                            std::vector<int32_t>& blocks);
  AppendBlocks* append_blocks = nullptr;
  // How many those are, without building the list: a client's policy may make lists long. Exactly
  // the policies whose prompts have ChoiceKind::kLists have it.
  using CountBlocks = int64_t(const AttentionPolicy& policy, int head_group, int32_t i);
  CountBlocks* count_blocks = nullptr;
  // Whether head groups get different blocks. If not, one group stands for all.
  bool heads_differ = false;
  // For a policy that chooses tokens: see DilatedBranches. append_blocks then gives the blocks that
  // a row may need. Such a policy applies to all heads of a layer.
  std::vector<DilatedBranch> (*branches)(const AttentionPolicy& policy) = nullptr;

  // How rows of prompts, and rows of answers, choose blocks.
  ChoiceKind prompts = ChoiceKind::kNone;
  ChoiceKind answers = ChoiceKind::kNone;
  // What kRanking and kPicked choose by.
  BlockEstimate (*estimate)(const AttentionPolicy& policy) = nullptr;
  // kPicked: fills `blocks`, which is empty, for the query block scores.size() - 1: ascending, that
  // block last. scores[j]: the highest score of block j among the query heads of a kv head;
  // -infinity: nobody scored it.
  using PickBlocks = void(const AttentionPolicy& policy, std::span<const float> scores,
                          std::vector<int32_t>& blocks);
  PickBlocks* pick = nullptr;

  // See IsAutomatic.
  bool automatic = false;
  std::span<const AutoForm> forms = {};
  PolicyExtent extent = {};
};

// The row of the table.
const PolicyType& TypeOf(PolicyKind kind);

// What the policy's blocks are scored by; kNothing if its rows never choose by content.
BlockEstimate EstimateOf(const AttentionPolicy& policy);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_POLICY_TYPE_H_
