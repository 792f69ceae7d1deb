#ifndef ANNULUS_CLIENT_READ_OFFICE_PPTX_H_
#define ANNULUS_CLIENT_READ_OFFICE_PPTX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/context.h"

namespace annulus::client {

// Returns the slides of a presentation (Office Open XML) in their order, each below a line such as
// "[slide 3]", with its notes at its end. `main` is the name of its main part. Leaves out hidden
// slides, comments and descriptions of pictures, as `context` says, and counts them.
// INVALID_ARGUMENT if the file is broken, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit.
// `what` names the file in messages.
absl::StatusOr<std::string> ReadPptx(absl::string_view what, const ZipArchive& archive,
                                     const std::string& main, ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_PPTX_H_
