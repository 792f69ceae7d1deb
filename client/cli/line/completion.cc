#include "client/cli/line/completion.h"

#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/line/help.h"

namespace annulus::client {
namespace {

// The kinds of values that completion can offer.
enum class Values { kNothing, kFiles, kModels, kDocuments, kDocumentsAndFiles, kProgress };

Values ValuesOf(const std::string& type) {
  if (absl::StartsWith(type, "DOC")) return Values::kDocumentsAndFiles;
  if (absl::StrContains(type, "FILE") || type == "DIR") return Values::kFiles;
  if (absl::EndsWith(type, ".jsonl")) return Values::kFiles;
  if (type == "WHEN") return Values::kProgress;
  return Values::kNothing;
}

Values ValuesOf(const CLI::App& command, const CLI::Option& option) {
  if (option.get_items_expected_max() == 0) return Values::kNothing;
  if (option.nonpositional()) {
    const bool is_model = option.check_lname("model");
    return is_model ? Values::kModels : ValuesOf(option.get_type_name());
  }
  const bool of_server = absl::StrContains(FullName(command), " documents ") ||
                         command.check_name("ls") || command.check_name("rm");
  const std::string name = option.get_name(true);
  return of_server && !absl::StartsWith(name, "FILE") ? Values::kDocuments : ValuesOf(name);
}

// Appends `app` and all commands below it, parents first.
void CollectCommands(const CLI::App& app, std::vector<const CLI::App*>& commands) {
  commands.push_back(&app);
  for (const CLI::App* command : CommandsOf(app)) CollectCommands(*command, commands);
}

std::vector<const CLI::Option*> FlagsOf(const CLI::App& command) {
  return command.get_options([](const CLI::Option* option) {
    return option->nonpositional() && !option->get_group().empty();
  });
}

std::vector<std::string> FlagNamesOf(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_lnames()) names.push_back(absl::StrCat("--", name));
  for (const std::string& name : option.get_snames()) names.push_back(absl::StrCat("-", name));
  return names;
}

// The kind of a command's positional arguments.
Values ArgumentsOfCommand(const CLI::App& command) {
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_positional()) return ValuesOf(command, *option);
  }
  return Values::kNothing;
}

// The parts in which the scripts for bash and zsh differ. In both scripts, `cur` is the word at the
// cursor, `prev` the word before it, `place` the command with its parents ("annulus documents put")
// and `offered` the words to choose from.
struct Dialect {
  const char* head;  // up to the cases that determine `place`
  std::string (*values)(Values);
  const char* tail;  // completes from `offered`
};

constexpr char kBashHead[] =
    R"bash(# Completion of annulus for bash: source <(annulus completion bash)
_annulus_names() {
  COMPREPLY=($(compgen -W "$(annulus completion "$1" 2>/dev/null)" -- "$cur"))
}
_annulus() {
  local cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD-1]} place=annulus offered word
  COMPREPLY=()
  [[ $prev == '=' ]] && prev=${COMP_WORDS[COMP_CWORD-2]}
  [[ $cur == '=' ]] && cur=
  for word in "${COMP_WORDS[@]:1:COMP_CWORD-1}"; do
    case "$place $word" in
)bash";

constexpr char kBashTail[] = R"bash(  esac
  COMPREPLY=($(compgen -W "$offered" -- "$cur"))
}
complete -F _annulus annulus
)bash";

// Shell code that fills COMPREPLY with values of one kind.
std::string BashValues(Values values) {
  switch (values) {
    case Values::kFiles:
      return "compopt -o default";
    case Values::kModels:
      return "_annulus_names models";
    case Values::kDocuments:
      return "_annulus_names documents";
    case Values::kDocumentsAndFiles:
      return "_annulus_names documents; compopt -o default; COMPREPLY+=($(compgen -f -- \"$cur\"))";
    case Values::kProgress:
      return "COMPREPLY=($(compgen -W 'auto always never' -- \"$cur\"))";
    case Values::kNothing:
      return ":";
  }
  return ":";
}

// If the script is a file _annulus in $fpath, zsh runs it as the body of the function at the first
// use, so its last line must also complete that first word.
constexpr char kZshHead[] =
    R"zsh(#compdef annulus
# Completion of annulus for zsh: source <(annulus completion zsh), after compinit; or a file _annulus
# in a folder of $fpath.
_annulus_names() {
  compadd -- ${(f)"$(annulus completion "$1" 2>/dev/null)"}
}
_annulus() {
  local cur=$words[CURRENT] prev=$words[CURRENT-1] place=annulus offered word
  if [[ $cur == --*=* ]]; then
    prev=${cur%%=*} cur=${cur#*=}
    compset -P '*='
  fi
  for word in "${(@)words[2,CURRENT-1]}"; do
    case "$place $word" in
)zsh";

constexpr char kZshTail[] = R"zsh(  esac
  compadd -- $=offered
}
if [[ $funcstack[1] == _annulus ]]; then _annulus "$@"; else compdef _annulus annulus; fi
)zsh";

std::string ZshValues(Values values) {
  switch (values) {
    case Values::kFiles:
      return "_files";
    case Values::kModels:
      return "_annulus_names models";
    case Values::kDocuments:
      return "_annulus_names documents";
    case Values::kDocumentsAndFiles:
      return "_annulus_names documents; _files";
    case Values::kProgress:
      return "compadd auto always never";
    case Values::kNothing:
      return ":";
  }
  return ":";
}

constexpr Dialect kBash = {kBashHead, &BashValues, kBashTail};
constexpr Dialect kZsh = {kZshHead, &ZshValues, kZshTail};

std::string CasesOfFlags(const CLI::App& command, const Dialect& dialect) {
  std::string cases;
  for (const CLI::Option* option : FlagsOf(command)) {
    if (option->get_items_expected_max() == 0) continue;
    absl::StrAppend(&cases, "        ", absl::StrJoin(FlagNamesOf(*option), "|"), ") ",
                    dialect.values(ValuesOf(command, *option)), "; return ;;\n");
  }
  return cases;
}

// The case that offers what can follow one command.
std::string CaseOf(const CLI::App& command, const Dialect& dialect) {
  std::vector<std::string> words;
  for (const CLI::App* deeper : CommandsOf(command)) words.push_back(deeper->get_name());
  const std::string names = absl::StrJoin(words, " ");
  std::vector<std::string> flags;
  for (const CLI::Option* option : FlagsOf(command)) {
    for (const std::string& name : FlagNamesOf(*option)) flags.push_back(name);
  }
  return absl::StrCat(
      "    '", FullName(command), "')\n      case $prev in\n", CasesOfFlags(command, dialect),
      "      esac\n      if [[ $cur == -* ]]; then offered='", absl::StrJoin(flags, " "), "'\n",
      names.empty() ? absl::StrCat("      else ", dialect.values(ArgumentsOfCommand(command)),
                                   "; return\n      fi ;;\n")
                    : absl::StrCat("      else offered='", names, "'\n      fi ;;\n"));
}

std::string Script(const CLI::App& app, const Dialect& dialect) {
  std::vector<const CLI::App*> commands;
  CollectCommands(app, commands);
  std::string script = dialect.head;
  for (const CLI::App* command : commands) {
    if (command->get_parent() == nullptr) continue;
    absl::StrAppend(&script, "      '", FullName(*command), "') place='", FullName(*command),
                    "' ;;\n");
  }
  absl::StrAppend(&script, "    esac\n  done\n  case $place in\n");
  for (const CLI::App* command : commands) script += CaseOf(*command, dialect);
  return script + dialect.tail;
}

// Quotes text with single quotes for fish.
std::string Quoted(const std::string& text) {
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"\\", "\\\\"}, {"'", "\\'"}}), "'");
}

std::string FishValues(Values values) {
  switch (values) {
    case Values::kFiles:
      return " -r -F";
    case Values::kModels:
      return " -x -a '(annulus completion models 2>/dev/null)'";
    case Values::kDocuments:
      return " -x -a '(annulus completion documents 2>/dev/null)'";
    case Values::kDocumentsAndFiles:
      return " -r -F -a '(annulus completion documents 2>/dev/null)'";
    case Values::kProgress:
      return " -x -a 'auto always never'";
    case Values::kNothing:
      return " -x";
  }
  return "";
}

// The condition for fish to complete a command: the command line has its words and none of a
// subcommand.
std::string FishCondition(const CLI::App& command) {
  std::vector<std::string> conditions;
  for (const CLI::App* app = &command; app->get_parent() != nullptr; app = app->get_parent()) {
    conditions.insert(conditions.begin(),
                      absl::StrCat("__fish_seen_subcommand_from ", app->get_name()));
  }
  std::vector<std::string> deeper;
  for (const CLI::App* app : CommandsOf(command)) deeper.push_back(app->get_name());
  if (!deeper.empty()) {
    conditions.push_back(
        absl::StrCat("not __fish_seen_subcommand_from ", absl::StrJoin(deeper, " ")));
  }
  return absl::StrJoin(conditions, "; and ");
}

}  // namespace

std::string BashCompletion(const CLI::App& app) { return Script(app, kBash); }

std::string ZshCompletion(const CLI::App& app) { return Script(app, kZsh); }

std::string FishCompletion(const CLI::App& app) {
  std::vector<const CLI::App*> commands;
  CollectCommands(app, commands);
  std::string script =
      "# Completion of annulus for fish: annulus completion fish | source\ncomplete -c annulus "
      "-f\n";
  for (const CLI::App* command : commands) {
    const std::string condition =
        absl::StrCat("complete -c annulus -n ", Quoted(FishCondition(*command)));
    for (const CLI::App* deeper : CommandsOf(*command)) {
      absl::StrAppend(&script, condition, " -a ", deeper->get_name(), " -d ",
                      Quoted(deeper->get_description()), "\n");
    }
    const Values arguments = ArgumentsOfCommand(*command);
    if (arguments != Values::kNothing) {
      absl::StrAppend(&script, condition, FishValues(arguments), "\n");
    }
    for (const CLI::Option* option : FlagsOf(*command)) {
      absl::StrAppend(&script, condition);
      for (const std::string& name : option->get_lnames()) absl::StrAppend(&script, " -l ", name);
      for (const std::string& name : option->get_snames()) absl::StrAppend(&script, " -s ", name);
      if (option->get_items_expected_max() > 0) {
        absl::StrAppend(&script, FishValues(ValuesOf(*command, *option)));
      }
      absl::StrAppend(&script, " -d ", Quoted(option->get_description()), "\n");
    }
  }
  return script;
}

}  // namespace annulus::client
