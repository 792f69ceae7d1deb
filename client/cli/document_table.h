#ifndef ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_
#define ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_

#include <span>
#include <string>

#include "annulus/v1/document.pb.h"

namespace annulus::client {

// How long ago a request last used the document: "3 min 3 s ago", or "never".
std::string LastUsed(const v1::Document& document);

// Whether the document is pinned and when its prefill expires: "pinned, 1 h 4 min left", or "-".
std::string PinText(const v1::Document& document);

// The title, made safe for a terminal (see OnOneLine) because anybody may have chosen it; "-" if
// there is none.
std::string ShownTitle(const v1::Document& document);

// Formats one row for each document. If `columns`, the width of the terminal, is not 0, shortens
// names that are hashes to patterns, which the commands accept in place of names, and leaves out
// AGE and empty columns. With `columns` 0, for output that is not a terminal, shows everything.
std::string DocumentTable(std::span<const v1::Document> documents, int columns);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_DOCUMENT_TABLE_H_
