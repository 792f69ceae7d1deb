#include "client/cli/line/misuse.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "client/cli/line/help.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

// The innermost command that the command line names, or `app` if it names none.
const CLI::App& NamedCommand(const CLI::App& app) {
  const CLI::App* named = &app;
  while (!named->get_subcommands().empty()) named = named->get_subcommands().front();
  return *named;
}

std::vector<std::string> CommandNames(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : CommandsOf(app)) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> FlagNames(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back(absl::StrCat("--", name));
  }
  return names;
}

std::string Question(const std::string& meant) {
  return meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?");
}

// `flags_ended`: a "--" stands before the word.
std::string DescribeUnknown(const CLI::App& command, const std::string& word, bool flags_ended) {
  if (absl::StartsWith(word, "-") && !flags_ended) {
    return absl::StrCat("unknown option: ", word, Question(MeantWord(word, FlagNames(command))));
  }
  const std::vector<std::string> commands = CommandNames(command);
  if (!commands.empty()) {
    return absl::StrCat("unknown command: ", word, Question(MeantWord(word, commands)),
                        "\nCommands: ", absl::StrJoin(commands, ", "));
  }
  const CLI::Option* const document = command.get_option_no_throw(kDocumentFlag);
  if (document != nullptr && document->count() > 0) {
    return absl::StrCat("unexpected argument: ", word, "; ", kDocumentFlag,
                        " takes one document: repeat it for each (", kDocumentFlag, " a.txt ",
                        kDocumentFlag, " b.txt), and put quotes around a text with spaces");
  }
  return absl::StrCat("unexpected argument: ", word, "; put quotes around a text with spaces");
}

std::string DescribeError(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = NamedCommand(app);
  const std::vector<std::string> rest = app.remaining(/*recurse=*/true);
  const bool is_required = dynamic_cast<const CLI::RequiredError*>(&error) != nullptr;
  const bool is_extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  // CLI11 reports missing arguments before unknown ones; the unknown one is the likelier mistake.
  if ((is_required || is_extra) && !rest.empty()) {
    const bool flags_ended = rest.front() == "--" && rest.size() > 1;
    return DescribeUnknown(command, rest[flags_ended ? 1 : 0], flags_ended);
  }
  if (is_required && !CommandsOf(command).empty()) {
    return absl::StrCat("a command is required: ", absl::StrJoin(CommandNames(command), ", "));
  }
  absl::string_view what = error.what();
  if (!absl::ConsumePrefix(&what, "Could not convert: ")) return std::string(what);
  return absl::StrCat(what, " is not a valid number for this option");
}

}  // namespace

std::string DescribeMisuse(const CLI::App& app, const CLI::ParseError& error) {
  return absl::StrCat(DescribeError(app, error), "\n'", FullName(NamedCommand(app)),
                      " --help' says what is allowed.");
}

}  // namespace annulus::client
