#include "client/cli/line/man_page.h"

#include <map>
#include <set>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "client/cli/line/help.h"

namespace annulus::client {
namespace {

// Escapes text for roff.
std::string Roff(absl::string_view text) {
  std::string lines = absl::StrReplaceAll(
      text, {{"\\", "\\e"}, {"-", "\\-"}, {"'", "\\(aq"}, {"^", "\\(ha"}, {"~", "\\(ti"}});
  if (absl::StartsWith(lines, ".")) lines.insert(0, "\\&");
  return absl::StrReplaceAll(lines, {{"\n.", "\n\\&."}});
}

std::string ManEntry(const std::string& name, const std::string& what) {
  return absl::StrCat(".TP\n.B ", Roff(name), "\n", what.empty() ? "\\&" : Roff(what), "\n");
}

std::string ManOption(const CLI::Option& option) {
  const bool takes_value = option.get_items_expected_max() > 0;
  return ManEntry(absl::StrCat(absl::StrReplaceAll(option.get_name(false, true), {{",", ", "}}),
                               takes_value ? " " : "", takes_value ? option.get_type_name() : ""),
                  option.get_description());
}

bool IsShared(const std::string& group) {
  return group == kServerGroup || group == kOutputGroup || group == kSamplingGroup ||
         group == kAttentionGroup || group == kFormGroup;
}

// The end of --help, with its examples verbatim.
std::string ManFooter(const std::string& footer) {
  std::string text;
  bool verbatim = false;
  for (const absl::string_view line : absl::StrSplit(footer, '\n')) {
    const bool example = absl::StartsWith(line, "  ");
    if (example != verbatim) absl::StrAppend(&text, example ? ".PP\n.EX\n" : ".EE\n");
    verbatim = example;
    absl::StrAppend(&text, example ? "" : ".PP\n", Roff(line), "\n");
  }
  return absl::StrCat(text, verbatim ? ".EE\n" : "");
}

// Builds the page. Describes options that several commands share only once.
class Page {
 public:
  std::string Make(const CLI::App& app) {
    const std::string commands = Commands(app);
    std::string page = absl::StrCat(
        ".TH ANNULUS 1 \"\" \"annulus ", ANNULUS_VERSION, "\" \"User Commands\"\n",
        ".SH NAME\nannulus \\- command-line client of annulusd\n",
        ".SH SYNOPSIS\n.B annulus\n.I COMMAND\n[\\fIOPTIONS\\fR]\n.SH DESCRIPTION\n",
        Roff(app.get_description()), "\n", ManFooter(app.get_footer()), ".SH COMMANDS\n", commands);
    for (const std::string& group : groups_) {
      absl::StrAppend(&page, ".SH ", Roff(absl::AsciiStrToUpper(group)),
                      "\nCommands that call a server take these options.\n", shared_text_[group]);
    }
    return absl::StrCat(
        page, ".SH ENVIRONMENT\n", ManEntry("ANNULUS_SERVER", "Address of annulusd."),
        ManEntry("ANNULUS_TOKEN", "Bearer token."),
        ManEntry("ANNULUS_PROFILE", "Profile of the configuration."), ".SH FILES\n",
        ManEntry("~/.config/annulus/config.yaml",
                 "Defaults for flags that the command line and the environment do not set: names "
                 "of flags, such as \"server: gpu7:50051\", and sets of them under \"profiles\"."),
        ".SH SEE ALSO\n.BR annulusd (8)\n");
  }

 private:
  std::string Commands(const CLI::App& app) {
    std::string text;
    for (const CLI::App* command : CommandsOf(app)) {
      if (!CommandsOf(*command).empty()) {
        Share(*command);
        absl::StrAppend(&text, Commands(*command));
        continue;
      }
      absl::StrAppend(&text, ".SS ", Roff(FullName(*command)), Arguments(*command), "\n",
                      Roff(command->get_description()), ".\n", Share(*command),
                      ManFooter(command->get_footer()));
    }
    return text;
  }

  static std::string Arguments(const CLI::App& command) {
    std::string text;
    for (const CLI::Option* option : command.get_options()) {
      if (!option->get_positional() || option->get_group().empty()) continue;
      const std::string name = Roff(option->get_name(true));
      absl::StrAppend(&text, " ", option->get_required() ? name : absl::StrCat("[", name, "]"));
    }
    return text;
  }

  // Returns the entries of the command's own arguments and options; adds the shared options to
  // their groups.
  std::string Share(const CLI::App& command) {
    std::string own;
    for (const CLI::Option* option : command.get_options()) {
      const std::string& group = option->get_group();
      if (group.empty() || option->check_lname("help")) continue;
      if (option->get_positional()) {
        absl::StrAppend(&own, ManEntry(option->get_name(true), option->get_description()));
      } else if (!IsShared(group)) {
        absl::StrAppend(&own, ManOption(*option));
      } else if (shared_.insert(absl::StrCat(group, option->get_name(false, true))).second) {
        if (shared_text_.count(group) == 0) groups_.push_back(group);
        absl::StrAppend(&shared_text_[group], ManOption(*option));
      }
    }
    return own;
  }

  std::set<std::string> shared_;
  std::vector<std::string> groups_;
  std::map<std::string, std::string> shared_text_;
};

}  // namespace

std::string ManPage(const CLI::App& app) { return Page().Make(app); }

}  // namespace annulus::client
