#include "client/cli/document_options.h"

namespace annulus {

void AddDocumentOptions(CLI::App& command, DocumentChoice& choice) {
  const auto add = [&](const char* flag, std::vector<std::string>& patterns, const char* help) {
    command.add_option(flag, patterns, help)->allow_extra_args(false)->type_name("PATTERN");
  };
  add("--include", choice.files.include,
      "Of folders and patterns only files that match, for example '*.md'; may be repeated");
  add("--exclude", choice.files.exclude, "Of folders and patterns no files that match");
  command.add_flag("--skip-unreadable", choice.skip_unreadable,
                   "Go on without files that cannot be read; the exit code is then 3");
}

}  // namespace annulus
