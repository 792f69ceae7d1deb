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
#include "engine/request.h"
#include "engine/scheduler/scheduler.h"

namespace annulus {

// What prompts leave for later ones: which pages may serve whom. Used by the coordinator's thread
// alone.
class PrefixReuse {
 public:
  // `identity`: of keys and values, what must be equal for pages to be reused; `ropes`: of the
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
  // For each ring that has one, the longest beginning of the prompt, without its last token, that
  // its tenant left.
  // Pages of different rings never meet in one sequence: they would spread a shard over ranks
  // (kernels/ops/shards.h). Dense pages serve every policy; pages computed under a policy serve
  // that one alone. `policy`: null for dense. `nearest`: of all rings, for WhyNoMore.
  std::vector<Found> Find(const RequestSpec& spec, const AttentionAssignment* policy,
                          PrefixIndex::Nearest* nearest = nullptr);
  // Why no more than `cached` tokens of the prompt were there for its tenant, by what Find met.
  // Nothing: no whole page is left to reuse, the tenant left nothing like it, or only text that
  // ends where the prompt goes on.
  std::optional<CacheMiss> WhyNoMore(const RequestSpec& spec, const AttentionAssignment* policy,
                                     const PrefixIndex::Nearest& nearest, int32_t cached) const;
  // The whole prompt, its last token too, if it is there for the tenant. It counts as used now.
  std::optional<PrefixIndex::Hit> FindAll(const RequestSpec& spec,
                                          const AttentionAssignment* policy);
  bool HasAll(const RequestSpec& spec, const AttentionAssignment* policy) {
    return FindAll(spec, policy).has_value();
  }
  // Tokens of the longest of them; 0: none.
  int64_t LongestFound(const RequestSpec& spec, const AttentionAssignment* policy);

  // After a step: beginnings of the prompt that are now complete become known. Returns their
  // lengths.
  std::vector<int32_t> Keep(const Sequence& sequence, Request& request);

  // The prompt's first `length` tokens, whole pages that are complete, become known; of models with
  // windows only where those are still whole. `mark`: the request's own, for calls with growing
  // lengths. Nothing if one of the request's documents was forgotten since it came.
  void KeepUpTo(int32_t length, const Sequence& sequence, Request& request,
                PrefixIndex::Mark* mark = nullptr);

  // Pages that came from elsewhere, as if a sequence of that ring had computed them.
  struct Origin {
    TenantId tenant;
    const AttentionAssignment* policy = nullptr;  // null: dense
    int64_t rope_length = 0;
    std::vector<int32_t> ring;
    TaggedDocuments documents;
    SteadyTime asked;
  };
  // Nothing if one of the documents was forgotten since they were asked for.
  void KeepLoaded(const Origin& origin, std::span<const int32_t> tokens,
                  std::optional<double> coverage,
                  const std::function<PageId(int group, int32_t first)>& page_at);

  // The beginning that a prompt, under `policy`, has in common with one that is being computed, as
  // far as it could be reused from there: whole pages, of models with windows up to a checkpoint.
  // 0: none, or it is another tenant's, or was computed under a policy that is not this one.
  int32_t Common(const RequestSpec& spec, const AttentionAssignment& policy,
                 const Sequence& running, const RequestSpec& other) const;

  // What Common gave is computed: makes it known, if it is not.
  void KeepCommon(int32_t length, const Sequence& sequence, Request& request);

  // The request ends before its prompt is read: what is computed may serve whoever sends it again.
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
  // Pages are left under that policy, on that ring: returns the text of the policy.
  std::string NotePlace(const AttentionAssignment* policy, const std::vector<int32_t>& ring);
  bool has_windows() const;

  const std::string identity_;
  const PlanLimits limits_;
  const std::vector<RopeConfig> ropes_;
  const PageBook& book_;
  PrefixIndex index_;
  std::set<std::vector<int32_t>> rings_;  // of all sequences that left something
  // Under which something was left, other than dense; the latest kMostPolicies, the newest last.
  static constexpr size_t kMostPolicies = 32;
  std::vector<std::string> policies_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PREFIX_REUSE_H_
