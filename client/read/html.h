#ifndef ANNULUS_CLIENT_READ_HTML_H_
#define ANNULUS_CLIENT_READ_HTML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/encoding.h"
#include "client/read/limits.h"

namespace annulus {

// The text that a page shows: headings, paragraphs, lists, rows of tables, preformatted text.
// Scripts, styles and templates are left out. The page's title stands before a page that has no
// heading. INVALID_ARGUMENT if the page is not text, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a
// limit.
absl::StatusOr<Utf8Text> ReadHtml(absl::string_view what, std::string bytes, ReadBudget& budget);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_HTML_H_
