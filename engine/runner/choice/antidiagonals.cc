#include "engine/runner/choice/antidiagonals.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"

namespace annulus {

Antidiagonals::Antidiagonals(const ChoiceContext& context, const ChoiceLayer& layer,
                             const Choice& item, const ChoiceQuery& query, int runner)
    : context_(context), item_(item), query_(query), positions_(query.positions[runner]) {
  int32_t last = -1;
  for (const ShardPage& page : item.choosing->candidates.seen_by[runner]) {
    const int32_t block = page.first_position / item.block;
    if (block != last) first_page_.push_back(pages_.size());
    last = block;
    pages_.push_back({layer.page_data(page.page), page.first_position, page.tokens});
  }
  first_page_.push_back(pages_.size());
}

// Bytes that the arena has left.
size_t Antidiagonals::Room() const { return context_.arena.capacity() - context_.arena.used(); }

// Behind the query blocks from row `first` on that together have at most `most` row groups; one
// query block at least.
size_t Antidiagonals::EndOfPart(size_t first, int64_t most) const {
  size_t end = first;
  while (end < positions_.size()) {
    size_t next = end;
    while (next < positions_.size() &&
           positions_[next] / item_.block == positions_[end] / item_.block) {
      ++next;
    }
    most -= CountRowGroups(std::span(positions_).subspan(end, next - end), query_.stride);
    if (end > first && most < 0) break;
    end = next;
  }
  return end;
}

// The rows [first, first + count) of the runner.
Antidiagonals::Part Antidiagonals::PartOf(const float* rows, size_t first, size_t count) const {
  Part part;
  const int64_t columns = context_.columns();
  part.query = {rows + static_cast<int64_t>(first) * columns, static_cast<int64_t>(count), columns,
                columns};
  part.positions = std::span(positions_).subspan(first, count);
  int32_t groups = 0;
  for (size_t r = 0; r < count; ++r) {
    const int32_t position = part.positions[r];
    const int32_t before = r == 0 ? -1 : part.positions[r - 1];
    if (r == 0 || position / query_.stride != before / query_.stride) ++groups;
    if (r == 0 || position / item_.block != before / item_.block) part.ends.push_back(0);
    part.ends.back() = groups;
  }
  part.lists = int64_t{groups} * context_.heads();
  return part;
}

// Scores of blocks [first, first + count).
absl::Status Antidiagonals::Score(const Part& part, int64_t first, int64_t count,
                                  float* scores) const {
  const size_t begin = first_page_[first];
  BlockScoresItem scored;
  scored.query = part.query;
  scored.positions = part.positions;
  scored.pages = std::span(pages_).subspan(begin, first_page_[first + count] - begin);
  scored.scores = scores;
  return context_.ScoreBlocks(scored, item_.block, query_.stride);
}

// Visits the scores of some blocks after the other, as many as the arena has room for.
template <class Visit>
absl::Status Antidiagonals::ForSlices(const Part& part, const Visit& visit) const {
  const StepArena::Position before = context_.arena.Mark();
  const int64_t most = static_cast<int64_t>(Room() / sizeof(float)) / part.lists;
  const int64_t together = std::min(blocks(), most);
  if (together == 0) {
    return absl::ResourceExhaustedError(absl::StrCat("scores of a block take ",
                                                     part.lists * sizeof(float), " bytes, and ",
                                                     Room(), " of the step's arena are left"));
  }
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> scores,
                           context_.arena.Take<float>(static_cast<size_t>(part.lists * together)));
  for (int64_t first = 0; first < blocks(); first += together) {
    const int64_t count = std::min(together, blocks() - first);
    ANNULUS_RETURN_IF_ERROR(Score(part, first, count, scores.data()));
    ANNULUS_RETURN_IF_ERROR(visit(first, ConstMatrixView{scores.data(), part.lists, count, count}));
  }
  context_.arena.Rewind(before);
  return absl::OkStatus();
}

absl::Status Antidiagonals::SumPart(const Part& part, size_t spare, ScoredRows& scored) const {
  const auto add_up = [&](int64_t first, const ConstMatrixView& scores) {
    return context_.ops.score_sums(context_.stream, {scores, scored.sums.data(), first > 0});
  };
  const auto count = static_cast<size_t>(part.lists * blocks());
  if (StepArena::BytesFor<float>(count) + spare > Room()) return ForSlices(part, add_up);
  ANNULUS_ASSIGN_OR_RETURN(scored.kept, context_.arena.Take<float>(count));
  ANNULUS_RETURN_IF_ERROR(Score(part, 0, blocks(), scored.kept.data()));
  return add_up(0, {scored.kept.data(), part.lists, blocks(), blocks()});
}

absl::Status Antidiagonals::PoolPart(const Part& part, const ScoredRows& scored, const float* sums,
                                     float* masses) const {
  const auto pool = [&](int64_t first, const ConstMatrixView& scores) {
    BlockMassesParams params;
    params.scores = scores;
    params.sums = sums;
    params.ends = part.ends;
    params.heads = context_.heads();
    params.kv_heads = context_.kv_heads();
    params.masses = {masses + first, std::ssize(part.ends) * context_.kv_heads(), scores.cols,
                     blocks()};
    return context_.ops.block_masses(context_.stream, params);
  };
  if (scored.kept.empty()) return ForSlices(part, pool);
  return pool(0, {scored.kept.data(), part.lists, blocks(), blocks()});
}

absl::Status Antidiagonals::Sum(const float* rows, size_t spare, ScoredRows& scored) const {
  const Part part = PartOf(rows, 0, positions_.size());
  scored.rows = rows;
  ANNULUS_ASSIGN_OR_RETURN(scored.sums, context_.Keep(static_cast<size_t>(part.lists)));
  return SumPart(part, spare, scored);
}

absl::Status Antidiagonals::Pool(const ScoredRows& scored, const float* sums,
                                 std::span<float> masses) const {
  return PoolPart(PartOf(scored.rows, 0, positions_.size()), scored, sums, masses.data());
}

absl::Status Antidiagonals::SumAndPool(const float* rows, std::span<float> masses) const {
  const size_t group_bytes = static_cast<size_t>(context_.heads() * blocks()) * sizeof(float);
  const auto most = static_cast<int64_t>(Room() / group_bytes);
  float* to = masses.data();
  for (size_t first = 0; first < positions_.size();) {
    const size_t end = EndOfPart(first, most);
    const Part part = PartOf(rows, first, end - first);
    const StepArena::Position before = context_.arena.Mark();
    ScoredRows scored;
    ANNULUS_ASSIGN_OR_RETURN(scored.sums, context_.Keep(static_cast<size_t>(part.lists)));
    ANNULUS_RETURN_IF_ERROR(SumPart(part, 0, scored));
    ANNULUS_RETURN_IF_ERROR(PoolPart(part, scored, scored.sums.data(), to));
    context_.arena.Rewind(before);
    to += std::ssize(part.ends) * context_.kv_heads() * blocks();
    first = end;
  }
  return absl::OkStatus();
}

}  // namespace annulus
