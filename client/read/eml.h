#ifndef ANNULUS_CLIENT_READ_EML_H_
#define ANNULUS_CLIENT_READ_EML_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/context.h"

namespace annulus::client {

struct MailAttachment {
  std::string name;   // may be empty
  std::string bytes;  // decoded
};

struct Mail {
  std::string text;  // headers and the text part
  std::vector<MailAttachment> attachments;
};

// Reads one mail message (RFC 5322 and MIME): who wrote it to whom, when and about what; its text,
// of a plain part rather than an HTML one; and its attachments. Pictures inside an HTML part are
// left out. RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the file in messages.
absl::StatusOr<Mail> ReadEml(absl::string_view what, absl::string_view bytes, ReadContext& context);

// The messages of a mailbox in the form of mbox (RFC 4155), without the lines that begin them. A
// line that begins with "From " begins a message if it is the first, or if an empty line is above
// it and a header below it.
std::vector<absl::string_view> SplitMailbox(absl::string_view bytes);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_EML_H_
