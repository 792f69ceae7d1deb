#ifndef ANNULUS_CLIENT_READ_OFFICE_ODT_H_
#define ANNULUS_CLIENT_READ_OFFICE_ODT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/context.h"

namespace annulus::client {

// Returns the headings, paragraphs, lists, formulas, form values and table rows of an OpenDocument
// text in document order. Notes become "[^1]", with their text at the end. Leaves out tracked
// deletions; and hidden text, page headers, comments and descriptions of pictures, as `context`
// says, and counts them. INVALID_ARGUMENT if the file is broken or encrypted, RESOURCE_EXHAUSTED or
// DEADLINE_EXCEEDED at a limit. `what` names the file in messages.
absl::StatusOr<std::string> ReadOdt(absl::string_view what, const ZipArchive& archive,
                                    ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_ODT_H_
