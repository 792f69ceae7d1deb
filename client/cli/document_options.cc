#include "client/cli/document_options.h"

#include "absl/strings/str_cat.h"

namespace annulus::client {

void AddDocumentOptions(CLI::App& command, DocumentChoice& choice) {
  const auto add = [&](const char* flag, std::vector<std::string>& patterns, const char* help) {
    command.add_option(flag, patterns, help)->allow_extra_args(false)->type_name("PATTERN");
  };
  add("--include", choice.files.include,
      "From folders and patterns take only files that match, such as '*.md'; may be repeated");
  add("--exclude", choice.files.exclude, "From folders and patterns leave out files that match");
  command.add_flag("--skip-unreadable", choice.skip_unreadable,
                   "Go on without files that cannot be read; the exit code is then 3");
}

// Adds a separate option for each argument. With one option of many values, CLI11 would split an
// argument in square brackets, which may be a question.
void AddDocumentsAndQuestion(CLI::App& command, std::vector<std::string>& words,
                             size_t argument_count, absl::string_view without_documents) {
  const auto add = [&](const std::string& name, const std::string& help) {
    return command.add_option_function<std::string>(
        name, [&words](const std::string& value) { words.push_back(value); }, help);
  };
  add("DOC...",
      absl::StrCat("Documents: files (txt, md, html, pdf, docx, odt, epub, csv, json, source code, "
                   "gz and zip of these), folders, patterns such as 'reports/**/*.pdf', - for "
                   "standard input, or names of documents on the server. A file is uploaded once. "
                   "Default: ",
                   without_documents))
      ->required();
  add("QUESTION", "What to ask, the last argument; - for standard input");
  for (size_t i = 2; i < argument_count; ++i) add(absl::StrCat("DOC", i), "")->group("");
}

}  // namespace annulus::client
