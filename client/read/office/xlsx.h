#ifndef ANNULUS_CLIENT_READ_OFFICE_XLSX_H_
#define ANNULUS_CLIENT_READ_OFFICE_XLSX_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/context.h"

namespace annulus::client {

// Returns the sheets of a workbook (Office Open XML), each as a heading and the rows of a table,
// with the values as the workbook shows them. `main` is the name of its main part. Leaves out
// hidden sheets, rows and columns, and comments, as `context` says, and counts them. After
// 1,000,000 cells, with the empty ones between others, it stops with a remark. INVALID_ARGUMENT if
// the file is broken, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the file in
// messages.
absl::StatusOr<std::string> ReadXlsx(absl::string_view what, const ZipArchive& archive,
                                     const std::string& main, ReadContext& context);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_XLSX_H_
