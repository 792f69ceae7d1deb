#ifndef ANNULUS_SERVER_HTTP_FILES_FILE_JSON_H_
#define ANNULUS_SERVER_HTTP_FILES_FILE_JSON_H_

#include <string>

#include "engine/api.h"
#include "server/documents/document_store.h"

namespace annulus::server {

// A new id for a file: "file-" and 32 hexadecimal digits, which are random.
std::string NewFileId();

// A stored document as a file, in a shape that the SDKs of OpenAI and Anthropic read. Its id is the
// document's name. `kept`: what the engine has of it, told in the member "annulus"; null: not
// known.
std::string FileJson(const StoredDocument& document, const KeptDocument* kept);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_FILES_FILE_JSON_H_
