#ifndef ANNULUS_CLIENT_READ_ODT_H_
#define ANNULUS_CLIENT_READ_ODT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus::client {

// Returns the headings, paragraphs, lists and table rows of an OpenDocument text in document order.
// Notes become "[^1]", with their text at the end. Leaves out tracked deletions and comments.
// INVALID_ARGUMENT if the file is broken or encrypted, NOT_FOUND if it lacks its content,
// RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit of `budget`. `what`: the file, for messages.
absl::StatusOr<std::string> ReadOdt(absl::string_view what, const ZipArchive& archive,
                                    ReadBudget& budget);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_ODT_H_
