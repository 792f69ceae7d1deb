#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/line/options.h"

namespace annulus::client {
namespace {

struct TokenizeOptions {
  std::string model;
  std::string directory;  // tokenize without a server, with the tokenizer in this folder
  bool no_special = false;
};

constexpr char kLocalProgram[] = "annulus-tokenize";

// Path of the program `name` in the folder of this program.
std::string Beside(absl::string_view name) {
  char path[PATH_MAX];
  const ssize_t length = readlink("/proc/self/exe", path, sizeof(path));
  const std::string self(path, length < 0 ? 0 : static_cast<size_t>(length));
  return absl::StrCat(self.substr(0, self.rfind('/') + 1), name);
}

// Replaces this process by the program that tokenizes without a server; returns only on failure.
int RunHere(Session& session, const TokenizeOptions& options) {
  const std::string program = Beside(kLocalProgram);
  std::vector<std::string> arguments = {kLocalProgram};
  if (options.no_special) arguments.push_back("--no-special");
  if (session.options().json) arguments.push_back("--json");
  // Pass an absolute path, so that a name that begins with a dash is not taken for an option.
  arguments.push_back(std::filesystem::absolute(options.directory).string());
  std::vector<char*> pointers;
  for (std::string& argument : arguments) pointers.push_back(argument.data());
  pointers.push_back(nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &none, &before);
  execv(program.c_str(), pointers.data());
  const int error = errno;
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return session.Misuse(absl::StrCat("--tokenizer needs the program ", program, ": ",
                                     std::strerror(error),
                                     "; without --tokenizer the server tokenizes"));
}

int RunTokenize(Session& session, const TokenizeOptions& options) {
  if (!options.directory.empty()) return RunHere(session, options);
  v1::TokenizeRequest request;
  const int exit_code = ReadText(session, "standard input", request.mutable_text());
  if (exit_code != 0) return exit_code;
  request.set_model(options.model);
  request.set_add_special(!options.no_special);
  v1::TokenizeResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().inference().Tokenize(call.context(), request, &response);
  if (!status.ok()) return session.CallFailed(status);
  if (session.options().json) {
    session.Print(JsonLine(MessageJson(response)));
  } else {
    session.Print(absl::StrCat(absl::StrJoin(response.token_ids(), " "), "\n"));
  }
  return session.Finish();
}

}  // namespace

void AddTokenizeCommand(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& tokenize =
      *app.add_subcommand("tokenize", "Print the token ids of the text on standard input");
  const auto options = std::make_shared<TokenizeOptions>();
  CLI::Option* model =
      tokenize.add_option("--model", options->model, "Name of the model (default: the only one)")
          ->type_name("NAME");
  tokenize
      .add_option("--tokenizer", options->directory,
                  "Tokenize locally, without a server, with the tokenizer.json or tokenizer.model "
                  "in this directory")
      ->type_name("DIR")
      ->excludes(model);
  tokenize.add_flag("--no-special", options->no_special,
                    "Do not add special tokens such as beginning-of-text");
  AddCommonOptions(tokenize, common);
  tokenize.footer(
      "Examples:\n"
      "  annulus tokenize < report.txt | wc -w\n"
      "  annulus tokenize --tokenizer models/qwen3 < report.txt | wc -w\n"
      "  printf 'two words' | annulus tokenize --no-special");
  tokenize.callback([&action, options] {
    action = [options](Session& session) { return RunTokenize(session, *options); };
  });
}

}  // namespace annulus::client
