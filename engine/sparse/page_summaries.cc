#include "engine/sparse/page_summaries.h"

#include "engine/sparse/policy_type.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

void AddSummaries(BlockEstimate::Source source, SummaryKinds& kinds) {
  kinds.bounds = kinds.bounds || source == BlockEstimate::Source::kBounds;
  kinds.means = kinds.means || source == BlockEstimate::Source::kMeans;
}

// What any form that `auto` may take needs.
SummaryKinds SummariesOfForms() {
  SummaryKinds kinds;
  for (const PolicyType* type : kPolicyTypes) {
    for (const AutoForm& form : type->forms) {
      AddSummaries(EstimateOf(*ParsePolicy(form.policy)).source, kinds);
    }
  }
  return kinds;
}

void AddSummaries(const AttentionPolicy& policy, SummaryKinds& kinds) {
  AddSummaries(EstimateOf(policy).source, kinds);
  if (!IsAutomatic(policy)) return;
  static const SummaryKinds of_forms = SummariesOfForms();
  kinds.bounds = kinds.bounds || of_forms.bounds;
  kinds.means = kinds.means || of_forms.means;
}

// Elements of the least keys of one page.
int64_t BoundElements(const SummaryKinds& kinds, const KvPageShape& shape) {
  if (!kinds.bounds) return 0;
  return int64_t{shape.page_tokens / kBoundTokens} * shape.kv_heads * shape.k_dim;
}

}  // namespace

SummaryKinds SummariesOf(const AttentionAssignment& assignment) {
  SummaryKinds kinds;
  AddSummaries(assignment.policy, kinds);
  for (const AttentionRule& rule : assignment.rules) AddSummaries(rule.policy, kinds);
  return kinds;
}

int64_t PagesSummarised(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes) {
  if (!kinds.any()) return 0;
  int64_t elements = 2 * BoundElements(kinds, shape);
  if (kinds.means) elements += int64_t{shape.kv_heads} * shape.k_dim;
  return static_cast<int64_t>(part_bytes / sizeof(float)) / elements;
}

SummaryPlaces::SummaryPlaces(const SummaryKinds& kinds, const KvPageShape& shape, size_t part_bytes,
                             std::span<std::byte* const> parts)
    : pages_(PagesSummarised(kinds, shape, part_bytes)),
      bounds_(pages_ * BoundElements(kinds, shape)) {
  runs_.reserve(parts.size());
  for (std::byte* const part : parts) runs_.push_back(reinterpret_cast<float*>(part));
}

absl::Status PageSummaries::Extend(const OpTable& ops, Stream& stream, const KvPageShape& shape,
                                   std::span<const KvPageView> pages, const SummaryPlaces& places) {
  const auto first = static_cast<size_t>(pages_);
  size_t complete = first;
  while (complete < pages.size() && pages[complete].tokens == shape.page_tokens) ++complete;
  if (complete == first) return absl::OkStatus();
  KeySummaryParams params;
  params.shape = shape;
  params.pages = pages.subspan(first, complete - first);
  params.parts = parts(shape);
  params.to = places.runs();
  params.first = pages_;
  if (kind_ == Kind::kMean) {
    params.mean = places.mean();
  } else {
    params.least = places.least();
    params.greatest = places.greatest();
  }
  ANNULUS_RETURN_IF_ERROR(ops.key_summary(stream, params));
  pages_ = static_cast<int64_t>(complete);
  return absl::OkStatus();
}

absl::Status PageSummaries::Score(const OpTable& ops, Stream& stream, const KvPageShape& shape,
                                  int heads, const ConstMatrixView& query, int64_t count,
                                  const SummaryPlaces& places, float* scores) const {
  if (count == 0) return absl::OkStatus();
  SummaryScoresParams params;
  params.kv_heads = shape.kv_heads;
  params.heads = heads;
  params.k_dim = shape.k_dim;
  params.pages = count;
  params.parts = parts(shape);
  params.query = query;
  params.from = places.runs();
  params.least = kind_ == Kind::kMean ? places.mean() : places.least();
  params.greatest = kind_ == Kind::kMean ? places.mean() : places.greatest();
  params.scores = scores;
  return ops.summary_scores(stream, params);
}

}  // namespace annulus
