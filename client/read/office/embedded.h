#ifndef ANNULUS_CLIENT_READ_OFFICE_EMBEDDED_H_
#define ANNULUS_CLIENT_READ_OFFICE_EMBEDDED_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "client/read/archive.h"
#include "client/read/context.h"
#include "client/read/office/package.h"
#include "client/read/text_builder.h"

namespace annulus::client {

// Writes what a docx, pptx or xlsx shows from a part of its own: the texts of a diagram (SmartArt),
// those of the text boxes on a sheet, the title and values of a chart as a table, and of a document
// inside it (altChunk) its text, if that is HTML, a saved page or plain. Nothing for parts of other
// types. Adds a remark if a document inside it is of another kind. INVALID_ARGUMENT if the part is
// broken, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the file in messages.
absl::Status WriteEmbedded(absl::string_view what, const ZipArchive& archive,
                           const Relationship& part, ReadContext& context, TextBuilder* text);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_OFFICE_EMBEDDED_H_
