#ifndef ANNULUS_CLIENT_READ_HTML_H_
#define ANNULUS_CLIENT_READ_HTML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/encoding.h"
#include "client/read/limits.h"

namespace annulus::client {

// Returns the visible text of a page: headings, paragraphs, lists, table rows and preformatted
// text. Leaves out scripts, styles, templates and form fields. If the page has no heading, its
// title becomes one. INVALID_ARGUMENT if the page is not text, RESOURCE_EXHAUSTED or
// DEADLINE_EXCEEDED at a limit. `what` names the page in messages.
absl::StatusOr<Utf8Text> ReadHtml(absl::string_view what, std::string bytes, ReadBudget& budget);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_HTML_H_
