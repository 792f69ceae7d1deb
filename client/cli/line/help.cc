#include "client/cli/line/help.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"

namespace annulus::client {
namespace {

constexpr size_t kColumns = 98;
constexpr size_t kNameColumns = 30;
constexpr char kOwnGroup[] = "Options";

// "  name          what it is, wrapped and\n                indented\n".
std::string Entry(const std::string& name, const std::string& what) {
  std::string line = absl::StrFormat("  %-*s", kNameColumns - 2, name);
  if (line.back() != ' ') absl::StrAppend(&line, "\n", std::string(kNameColumns, ' '));
  size_t column = kNameColumns;
  for (const auto& word : absl::StrSplit(what, ' ', absl::SkipEmpty())) {
    if (column > kNameColumns && column + 1 + word.size() > kColumns) {
      absl::StrAppend(&line, "\n", std::string(kNameColumns, ' '));
      column = kNameColumns;
    }
    absl::StrAppend(&line, column > kNameColumns ? " " : "", word);
    column += word.size() + 1;
  }
  return absl::StrCat(line, "\n");
}

std::string OptionName(const CLI::Option& option) {
  const bool takes_value = option.get_items_expected_max() > 0;
  return absl::StrCat(option.get_name(false, true), takes_value ? " " : "",
                      takes_value ? option.get_type_name() : "");
}

std::vector<const CLI::Option*> OptionsOf(const CLI::App& app, const std::string& group) {
  return app.get_options([&](const CLI::Option* option) {
    return option->nonpositional() && option->get_group() == group;
  });
}

std::vector<const CLI::Option*> ArgumentsOf(const CLI::App& app) {
  return app.get_options([](const CLI::Option* option) {
    return option->get_positional() && !option->get_group().empty();
  });
}

}  // namespace

std::vector<const CLI::App*> CommandsOf(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_name().empty(); });
}

std::string FullName(const CLI::App& command) {
  const CLI::App* parent = command.get_parent();
  return parent == nullptr ? command.get_name()
                           : absl::StrCat(FullName(*parent), " ", command.get_name());
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string /*name*/,
                                     CLI::AppFormatMode /*mode*/) const {
  std::string help = absl::StrCat("Usage: ", FullName(*app));
  for (const CLI::Option* argument : ArgumentsOf(*app)) {
    const std::string name = argument->get_name(true);
    absl::StrAppend(&help, " ", argument->get_required() ? name : absl::StrCat("[", name, "]"));
  }
  absl::StrAppend(&help, CommandsOf(*app).empty() ? "" : " COMMAND", " [OPTIONS]\n\n",
                  app->get_description(), "\n");
  if (!ArgumentsOf(*app).empty()) absl::StrAppend(&help, "\nArguments:\n");
  for (const CLI::Option* argument : ArgumentsOf(*app)) {
    absl::StrAppend(&help, Entry(argument->get_name(true), argument->get_description()));
  }
  if (!CommandsOf(*app).empty()) absl::StrAppend(&help, "\nCommands:\n");
  for (const CLI::App* command : CommandsOf(*app)) {
    absl::StrAppend(&help, Entry(command->get_name(), command->get_description()));
  }
  for (const char* group :
       {kOwnGroup, kAttentionGroup, kFormGroup, kSamplingGroup, kOutputGroup, kServerGroup}) {
    const auto options = OptionsOf(*app, group);
    if (!options.empty()) absl::StrAppend(&help, "\n", group, ":\n");
    for (const CLI::Option* option : options) {
      absl::StrAppend(&help, Entry(OptionName(*option), option->get_description()));
    }
  }
  return absl::StrCat(help, "\n", app->get_footer(), "\n");
}

}  // namespace annulus::client
