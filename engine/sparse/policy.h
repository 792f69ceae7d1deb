#ifndef ANNULUS_ENGINE_SPARSE_POLICY_H_
#define ANNULUS_ENGINE_SPARSE_POLICY_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// Which keys a row may attend, in blocks of `block` tokens. Query block i and key block j stand for
// positions [i * block, (i + 1) * block). Every policy is causal and keeps the diagonal block; the
// model's own mask still applies inside the chosen blocks.
enum class PolicyKind : uint8_t {
  kDense,          // all
  kWindow,         // sinks and a sliding window (StreamingLLM, arXiv 2309.17453)
  kDilated,        // tokens, not blocks: see engine/sparse/dilated.h (LongNet, 2307.02486)
  kDilatedBlocks,  // i, i - r, i - 2r, ..: one rate r for each head group in turn
  kStrided,        // the last blocks and every s-th before them (Sparse Transformer, 1904.10509)
  kGlobalLocal,    // the first blocks and a window (Longformer, 2004.05150)
  kRandom,         // the same and seeded random blocks between (BigBird, 2007.14062)
  kHierarchical,   // near: all; beyond: one block of 4, then of 16, .. of ever wider bands
  // From content. Where a policy says nothing of prompts or of answers, those rows attend all.
  kAdaptive,  // prompts: as few blocks as an estimate says hold `tau` of the attention
  kTopPages,  // answers: the blocks with the highest bound of a score (Quest, 2406.10774)
  kLearned,   // prompts: like kAdaptive, estimated by gates that were fitted to the model; see
              // engine/sparse/gates.h (SeerAttention, 2410.13276)
  // The engine takes one of the others for each request, by its length, what the kernels can do,
  // what attending and estimating were measured to cost, and the contract: see
  // engine/auto_policy.h.
  kAuto,
};

// How kAdaptive estimates the attention that a block gets.
enum class Estimator : uint8_t {
  kAntidiagonal,  // sums along antidiagonals of stride x stride tiles (XAttention, 2503.16428)
  kPooled,        // means of queries and keys; vertical and slash lines where those are wrong
                  // (FlexPrefill, 2502.20766; MInference, 2407.02490)
};

// A policy with its parameters. Parameters that the kind does not use have no effect and keep their
// default. Plain data; equal text means equal lists.
struct AttentionPolicy {
  PolicyKind kind = PolicyKind::kDense;
  int32_t block = 64;     // tokens, a multiple of the page
  int32_t sinks = 64;     // tokens at the beginning that stay visible
  int32_t window = 4096;  // tokens: the row at i keeps those with j > i - window
  int32_t stride = 8;     // blocks
  int32_t local = 4;      // blocks before the diagonal
  int32_t global = 1;     // blocks at the beginning
  int32_t random = 8;     // blocks drawn for each query block
  int32_t seed = 1;       // of the draw
  int32_t near = 16;      // blocks before the diagonal that are all kept; groups of each band
  int32_t fan = 4;        // a band's groups are this much wider than those of the band before
  int32_t levels = 0;     // bands beyond the near one, the last reaches the beginning; 0: any
  std::vector<int32_t> rates = {1, 2, 4};  // of dilated_blocks, blocks; of dilated, tokens
  // Of dilated, one for each rate: tokens, a multiple of its rate and of `block`. None: "auto", see
  // ResolvePolicy.
  std::vector<int32_t> segments = {2048, 4096, 8192};
  Estimator estimator = Estimator::kAntidiagonal;
  int32_t score_stride = 16;  // tokens, 8 or 16, of the antidiagonal estimator; named "stride"
  double tau = 0.95;          // (0, 1]: the share of estimated attention to be kept
  int32_t top = 0;            // of learned: blocks kept besides the first and its own; 0: by tau
  int32_t pages = 64;         // blocks that an answer's row attends besides its own
  // (0, 1]: the coverage contract, kept before attending: see AttentionReport. 0: none. Not for
  // dense, dilated and top_pages. An adaptive or learned policy then starts from tau = coverage and
  // raises it. Of kAuto 0 stands for kAutoCoverage.
  double coverage = 0;

  bool operator==(const AttentionPolicy&) const = default;
};

inline constexpr double kAutoCoverage = 0.95;

// "dense", "window", "dilated", "dilated_blocks", "strided", "global_local", "random",
// "hierarchical", "adaptive", "top_pages", "learned", "auto".
absl::string_view PolicyName(PolicyKind kind);
// "antidiagonal", "pooled".
absl::string_view EstimatorName(Estimator estimator);

// Reads "name" or "name:parameter=value,parameter=value"; a list is written with "/":
// "dilated:segments=2048/8192,rates=1/4", "dilated:segments=auto",
// "adaptive:estimator=pooled,coverage=0.95". INVALID_ARGUMENT: unknown policy or parameter (with
// the nearest known one), a parameter of another policy, or a value out of range (with the range).
absl::StatusOr<AttentionPolicy> ParsePolicy(absl::string_view text);

// The policy in effect, every parameter of its kind named; ParsePolicy reads it back. Part of the
// identity of keys and values that were computed under it.
std::string PolicyText(const AttentionPolicy& policy);

// INVALID_ARGUMENT unless every parameter of the kind is in its range and `block` is a multiple of
// `page_tokens`.
absl::Status CheckPolicy(const AttentionPolicy& policy, int page_tokens);

// The policy for a sequence that grows to at most `tokens`. dilated:segments=auto becomes segments
// of 2048, 4096, .. with rates 1, 2, .. until one holds the whole sequence; all else stays as it
// is.
AttentionPolicy ResolvePolicy(const AttentionPolicy& policy, int64_t tokens);

// One line for each policy with its parameters, defaults and ranges, for help texts.
std::string DescribePolicies();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_POLICY_H_
