#ifndef ANNULUS_ENGINE_SPARSE_POLICY_H_
#define ANNULUS_ENGINE_SPARSE_POLICY_H_

#include <array>
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
//
// Each policy has a file of its own in policies/, which defines its row of the table: PolicyType.
// To add a policy, write that file, and name it in the three lists below. Code outside policies/
// never tests the kind. It asks the questions below, or the row.
enum class PolicyKind : uint8_t {
  kDense,
  kWindow,
  kDilated,
  kDilatedBlocks,
  kStrided,
  kGlobalLocal,
  kRandom,
  kHierarchical,
  kAdaptive,
  kTopPages,
  kLearned,
  kAuto,
};

struct PolicyType;

namespace policies {
extern const PolicyType kDense, kWindow, kDilated, kDilatedBlocks, kStrided, kGlobalLocal, kRandom,
    kHierarchical, kAdaptive, kTopPages, kLearned, kAuto;
}  // namespace policies

// The table, indexed by PolicyKind. Help texts have the same order.
inline constexpr std::array kPolicyTypes = {
    &policies::kDense,    &policies::kWindow,      &policies::kDilated, &policies::kDilatedBlocks,
    &policies::kStrided,  &policies::kGlobalLocal, &policies::kRandom,  &policies::kHierarchical,
    &policies::kAdaptive, &policies::kTopPages,    &policies::kLearned, &policies::kAuto};

// How `adaptive` estimates the attention of a block.
enum class Estimator : uint8_t {
  kAntidiagonal,  // sums along antidiagonals of stride x stride tiles (XAttention, 2503.16428)
  kPooled,        // means of queries and keys; vertical and slash lines where those mislead
                  // (FlexPrefill, 2502.20766; MInference, 2407.02490)
};

// A policy and its parameters. Parameters that the kind does not use have no effect and must keep
// their defaults. Plain data; equal PolicyText means equal lists.
struct AttentionPolicy {
  PolicyKind kind = PolicyKind::kDense;
  int32_t block = 64;     // tokens, a multiple of the page
  int32_t sinks = 64;     // tokens at the beginning that stay visible
  int32_t window = 4096;  // tokens: row i keeps j > i - window
  int32_t stride = 8;     // blocks: strided keeps every stride-th one
  int32_t local = 4;      // blocks before the diagonal
  int32_t global = 1;     // blocks at the beginning
  int32_t random = 8;     // blocks drawn for each query block
  int32_t seed = 1;       // seed of the random blocks
  int32_t near = 16;      // blocks before the diagonal, all kept; also groups per band
  int32_t fan = 4;        // factor by which groups widen from one band to the next
  int32_t levels = 0;  // bands beyond the near one; the last takes the rest; 0: as many as needed
  std::vector<int32_t> rates = {1, 2, 4};  // dilated_blocks: in blocks; dilated: in tokens
  // dilated only, one per rate: tokens, a multiple of its rate and of `block`. Empty: "auto", see
  // ResolvePolicy.
  std::vector<int32_t> segments = {2048, 4096, 8192};
  Estimator estimator = Estimator::kAntidiagonal;
  int32_t score_stride = 16;  // antidiagonal estimator: 8 or 16 tokens; named "stride"
  double tau = 0.95;          // (0, 1]: the share of estimated attention to keep
  int32_t top = 0;            // learned: blocks to keep besides the first and its own; 0: use tau
  int32_t pages = 64;         // blocks an answer row attends besides its own
  // (0, 1]: the coverage contract, enforced before attending: see AttentionReport. 0: none. Needs
  // KeepsContract. With a contract, adaptive and learned start from tau = coverage and raise it.
  // For auto, 0 means kAutoCoverage.
  double coverage = 0;

  bool operator==(const AttentionPolicy&) const = default;
};

inline constexpr double kAutoCoverage = 0.95;
// The policy of a request that names only a coverage.
inline constexpr PolicyKind kCoveragePolicy = PolicyKind::kAdaptive;

// The name in texts: "dilated_blocks".
absl::string_view PolicyName(PolicyKind kind);

// Questions about a policy.
// Whether every row attends all keys: `dense`.
bool AttendsAll(const AttentionPolicy& policy);
// Whether the rows of prompts attend all keys, though rows of answers may choose: `dense` and
// `top_pages`.
bool AttendsAllInPrompts(const AttentionPolicy& policy);
// Whether its lists depend on queries and keys. True for `auto`, whose choice may.
bool ChoosesByContent(const AttentionPolicy& policy);
// Whether its lists are known before a layer runs: neither of AttendsAll and ChoosesByContent.
bool FollowsPattern(const AttentionPolicy& policy);
// Whether the engine takes another policy for each request: `auto`.
bool IsAutomatic(const AttentionPolicy& policy);
// Whether it has the parameter "coverage".
bool KeepsContract(const AttentionPolicy& policy);

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
// Whether a rank can follow the policy: it is not automatic, and ResolvePolicy has no effect on it.
bool IsResolved(const AttentionPolicy& policy);

// One line per policy, for help texts: what rows attend; parameters, defaults and ranges.
std::string DescribePolicies();

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_POLICY_H_
