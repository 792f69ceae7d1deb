#ifndef ANNULUS_CLIENT_CLI_DOCUMENT_TEXT_H_
#define ANNULUS_CLIENT_CLI_DOCUMENT_TEXT_H_

#include <string>

#include "annulus/v1/document.pb.h"
#include "client/cli/session.h"

namespace annulus::client {

// Downloads the document `name` to the file at `path`, or to standard output if `path` is empty or
// "-". The file gets its name when it is complete; until then it has one that nobody else has. What
// is there and is no plain file, as a pipe or a device, is written to. Returns the exit code; after
// 0, `document` describes the document.
int SaveText(Session& session, const std::string& name, const std::string& path,
             v1::Document* document);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_DOCUMENT_TEXT_H_
