#include "engine/workers/ring_agreement.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/runner/rank_set.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

absl::Status CheckSame(absl::string_view what, const std::string& own, const std::string& other,
                       absl::string_view advice) {
  if (own == other) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      what, " of the worker is \"", other, "\", of the coordinator \"", own, "\"; ", advice));
}

}  // namespace

std::string RanksText(int first, int count) {
  if (count == 1) return absl::StrCat("rank ", first);
  return absl::StrCat("ranks ", first, " to ", first + count - 1);
}

std::string TimeText(std::chrono::milliseconds time) { return absl::StrCat(time.count(), " ms"); }

std::string PageLayoutOf(const RankModel& model) {
  const KvPageShape& shape = model.page_shape;
  return absl::StrCat(shape.page_tokens, " tokens of ", shape.kv_heads, " heads of ", shape.k_dim,
                      " and ", shape.v_dim, " in ", DTypeName(shape.dtype), ", ",
                      GeometryOf(model).page_bytes(), " bytes");
}

absl::Status CheckAgreement(const RingAgreement& own, const RingAgreement& other) {
  ANNULUS_RETURN_IF_ERROR(
      CheckSame("the build", own.build, other.build, "all processes of a ring run the same one"));
  ANNULUS_RETURN_IF_ERROR(CheckSame("the kernel table", own.kernels, other.kernels,
                                    "set --cpu-isa to one that both machines have"));
  ANNULUS_RETURN_IF_ERROR(CheckSame("the page layout", own.page_layout, other.page_layout,
                                    "give both the same --page-tokens, --kv-dtype and --model"));
  return CheckSame("the fingerprint of model and settings", own.fingerprint, other.fingerprint,
                   "give both the same --model files, --weights-dtype, --activations and "
                   "--attention-gates");
}

}  // namespace annulus
