#ifndef ANNULUS_ENGINE_PAGES_PREFIX_REUSE_H_
#define ANNULUS_ENGINE_PAGES_PREFIX_REUSE_H_

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

// Makes the pages of computed prompts known to later ones, and decides which known pages a prompt
// may reuse:
// - only pages of its own tenant, under the same identity and rotary frequencies;
// - pages computed with dense attention, or under the request's own policy;
// - pages of one ring. Pages of different rings never meet in one sequence, since they would spread
//   a shard over several ranks (kernels/ops/shards.h).
//
// "Known" means: in the prefix index, which keeps the pages until it evicts them. A "beginning" is
// a number of whole pages at the start of a prompt. Used by the coordinator's thread alone.
class PrefixReuse {
 public:
  // `identity`: CoordinatorOptions::identity. `ropes`: the model's rotary settings. `book` must
  // outlive the object.
  PrefixReuse(std::string identity, const PlanLimits& limits, std::vector<RopeConfig> ropes,
              PageBook& book);

  // Which rotary frequencies the request has: RopeLength of its prompt as submitted.
  int64_t RopeLengthOf(const RequestSpec& spec) const;

  // A known beginning whose pages were placed for `ring`.
  struct Found {
    std::vector<int32_t> ring;
    PrefixIndex::Hit hit;
  };
  // Returns, for each ring that has one, the longest known beginning of the prompt. Never includes
  // the prompt's last token, since that must be computed to get the answer's first token. `policy`:
  // the request's; null: dense. Marks what it finds as used. If `nearest` is not null, sets it to
  // the nearest known text of all rings, for WhyNoMore.
  std::vector<Found> Find(const RequestSpec& spec, const AttentionAssignment* policy,
                          PrefixIndex::Nearest* nearest = nullptr);
  // The same, but only of the prompt's first `tokens` tokens, and only what was computed under
  // `policy`.
  std::vector<Found> FindKept(const RequestSpec& spec, const AttentionAssignment* policy,
                              int32_t tokens);
  // Why no more than `cached` tokens of the prompt can be reused. `nearest`: from Find with the
  // same request and policy. Nothing if there is no particular reason: the rest of the prompt has
  // no whole page, the tenant left no prompt to compare it with, or the nearest one ends before
  // this prompt does. The nearest prompt is the one with the longest beginning in common. If none
  // has the same first page, it is one of those with the first of the documents that the tenant has
  // sent before, or, without such a document, of those whose pages this prompt may reuse
  // (PrefixIndex::FirstDifference says how many are compared).
  std::optional<CacheMiss> WhyNoMore(const RequestSpec& spec, const AttentionAssignment* policy,
                                     const PrefixIndex::Nearest& nearest, int32_t cached) const;
  // Returns the whole prompt, with its last token, if all of it is known. Marks it as used. Only
  // for prompts of whole pages: others are never known in full.
  std::optional<PrefixIndex::Hit> FindAll(const RequestSpec& spec,
                                          const AttentionAssignment* policy);
  bool HasAll(const RequestSpec& spec, const AttentionAssignment* policy) {
    return FindAll(spec, policy).has_value();
  }
  // The number of tokens in the longest beginning that Find returns; 0 if there is none.
  int64_t LongestFound(const RequestSpec& spec, const AttentionAssignment* policy);

  // Returns the longest known dense beginning of the prompt's first `tokens` tokens, with the pages
  // of full groups alone: see PrefixIndex::FindFull. Of several rings, takes the one with the
  // longest.
  std::optional<Found> FindFull(const RequestSpec& spec, int32_t tokens);

  // Call after each step: makes the prompt's beginnings known that end at one of the request's
  // checkpoints (Request::Checkpoints) and have been computed since the last call. Returns their
  // lengths in tokens, ascending.
  std::vector<int32_t> Keep(const Sequence& sequence, Request& request);

  // Makes the prompt's first `length` tokens known: whole pages, all of them complete. For models
  // with windows, the sequence must still have the window pages that the row at `length` sees.
  // `mark`: one for all calls for this request, whose lengths must grow: see PrefixIndex::Mark.
  // No-op if one of the request's documents was forgotten since Request::documents_found.
  void KeepUpTo(int32_t length, const Sequence& sequence, Request& request,
                PrefixIndex::Mark* mark = nullptr);

  // Describes pages that were loaded from a tier.
  struct Origin {
    TenantId tenant;
    const AttentionAssignment* policy = nullptr;  // null: dense
    int64_t rope_length = 0;
    std::vector<int32_t> ring;  // that they were placed for
    TaggedDocuments documents;
    SteadyTime asked;  // Request::documents_found of the request that they were loaded for
  };
  // Makes the loaded pages of `tokens` known, as if they had been computed. `coverage`, `page_at`:
  // as for PrefixIndex::Insert. No-op if one of the documents was forgotten since `asked`.
  void KeepLoaded(const Origin& origin, std::span<const int32_t> tokens,
                  std::optional<double> coverage,
                  const std::function<PageId(int group, int32_t first)>& page_at);

  // How many tokens the prompt of `spec`, under `policy`, could reuse from the prompt that
  // `running` is computing. `other`: the request of `running`. Whole pages, without the prompt's
  // last token; for models with windows, up to one of the other's checkpoints. 0 if nothing can be
  // reused, for example because of another tenant, policy, or rotary frequencies.
  int32_t Common(const RequestSpec& spec, const AttentionAssignment& policy,
                 const Sequence& running, const RequestSpec& other) const;

  // Makes the beginning that Common returned known, unless it is. It must have been computed.
  void KeepCommon(int32_t length, const Sequence& sequence, Request& request);

  // Makes known what is computed of a prompt that ends early, by a cancel, deadline or preemption,
  // so that a retry, or the request itself (Request::kept), continues from there. No-op if the
  // prompt is complete, or if window pages that the next row sees are gone.
  void KeepUnfinished(const Sequence& sequence, Request& request);

  // Sets the coverage that a just admitted request inherits from the pages it reuses: the lowest of
  // them. No-op for dense requests.
  void InheritCoverage(Request& request) const;

  // The documents of the prompt, with the tags under which the index knows them.
  static TaggedDocuments TagsOf(const RequestSpec& spec);

  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }
  // Heap bytes of all this, without the pages.
  int64_t bytes() const { return index_.bytes() + index_.evicted_bytes(); }

 private:
  // `policy`: AssignmentText; empty: dense.
  std::string Identity(const TenantId& tenant, const std::string& policy, int64_t rope_length,
                       const std::vector<int32_t>& ring) const;
  std::vector<Found> FindIn(const RequestSpec& spec, std::span<const int32_t> known,
                            const AttentionAssignment* policy,
                            PrefixIndex::Nearest* nearest = nullptr);
  // Notes that pages computed under the policy are known on the ring. Returns the policy's text.
  std::string NotePlace(const AttentionAssignment* policy, const std::vector<int32_t>& ring);
  // For a prompt whose first page is not known.
  std::optional<CacheMiss> WhyNoFirstPage(const RequestSpec& spec,
                                          const AttentionAssignment* policy,
                                          std::span<const int32_t> known) const;
  // Whether the sequence still has the window pages that the row at `length` sees.
  bool HasWindowsAt(int32_t length, const Sequence& sequence) const;

  const std::string identity_;
  const PlanLimits limits_;
  const std::vector<RopeConfig> ropes_;
  const PageBook& book_;
  PrefixIndex index_;
  std::set<std::vector<int32_t>> rings_;  // every ring for which pages were ever made known
  // The latest kMostPolicies policies, other than dense, under which pages were made known; newest
  // last.
  static constexpr size_t kMostPolicies = 32;
  std::vector<std::string> policies_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_PAGES_PREFIX_REUSE_H_
