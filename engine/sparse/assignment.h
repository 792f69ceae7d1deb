#ifndef ANNULUS_ENGINE_SPARSE_ASSIGNMENT_H_
#define ANNULUS_ENGINE_SPARSE_ASSIGNMENT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "engine/sparse/policy.h"

namespace annulus {

// Layers and heads of keys and values that a policy is given to; both ends belong.
struct AttentionRule {
  static constexpr int32_t kLast = 65535;  // beyond every model

  int32_t first_layer = 0;
  int32_t last_layer = kLast;
  int32_t first_head = 0;
  int32_t last_head = kLast;
  AttentionPolicy policy;

  bool all_heads() const { return first_head == 0 && last_head == kLast; }
  bool Names(int32_t layer, int32_t kv_head) const {
    return first_layer <= layer && layer <= last_layer && first_head <= kv_head &&
           kv_head <= last_head;
  }
  bool operator==(const AttentionRule&) const = default;
};

// Which policy holds in which layers and heads. A policy alone is the assignment of all.
struct AttentionAssignment {
  AttentionAssignment() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a policy is an assignment
  AttentionAssignment(AttentionPolicy of_all) : policy(std::move(of_all)) {}

  AttentionPolicy policy;            // where no rule holds
  std::vector<AttentionRule> rules;  // of those that name a layer and head the last one holds

  const AttentionPolicy& Of(int32_t layer, int32_t kv_head) const;
  bool dense() const;  // everywhere
  bool operator==(const AttentionAssignment&) const = default;
};

// Reads a policy (ParsePolicy), then any number of rules, each behind a ';':
// "adaptive; layers=0-1: dense; layers=4,heads=0-3: window:window=4096". A rule names layers, heads
// of keys and values, or both; what it leaves out is all. INVALID_ARGUMENT as ParsePolicy, or for a
// rule of another form, a range that runs backwards, and more than kMostRules.
inline constexpr size_t kMostRules = 64;
absl::StatusOr<AttentionAssignment> ParseAssignment(absl::string_view text);

// The assignment in effect, every parameter named; ParseAssignment reads it back.
std::string AssignmentText(const AttentionAssignment& assignment);

// What a model and its pages must have for an assignment.
struct AssignmentLimits {
  int page_tokens = 64;
  int layers = 1;
  int kv_heads = 1;
};

// INVALID_ARGUMENT unless every policy passes CheckPolicy, every rule names layers and heads that
// are there, all policies but dense have blocks of one size, and dilated has its layers alone. auto
// stands alone.
absl::Status CheckAssignment(const AttentionAssignment& assignment, const AssignmentLimits& limits);

// ResolvePolicy for every policy.
AttentionAssignment ResolveAssignment(const AttentionAssignment& assignment, int64_t tokens);

// The policies of one layer, each with its heads of keys and values. At least one.
struct LayerPart {
  AttentionPolicy policy;
  std::vector<bool> heads;  // [kv_heads]

  bool operator==(const LayerPart&) const = default;
};
std::vector<LayerPart> PartsOf(const AttentionAssignment& assignment, int32_t layer, int kv_heads);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_ASSIGNMENT_H_
