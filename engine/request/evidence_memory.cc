#include "engine/request/evidence_memory.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "engine/base/field_error.h"
#include "engine/request/evidence_account.h"
#include "engine/runner/choice/evidence_masses.h"
#include "kernels/base/pinned_size.h"

namespace annulus {
namespace {

// What the ranges of a request come to.
struct EvidenceCounts {
  int64_t ranges = 0;
  int64_t parts = 0;  // EvidenceParts
  int64_t cuts = 0;   // the sums that the parts need, at most
};

template <typename T>
size_t BytesOf(int64_t count) {
  return sizeof(T) * static_cast<size_t>(count);
}
// Of a vector that was filled one by one: its room has doubled.
template <typename T>
size_t GrownBytesOf(int64_t count) {
  return 2 * BytesOf<T>(count);
}

// What the lists of a step take on the heap of each rank of the ring.
size_t ListBytes(const EvidenceCounts& counts, int64_t columns, int64_t pages) {
  return GrownBytesOf<RowRange>(counts.parts) + BytesOf<RowRange>(counts.ranges) +
         GrownBytesOf<int32_t>(counts.cuts) +
         // Every rank knows what each holds.
         GrownBytesOf<size_t>(columns) + GrownBytesOf<PageEntry>(pages);
}

// What a rank lists while it scores. A cut inside of a block is an item by itself.
size_t ScoringBytes(int64_t cuts_inside, int64_t columns, int64_t pages) {
  return GrownBytesOf<KvPageView>(pages) + GrownBytesOf<size_t>(columns) +
         (1 + cuts_inside) * (sizeof(BlockScoresItem) + 4 * sizeof(std::vector<size_t>));
}

// What `buffers` buffers of the host's memory take that hold so many floats together. PinnedSize
// makes less than twice its size of each, or its least. Of n rows, as many buffers take at most n
// times what they take of one.
size_t HostBytes(const EvidenceShape& shape, int64_t floats, int64_t buffers) {
  const auto bytes = BytesOf<float>(floats);
  return shape.pinned ? 2 * bytes + static_cast<size_t>(buffers) * PinnedSize(1) : bytes;
}

EvidenceNeed NeedFor(const EvidenceShape& shape, const EvidenceCounts& counts) {
  const int64_t block_pages = EvidenceBlock(shape.page_tokens) / shape.page_tokens;
  // A block whose pages lie on several ranks has a sum on each.
  const int64_t sums_of_block = std::min<int64_t>(shape.ranks, block_pages);
  const int64_t columns = counts.cuts * sums_of_block;
  const int64_t pages = counts.cuts * block_pages;
  // The home has a row's queries, and others may get a copy; sums come home as copies.
  const int64_t sum_copies = shape.ranks > 1 ? 2 : 1;
  // Of a layer: queries and sums on each rank, and at home what the others send.
  const int64_t buffers = shape.layers * (2 * shape.ranks + (shape.ranks - 1));
  EvidenceNeed need;
  need.messages = HostBytes(
      shape, shape.ranks * shape.query_floats + sum_copies * shape.layers * columns, buffers);
  need.scores = HostBytes(shape, shape.heads * columns, shape.ranks);
  need.sums = BytesOf<double>(counts.cuts + counts.parts) + 2 * sizeof(std::vector<double>) +
              GrownBytesOf<EvidenceShare>(std::min<int64_t>(counts.parts, kMostEvidenceShares));
  const size_t account = GrownBytesOf<RowRange>(counts.parts) + BytesOf<float>(2 * counts.parts);
  need.lists = static_cast<size_t>(shape.ranks) * ListBytes(counts, columns, pages) +
               ScoringBytes(2 * counts.ranges * sums_of_block, columns, pages) + account;
  return need;
}

}  // namespace

EvidenceShape EvidenceShapeOf(const RankModel& model, std::span<const LayerHead> heads, int ranks,
                              const BackendCapabilities& device) {
  EvidenceShape shape;
  shape.pinned = !device.host_accessible;
  shape.page_tokens = model.page_shape.page_tokens;
  shape.ranks = ranks;
  std::set<int> layers;
  for (const LayerHead& head : heads) layers.insert(head.layer);
  for (const int layer : layers) {
    const AttentionShape& attention = model.attention(layer);
    shape.query_floats += int64_t{attention.heads} * (attention.k_dim + 1);
    shape.heads = std::max<int64_t>(shape.heads, attention.heads);
  }
  shape.layers = std::ssize(layers);
  return shape;
}

EvidenceNeed NeedForEvidence(const EvidenceShape& shape, std::span<const RowRange> ranges) {
  if (shape.layers == 0) return {};
  const int32_t block = EvidenceBlock(shape.page_tokens);
  EvidenceCounts counts{.ranges = std::ssize(ranges)};
  for (const RowRange& range : ranges) {
    const int64_t parts = (range.end - 1) / block - range.begin / block + 1;
    counts.parts += parts;
    counts.cuts += parts + (range.begin % block != 0 ? 1 : 0);
  }
  return NeedFor(shape, counts);
}

EvidenceRoom PlanEvidence(const EvidenceShape& shape, int64_t tokens, int max_running,
                          size_t most) {
  if (shape.layers == 0 || tokens <= 0) return {};
  const int64_t documents = std::min(tokens, kMostPlannedDocuments);
  // Each document may begin and end inside of a block.
  const int64_t parts = std::min(tokens, tokens / EvidenceBlock(shape.page_tokens) + 2 * documents);
  const EvidenceNeed largest =
      NeedFor(shape, {.ranges = documents, .parts = parts, .cuts = parts + documents});
  const size_t one = largest.of_request();
  EvidenceRoom room;
  room.requests = std::min(static_cast<size_t>(max_running) * one, std::max(most, one));
  room.steps = static_cast<size_t>(shape.ranks) *
               (kMostSampledRows * largest.scores +
                (kMostSampledRows - 1) * (largest.messages + largest.sums));
  return room;
}

absl::Status CheckEvidenceRoom(const RequestSpec& spec, const EvidenceShape& shape,
                               const EvidenceRoom& room) {
  if (!spec.evidence) return absl::OkStatus();
  const size_t need = NeedForEvidence(shape, EvidenceRanges(spec.documents)).of_request();
  if (need <= room.requests) return absl::OkStatus();
  return FieldError(
      absl::StatusCode::kInvalidArgument, "evidence",
      absl::StrCat("evidence over ", spec.documents.size(), " documents takes ", need,
                   " bytes, and at most ", room.requests, " are kept for it; name at most ",
                   kMostPlannedDocuments, " documents, or leave it out"));
}

}  // namespace annulus
