#ifndef ANNULUS_CLIENT_READ_ODT_H_
#define ANNULUS_CLIENT_READ_ODT_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/limits.h"

namespace annulus {

// Headings, paragraphs, lists and rows of tables of an OpenDocument text in their order; notes as
// "[^1]" with their text at the end. What was deleted while changes were tracked is left out.
absl::StatusOr<std::string> ReadOdt(absl::string_view what, const ZipArchive& archive,
                                    ReadBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_ODT_H_
