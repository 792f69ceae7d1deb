#include <memory>

#include "client/cli/chat/chat.h"
#include "client/cli/chat/chat_archive.h"
#include "client/cli/commands/commands.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/help.h"
#include "client/cli/line/options.h"

namespace annulus::client {
namespace {

int RunChat(Session& session, const ChatOptions& options) {
  Console& console = session.console();
  std::unique_ptr<LineSource> lines;
  if (console.in_is_terminal && console.edit_lines) {
    lines = console.edit_lines();
  } else {
    lines = std::make_unique<StreamLines>(console.in);
  }
  return Chat(session, options, *lines).Run();
}

}  // namespace

void AddChatCommand(CLI::App& app, CommonOptions& common, Action& action,
                    const Environment& environment) {
  CLI::App& chat = *app.add_subcommand("chat", "Ask about documents in a conversation");
  const auto options = std::make_shared<ChatOptions>();
  chat.add_option("DOC...", options->documents,
                  "Documents, as for ask: files, folders, patterns, names on the server");
  options->folder = ChatFolder(environment);
  chat.add_flag(
      "--continue", options->continues,
      "Resume the conversation that was saved last; a chat on a terminal saves itself after each "
      "answer");
  AddDocumentOptions(chat, options->choice);
  chat.add_option("-s,--system", options->system, "System message for the conversation")
      ->type_name("TEXT");
  chat.add_flag("--timings", options->answer.timings,
                "Print tokens, times and rates after each answer")
      ->group(kOutputGroup);
  AddGenerationOptions(chat, options->spec);
  AddCommonOptions(chat, common);
  chat.footer(
      "Lines that begin with a slash are commands: /help, /docs, /save, /load, /clear, /quit.\n"
      "Examples:\n"
      "  annulus chat contract.pdf\n"
      "  annulus chat --continue\n"
      "  annulus chat notes/ --system 'Answer in one sentence.' --temperature 0\n"
      "  annulus chat report.txt < questions.txt > answers.txt");
  chat.callback([&action, options] {
    action = [options](Session& session) { return RunChat(session, *options); };
  });
}

}  // namespace annulus::client
