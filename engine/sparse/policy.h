#ifndef ANNULUS_ENGINE_SPARSE_POLICY_H_
#define ANNULUS_ENGINE_SPARSE_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Which keys a row may attend, in blocks of `block` tokens: query block i and key block j have the
// positions [i * block, (i + 1) * block) and [j * block, (j + 1) * block). Every policy is causal
// and keeps the diagonal block. The model's own mask still applies inside chosen blocks.
enum class PolicyKind : uint8_t {
  kDense,          // all keys
  kWindow,         // sinks and a sliding window (StreamingLLM, arXiv 2309.17453)
  kDilated,        // tokens, not blocks: see engine/sparse/dilated.h (LongNet, 2307.02486)
  kDilatedBlocks,  // blocks i, i - r, i - 2r, ..; head groups take the rates r in turn
  kStrided,        // the last blocks and every s-th before (Sparse Transformer, 1904.10509)
  kGlobalLocal,    // the first blocks and a window (Longformer, 2004.05150)
  kRandom,         // the same, plus seeded random blocks between (BigBird, 2007.14062)
  kHierarchical,   // all near blocks; beyond, one block of 4, of 16, .. in ever wider bands
  // These look at content. If only prompts (or only answers) are named, all other rows attend
  // everything.
  kAdaptive,  // prompts: the fewest blocks estimated to hold `tau` of the attention
  kTopPages,  // answers: the blocks with the highest upper bound of scores (Quest, 2406.10774)
  kLearned,   // prompts: like kAdaptive, estimated by gates that were fitted to the model; see
              // engine/sparse/gates.h (SeerAttention, 2410.13276)
  // Chooses another policy for each request, by its length, the available kernels, the measured
  // costs of attending and estimating, and the contract: see engine/auto_policy.h.
  kAuto,
};

// How kAdaptive estimates the attention of a block.
enum class Estimator : uint8_t {
  kAntidiagonal,  // sums along antidiagonals of stride x stride tiles (XAttention, 2503.16428)
  kPooled,        // means of queries and keys; vertical and slash lines where those are wrong
                  // (FlexPrefill, 2502.20766; MInference, 2407.02490)
};

// A policy and its parameters. Parameters that the kind does not use have no effect and must keep
// their defaults. Plain data; equal PolicyText means equal lists.
struct AttentionPolicy {
  PolicyKind kind = PolicyKind::kDense;
  int32_t block = 64;     // tokens, a multiple of the page
  int32_t sinks = 64;     // tokens at the beginning that stay visible
  int32_t window = 4096;  // tokens: row i keeps j > i - window
  int32_t stride = 8;     // blocks: the s of kStrided
  int32_t local = 4;      // blocks before the diagonal
  int32_t global = 1;     // blocks at the beginning
  int32_t random = 8;     // blocks drawn for each query block
  int32_t seed = 1;       // seed of the random blocks
  int32_t near = 16;      // blocks before the diagonal, all kept; also groups per band
  int32_t fan = 4;        // factor by which groups widen from one band to the next
  int32_t levels = 0;     // bands beyond the near one; the last reaches the beginning; 0: any
  std::vector<int32_t> rates = {1, 2, 4};  // dilated_blocks: in blocks; dilated: in tokens
  // dilated only, one per rate: tokens, a multiple of its rate and of `block`. Empty: "auto", see
  // ResolvePolicy.
  std::vector<int32_t> segments = {2048, 4096, 8192};
  Estimator estimator = Estimator::kAntidiagonal;
  int32_t score_stride = 16;  // antidiagonal estimator: 8 or 16 tokens; named "stride"
  double tau = 0.95;          // (0, 1]: the share of estimated attention to keep
  int32_t top = 0;            // learned: blocks to keep besides the first and its own; 0: use tau
  int32_t pages = 64;         // blocks an answer row attends besides its own
  // (0, 1]: the coverage contract, enforced before attending: see AttentionReport. 0: none. Not for
  // dense, dilated and top_pages. With a contract, adaptive and learned start from tau = coverage
  // and raise it. For kAuto, 0 means kAutoCoverage.
  double coverage = 0;

  bool operator==(const AttentionPolicy&) const = default;
};

inline constexpr double kAutoCoverage = 0.95;

// "dense", "window", "dilated", "dilated_blocks", "strided", "global_local", "random",
// "hierarchical", "adaptive", "top_pages", "learned", "auto".
absl::string_view PolicyName(PolicyKind kind);
// "antidiagonal", "pooled".
absl::string_view EstimatorName(Estimator estimator);

// Parses "name" or "name:parameter=value,parameter=value". Lists are written with "/":
// "dilated:segments=2048/8192,rates=1/4", "dilated:segments=auto",
// "adaptive:estimator=pooled,coverage=0.95". INVALID_ARGUMENT: unknown policy or parameter (with
// the closest known one), a parameter of another policy, or a value out of range (with the range).
absl::StatusOr<AttentionPolicy> ParsePolicy(absl::string_view text);

// Returns the policy with every parameter of its kind written out; ParsePolicy reads it back. Part
// of the identity of keys and values computed under the policy.
std::string PolicyText(const AttentionPolicy& policy);

// INVALID_ARGUMENT unless every parameter of the kind is in range and `block` is a multiple of
// `page_tokens`.
absl::Status CheckPolicy(const AttentionPolicy& policy, int page_tokens);

// Resolves the policy for a sequence that grows to at most `tokens`: for dilated:segments=auto,
// segments become 2048, 4096, .. with rates 1, 2, .. until one contains the whole sequence. Nothing
// else changes.
AttentionPolicy ResolvePolicy(const AttentionPolicy& policy, int64_t tokens);

// One line per policy with its parameters, defaults and ranges, for help texts.
std::string DescribePolicies();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_POLICY_H_
