#ifndef ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NAME_H_
#define ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NAME_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

inline constexpr size_t kLongestDocumentName = 128;  // bytes
inline constexpr size_t kLongestTitle = 1024;        // bytes of UTF-8

// INVALID_ARGUMENT, naming `field`, unless `name` consists of 1 to 128 characters [A-Za-z0-9._-],
// begins with a letter or digit and does not contain "..".
absl::Status CheckDocumentName(absl::string_view field, absl::string_view name);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_DOCUMENT_NAME_H_
