#ifndef ANNULUS_CLIENT_READ_WEB_HTML_H_
#define ANNULUS_CLIENT_READ_WEB_HTML_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/context.h"
#include "client/read/encoding.h"
#include "client/read/web/page_survey.h"

namespace annulus::client {

// Where a page comes from.
struct PageSource {
  bool xhtml = false;                 // it is a page of an e-book
  std::string entry{};                // its name in the book
  const PageStyle* sheets = nullptr;  // rules of its linked style sheets; may be null
  BookLinks* links = nullptr;         // of all pages of the book; may be null
};

// Returns the visible text of a page: headings, paragraphs, lists, table rows, formulas, form
// values and preformatted text. Leaves out scripts, styles, templates and navigation; and what the
// page hides, which it counts in `context`. If the page has no heading, its title becomes one.
// INVALID_ARGUMENT if the page is not text, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit.
// `what` names the page in messages.
absl::StatusOr<Utf8Text> ReadHtml(absl::string_view what, std::string bytes, ReadContext& context,
                                  const PageSource& source = {});

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_WEB_HTML_H_
