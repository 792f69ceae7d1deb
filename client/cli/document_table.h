#ifndef ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_
#define ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_

#include <span>
#include <string>

#include "annulus/v1/document.pb.h"

namespace annulus {

// How long ago a request last used it.
std::string LastUsed(const v1::Document& document);

// What keeps it, and until when.
std::string PinText(const v1::Document& document);

// Titles are anybody's: on one line, and with nothing that steers the terminal.
std::string ShownTitle(const v1::Document& document);

// A row for each. `columns` of a terminal: names that are hashes become patterns that stand for
// them, which the commands that take names understand, and columns in which nothing stands are left
// out. 0: it is for no terminal, and whole.
std::string DocumentTable(std::span<const v1::Document> documents, int columns);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_
