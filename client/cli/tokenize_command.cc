#include <memory>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/commands.h"
#include "client/cli/inputs.h"
#include "client/cli/options.h"
#include "client/format/json.h"

namespace annulus {
namespace {

struct TokenizeOptions {
  std::string model;
  bool no_special = false;
};

int RunTokenize(Session& session, const TokenizeOptions& options) {
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
    JsonWriter json;
    json.BeginObject().Key("token_ids").BeginArray();
    for (const int32_t id : response.token_ids()) json.Int(id);
    json.EndArray().EndObject();
    session.Print(absl::StrCat(json.text(), "\n"));
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
  tokenize.add_option("--model", options->model, "Name of the model (default: the only one)")
      ->type_name("NAME");
  tokenize.add_flag("--no-special", options->no_special,
                    "Leave out special ids such as beginning-of-text");
  AddCommonOptions(tokenize, common);
  tokenize.footer(
      "Examples:\n"
      "  annulus tokenize < report.txt | wc -w\n"
      "  printf 'two words' | annulus tokenize --no-special");
  tokenize.callback([&action, options] {
    action = [options](Session& session) { return RunTokenize(session, *options); };
  });
}

}  // namespace annulus
