#ifndef ANNULUS_CLIENT_CLI_LINE_DOCUMENT_OPTIONS_H_
#define ANNULUS_CLIENT_CLI_LINE_DOCUMENT_OPTIONS_H_

#include <CLI/CLI.hpp>
#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "client/cli/input/provide.h"

namespace annulus::client {

// Adds --with, --encoding, --pdf, --ocr and --ocr-languages. `options` must outlive `command`.
void AddReadOptions(CLI::App& command, ReadOptions& options);

// Adds --document, which takes one document and may be repeated. `documents` must outlive
// `command`.
void AddDocumentFlag(CLI::App& command, std::vector<std::string>& documents);

// Adds --include, --exclude, --skip-unreadable, --strict and the options of AddReadOptions.
// `choice` must outlive `command`.
void AddDocumentOptions(CLI::App& command, DocumentChoice& choice);

// Adds the arguments DOC... and QUESTION. Parsing appends all of them to `words`, the question
// last. `argument_count` is the number of words on the command line. `without_documents` is for
// --help: what the command uses as the document if there is only a question.
void AddDocumentsAndQuestion(CLI::App& command, std::vector<std::string>& words,
                             size_t argument_count, absl::string_view without_documents);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_LINE_DOCUMENT_OPTIONS_H_
