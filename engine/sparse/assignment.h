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

// A policy and the layers and key/value heads it applies to. Both ranges are inclusive.
struct AttentionRule {
  static constexpr int32_t kLast = 65535;  // larger than any layer or head

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

// Which policy applies to which layers and heads. A policy by itself converts to an assignment for
// all of them.
struct AttentionAssignment {
  AttentionAssignment() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a policy is an assignment
  AttentionAssignment(AttentionPolicy of_all) : policy(std::move(of_all)) {}

  AttentionPolicy policy;            // where no rule applies
  std::vector<AttentionRule> rules;  // if several match a layer and head, the last one applies

  const AttentionPolicy& Of(int32_t layer, int32_t kv_head) const;
  bool dense() const;      // in all layers and heads
  bool automatic() const;  // IsAutomatic(policy); then there are no rules
  bool operator==(const AttentionAssignment&) const = default;
};

// Parses a policy (ParsePolicy) followed by any number of rules, each after a ';': "adaptive;
// layers=0-1: dense; layers=4,heads=0-3: window:window=4096". A rule names layers, key/value heads,
// or both; an omitted one means all. INVALID_ARGUMENT as for ParsePolicy, or for a malformed rule,
// a descending range, or more than kMostRules rules.
inline constexpr size_t kMostRules = 64;
absl::StatusOr<AttentionAssignment> ParseAssignment(absl::string_view text);

// Returns the assignment with every parameter written out; ParseAssignment reads it back.
std::string AssignmentText(const AttentionAssignment& assignment);

// The model and page properties that an assignment must fit.
struct AssignmentLimits {
  int page_tokens = 1;
  int layers = 1;
  int kv_heads = 1;
};

// INVALID_ARGUMENT unless: every policy passes CheckPolicy; every rule names existing layers and
// heads; all policies except dense have the same block size; a layer with dilated has no other
// policy; auto is used without any rules.
absl::Status CheckAssignment(const AttentionAssignment& assignment, const AssignmentLimits& limits);

// Applies ResolvePolicy to every policy.
AttentionAssignment ResolveAssignment(const AttentionAssignment& assignment, int64_t tokens);
// IsResolved of every policy.
bool IsResolved(const AttentionAssignment& assignment);

// A policy of one layer and the key/value heads it applies to. PartsOf returns at least one.
struct LayerPart {
  AttentionPolicy policy;
  std::vector<bool> heads;  // [kv_heads]

  bool operator==(const LayerPart&) const = default;
};
std::vector<LayerPart> PartsOf(const AttentionAssignment& assignment, int32_t layer, int kv_heads);

}  // namespace annulus

#endif  // ANNULUS_ENGINE_SPARSE_ASSIGNMENT_H_
