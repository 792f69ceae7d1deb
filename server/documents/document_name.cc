#include "server/documents/document_name.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/base/errors.h"

namespace annulus::server {

absl::Status CheckDocumentName(absl::string_view field, absl::string_view name) {
  bool allowed = !name.empty() && name.size() <= kLongestDocumentName &&
                 absl::ascii_isalnum(name.front()) && !absl::StrContains(name, "..");
  for (const char c : name) {
    allowed = allowed && (absl::ascii_isalnum(c) || c == '.' || c == '_' || c == '-');
  }
  if (allowed) return absl::OkStatus();
  return FieldError(field,
                    absl::StrCat("document name ", QuoteName(name),
                                 " is not allowed: 1 to 128 ASCII letters, digits, '.', "
                                 "'_' and '-', the first a letter or digit, without \"..\""));
}

}  // namespace annulus::server
