#ifndef ANNULUS_CLIENT_CLI_DOCUMENT_OPTIONS_H_
#define ANNULUS_CLIENT_CLI_DOCUMENT_OPTIONS_H_

#include <CLI/CLI.hpp>

#include "client/cli/inputs.h"

namespace annulus {

// --include, --exclude and --skip-unreadable. `choice` must outlive `command`.
void AddDocumentOptions(CLI::App& command, DocumentChoice& choice);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_DOCUMENT_OPTIONS_H_
