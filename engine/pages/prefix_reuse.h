#ifndef ANNULUS_ENGINE_PREFIX_REUSE_H_
#define ANNULUS_ENGINE_PREFIX_REUSE_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "engine/memory/prefix_index.h"
#include "engine/model/rope.h"
#include "engine/request/request.h"
#include "engine/scheduler/scheduler.h"

namespace annulus {

// Keeps what prompts leave for later ones, and decides which pages a prompt may reuse. Used by the
// coordinator's thread alone.
class PrefixReuse {
 public:
  // `identity`: LoadedModel::identity, which must be equal for pages to be reused. `ropes`: of the
  // model. `book` must outlive the object.
  PrefixReuse(std::string identity, const PlanLimits& limits, std::vector<RopeConfig> ropes,
              PageBook& book);

  // Which rotary frequencies a request has, by its prompt alone: RopeLength.
  int64_t RopeLengthOf(const RequestSpec& spec) const;

  // A beginning of a prompt whose pages were placed for `ring`.
  struct Found {
    std::vector<int32_t> ring;
    PrefixIndex::Hit hit;
  };
  // For each ring that has one: the longest beginning of the prompt, without its last token, that
  // the tenant's earlier prompts left.
  // Pages of different rings never meet in one sequence: they would spread a shard over ranks
  // (kernels/ops/shards.h). Dense pages serve every policy; pages computed under a policy serve
  // that one alone. `policy`: null for dense. `nearest`: of all rings, for WhyNoMore.
  std::vector<Found> Find(const RequestSpec& spec, const AttentionAssignment* policy,
                          PrefixIndex::Nearest* nearest = nullptr);
  // Why no more than `cached` tokens of the prompt could be reused, by what Find saw. Nothing if
  // the rest of the prompt has no whole page, if the tenant left no similar prompt, or if the
  // nearest one only ends before this prompt does. Prompts are similar that have the first page or
  // a document in common; of the latter, only those count that have the first of its documents that
  // the tenant has sent before (PrefixIndex::FirstDifference says how many of them).
  std::optional<CacheMiss> WhyNoMore(const RequestSpec& spec, const AttentionAssignment* policy,
                                     const PrefixIndex::Nearest& nearest, int32_t cached) const;
  // The whole prompt with its last token, if the tenant has all of it cached. Counts as a use of
  // it.
  std::optional<PrefixIndex::Hit> FindAll(const RequestSpec& spec,
                                          const AttentionAssignment* policy);
  bool HasAll(const RequestSpec& spec, const AttentionAssignment* policy) {
    return FindAll(spec, policy).has_value();
  }
  // Number of tokens of the longest beginning that Find returns; 0: none.
  int64_t LongestFound(const RequestSpec& spec, const AttentionAssignment* policy);

  // Dense pages of full groups for the longest beginning of the prompt's first `tokens` tokens that
  // memory has on one ring: see PrefixIndex::FindFull.
  std::optional<Found> FindFull(const RequestSpec& spec, int32_t tokens);

  // Called after a step: makes the beginnings of the prompt known that are now complete. Returns
  // their lengths.
  std::vector<int32_t> Keep(const Sequence& sequence, Request& request);

  // Makes the prompt's first `length` tokens known, which are whole, complete pages; for models
  // with windows only if the windows' pages are all still there. `mark`: the request's own, for
  // calls with growing lengths. Does nothing if one of the request's documents was forgotten since
  // it came.
  void KeepUpTo(int32_t length, const Sequence& sequence, Request& request,
                PrefixIndex::Mark* mark = nullptr);

  // Describes pages that were loaded, as if a sequence of that ring had computed them.
  struct Origin {
    TenantId tenant;
    const AttentionAssignment* policy = nullptr;  // null: dense
    int64_t rope_length = 0;
    std::vector<int32_t> ring;
    TaggedDocuments documents;
    SteadyTime asked;
  };
  // Makes loaded pages known. Does nothing if one of the documents was forgotten since the pages
  // were asked for.
  void KeepLoaded(const Origin& origin, std::span<const int32_t> tokens,
                  std::optional<double> coverage,
                  const std::function<PageId(int group, int32_t first)>& page_at);

  // The beginning that a prompt, under `policy`, has in common with one that is being computed, as
  // far as it could be reused from there: whole pages, of models with windows up to a checkpoint.
  // 0: none, or it is another tenant's, or was computed under a policy that is not this one.
  int32_t Common(const RequestSpec& spec, const AttentionAssignment& policy,
                 const Sequence& running, const RequestSpec& other) const;

  // Makes the beginning that Common returned known, if it is not. It must be computed.
  void KeepCommon(int32_t length, const Sequence& sequence, Request& request);

  // For a request that ends, or is preempted, before its prompt is read: keeps what is computed,
  // for a retry. Nothing if pages of windows that the next row sees are gone.
  void KeepUnfinished(const Sequence& sequence, Request& request);

  // A request that reuses pages computed under its policy has their coverage too.
  void InheritCoverage(Request& request) const;

  static TaggedDocuments TagsOf(const RequestSpec& spec);

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  // Bytes of the heap that all of this takes, beside the pages.
  int64_t bytes() const { return index_.bytes() + index_.evicted_bytes(); }

 private:
  // `policy`: AssignmentText; empty: dense.
  std::string Identity(const TenantId& tenant, const std::string& policy, int64_t rope_length,
                       const std::vector<int32_t>& ring) const;
  std::vector<Found> FindIn(const RequestSpec& spec, std::span<const int32_t> known,
                            const AttentionAssignment* policy,
                            PrefixIndex::Nearest* nearest = nullptr);
  // Notes that pages were left under the policy, on the ring. Returns the text of the policy.
  std::string NotePlace(const AttentionAssignment* policy, const std::vector<int32_t>& ring);
  bool has_windows() const;
  // Whether the sequence still has the windows' pages that a row at `length` sees.
  bool HasWindowsAt(int32_t length, const Sequence& sequence) const;

  const std::string identity_;
  const PlanLimits limits_;
  const std::vector<RopeConfig> ropes_;
  const PageBook& book_;
  PrefixIndex index_;
  std::set<std::vector<int32_t>> rings_;  // of all sequences that left something
  // Policies other than dense under which something was left; the latest kMostPolicies, newest
  // last.
  static constexpr size_t kMostPolicies = 32;
  std::vector<std::string> policies_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PREFIX_REUSE_H_
