#include "engine/runner/choice/own_queries.h"

#include <algorithm>

#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

using Ask = ChoiceQuery::Ask;

// The rows at the positions `wanted`, which are among `positions`.
absl::Status TakeRows(const ChoiceContext& context, const ConstMatrixView& own,
                      std::span<const int32_t> positions, std::span<const int32_t> wanted,
                      const MatrixView& to) {
  std::vector<int32_t> rows;
  for (const int32_t position : wanted) {
    const auto at = std::lower_bound(positions.begin(), positions.end(), position);
    rows.push_back(static_cast<int32_t>(at - positions.begin()));
  }
  return context.ops.gather_rows(context.stream, {own, rows, to});
}

// Dense rows where the host can read them: in place, or in a copy.
absl::StatusOr<ConstMatrixView> OnHost(const ChoiceContext& context, const ConstMatrixView& rows) {
  if (context.backend.capabilities().host_accessible) return rows;
  ANNULUS_CHECK(rows.stride == rows.cols) << "rows to copy are dense";
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> copy,
                           context.Keep(static_cast<size_t>(rows.rows * rows.cols)));
  ANNULUS_RETURN_IF_ERROR(
      context.backend.Copy(context.stream, copy.data(), rows.data, copy.size_bytes()));
  ANNULUS_RETURN_IF_ERROR(context.stream.Synchronize());
  return ConstMatrixView{copy.data(), rows.rows, rows.cols, rows.cols};
}

// The mean of the own rows of each query block in `wanted`, which are all own rows.
absl::Status TakeMeans(const ChoiceContext& context, const Choice& item, const ConstMatrixView& own,
                       std::span<const int32_t> wanted, const MatrixView& to) {
  const std::vector<int32_t>& rows = item.positions(item.index());
  std::vector<int32_t> ends;
  size_t row = 0;
  for (const int32_t block : wanted) {
    while (row < rows.size() && rows[row] / item.block == block) ++row;
    ends.push_back(static_cast<int32_t>(row));
  }
  return context.ops.row_means(context.stream, {own, ends, to});
}

}  // namespace

absl::Status TakeOwnQueries(const ChoiceContext& context, const ChoiceLayer& layer,
                            const Choice& item, ChoiceQuery& query) {
  const RingItem& ring = *item.ring;
  const std::vector<int32_t>& wanted = query.positions[ring.index];
  if (wanted.empty()) return absl::OkStatus();
  const ConstMatrixView own = layer.query.row_range(ring.first_row, ring.own_rows());
  query.own = own;
  if (query.kind == Ask::kAntidiagonal) {
    // Messages of a choice lie where all ranks reach them; rows of this device do where nothing is
    // copied.
    if (!context.link.copies()) return absl::OkStatus();
    ANNULUS_ASSIGN_OR_RETURN(query.own, OnHost(context, own));
    return absl::OkStatus();
  }
  const auto count = static_cast<int64_t>(wanted.size());
  const int64_t columns = context.columns();
  ANNULUS_ASSIGN_OR_RETURN(const std::span<float> data,
                           context.Keep(wanted.size() * static_cast<size_t>(columns)));
  const MatrixView to{data.data(), count, columns, columns};
  query.own = to;
  if (query.kind == Ask::kExact || query.kind == Ask::kKept) {
    return TakeRows(context, own, ring.positions[ring.index], wanted, to);
  }
  return TakeMeans(context, item, own, wanted, to);
}

}  // namespace annulus
