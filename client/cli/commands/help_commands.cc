#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands/commands.h"
#include "client/cli/line/completion.h"
#include "client/cli/line/help.h"
#include "client/cli/line/man_page.h"
#include "client/cli/line/options.h"
#include "client/documents.h"

namespace annulus::client {
namespace {

// Timeout of the call for names; the shell blocks for it while the user types.
constexpr std::chrono::milliseconds kCompletionPatience{1000};

int RunHelp(Session& session, const CLI::App& app, const std::vector<std::string>& words) {
  const CLI::App* command = &app;
  for (const std::string& word : words) {
    const CLI::App* found = nullptr;
    for (const CLI::App* candidate : CommandsOf(*command)) {
      if (candidate->check_name(word)) found = candidate;
    }
    if (found == nullptr) {
      return session.Misuse(absl::StrCat("unknown command: ", word, "; 'annulus help' lists them"));
    }
    command = found;
  }
  session.Print(HelpFormatter().make_help(command, "", CLI::AppFormatMode::Normal));
  return session.Finish();
}

// Prints names for a shell's completion; prints nothing if the server does not answer.
int PrintNames(Session& session, const std::string& kind) {
  std::vector<std::string> names;
  if (kind == "models") {
    v1::ListModelsResponse response;
    Call call(session.connection());
    session.connection().models().ListModels(call.context(), v1::ListModelsRequest(), &response);
    for (const v1::Model& model : response.models()) names.push_back(model.name());
  } else {
    std::vector<v1::Document> documents;
    ListDocuments(session.connection(), &documents);
    for (const v1::Document& document : documents) names.push_back(document.name());
  }
  for (const std::string& name : names) session.Print(absl::StrCat(name, "\n"));
  return session.Finish();
}

int RunCompletion(Session& session, const CLI::App& app, const std::string& what) {
  if (what == "models" || what == "documents") return PrintNames(session, what);
  session.Print(what == "bash"  ? BashCompletion(app)
                : what == "zsh" ? ZshCompletion(app)
                                : FishCompletion(app));
  return session.Finish();
}

}  // namespace

void AddHelpCommands(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& help = *app.add_subcommand("help", "Print the help of a command, or the manual page");
  const auto words = std::make_shared<std::vector<std::string>>();
  const auto man = std::make_shared<bool>(false);
  help.add_option("COMMAND...", *words, "The command");
  help.add_flag("--man", *man, "Print the manual page, for man -l");
  help.footer("Examples:\n  annulus help documents put\n  annulus help --man | man -l -");
  help.callback([&app, &action, words, man] {
    action = [&app, words, man](Session& session) {
      if (!*man) return RunHelp(session, app, *words);
      session.Print(ManPage(app));
      return session.Finish();
    };
  });

  CLI::App& version = *app.add_subcommand("version", "Print the version, as --version does");
  version.footer("Examples:\n  annulus version");
  version.callback([&app, &action] {
    action = [&app](Session& session) {
      session.Print(absl::StrCat(app.version(), "\n"));
      return session.Finish();
    };
  });

  CLI::App& completion = *app.add_subcommand("completion", "Print a shell completion script");
  const auto what = std::make_shared<std::string>();
  completion
      .add_option("SHELL", *what,
                  "bash, zsh or fish; the scripts call it with models or documents to list names")
      ->required()
      ->check(CLI::IsMember({"bash", "zsh", "fish", "models", "documents"}).description(""));
  AddCommonOptions(completion, common);
  completion.footer(
      "Examples:\n"
      "  source <(annulus completion bash)        # in ~/.bashrc\n"
      "  source <(annulus completion zsh)         # in ~/.zshrc\n"
      "  annulus completion fish > ~/.config/fish/completions/annulus.fish");
  completion.callback([&app, &action, &common, what] {
    if (!common.connection.timeout.has_value()) common.connection.timeout = kCompletionPatience;
    action = [&app, what](Session& session) { return RunCompletion(session, app, *what); };
  });
}

}  // namespace annulus::client
