#include "server/generation/prefill.h"

#include <string>
#include <utility>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"
#include "server/base/errors.h"

namespace annulus::server {

void CutAfterDocuments(RequestSpec& request) {
  ANNULUS_CHECK(!request.shared_prefixes.empty()) << "a prefill without a document";
  request.prefill_only = true;
  request.prompt.resize(static_cast<size_t>(request.shared_prefixes.back()));
}

absl::Status PlacePrefillField(absl::Status status) {
  const auto payload = status.GetPayload(kFieldPayload);
  if (!payload.has_value()) return status;
  const std::string path(*payload);
  absl::string_view field = absl::StripPrefix(path, "spec.");
  if (absl::StartsWith(field, "documents")) field = "name";
  if (absl::StartsWith(field, "messages")) field = "system";
  if (absl::StartsWith(field, "sampling")) field = "name";  // the context has no room for an answer
  return MoveField(status, field);
}

}  // namespace annulus::server
