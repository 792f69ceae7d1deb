#include <filesystem>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "client/cli/ask/answer.h"
#include "client/cli/ask/questions.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/provide.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/help.h"
#include "client/cli/line/options.h"
#include "client/failure.h"

namespace annulus::client {
namespace {

struct GenerateOptions {
  v1::GenerationSpec spec;
  AnswerOptions answer;
  std::string system;  // system message before the question; empty: none
  std::optional<std::string> prompt;
  std::vector<std::string> documents;  // for ask, the last one is the question
  DocumentChoice choice;
  bool is_question = false;              // send the prompt as a message, not as plain text
  bool show_prompt = false;              // print the prompt instead of an answer
  std::optional<std::string> questions;  // file of questions; then all `documents` are documents
};

int CountStandardInput(const GenerateOptions& options) {
  int count = options.prompt == kStandardInput ? 1 : 0;
  for (const std::string& doc : options.documents) count += doc == kStandardInput ? 1 : 0;
  return count;
}

// Reads the text that follows the documents.
int ReadPrompt(Session& session, absl::string_view what, const GenerateOptions& options,
               std::string* text) {
  const bool piped = !options.prompt.has_value() && !session.console().in_is_terminal;
  if (piped || options.prompt == kStandardInput) return ReadText(session, what, text);
  *text = options.prompt.value_or("");
  return CheckText(session, what, *text);
}

// Puts the prompt into the spec.
int ProvidePrompt(Session& session, absl::string_view what, const GenerateOptions& options,
                  v1::GenerationSpec& spec) {
  std::string text;
  const int exit_code = ReadPrompt(session, what, options, &text);
  if (exit_code != 0) return exit_code;
  if (const int bad = PlaceSystem(session, options.system, spec); bad != 0) return bad;
  if (options.is_question || !options.system.empty()) {
    PlaceQuestion(text, spec);
  } else {
    spec.set_text(text);
  }
  return 0;
}

int ShowPrompt(Session& session, const v1::GenerationSpec& spec) {
  v1::RenderPromptRequest request;
  *request.mutable_spec() = spec;
  v1::RenderPromptResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().inference().RenderPrompt(call.context(), request, &response);
  if (!status.ok()) return session.CallFailed(status);
  if (response.system_folded()) {
    session.Warn(
        "the model's chat template refuses a system message: the server puts it in front of the "
        "question");
  }
  if (session.options().json) {
    session.Print(JsonLine(MessageJson(response)));
  } else {
    session.Print(absl::StrCat(response.text(), "\n"));
  }
  return session.Finish();
}

int Generate(Session& session, absl::string_view what, const GenerateOptions& options) {
  if (CountStandardInput(options) > 1) {
    return session.Misuse("standard input (-) can be used only once");
  }
  v1::GenerationSpec spec = options.spec;
  ProvidedDocuments provided;
  // Check the prompt first, so that a wrong one does not cost an upload.
  int exit_code = ProvidePrompt(session, what, options, spec);
  if (exit_code == 0) {
    exit_code = ProvideDocuments(session, options.documents, options.choice, &provided);
  }
  if (exit_code != 0) return exit_code;
  if (options.is_question) {
    FitToModel(session, spec);
  } else {
    FitToModel(session, spec.model(), {});
  }
  for (const auto& document : provided.documents) spec.add_documents(document.name());
  const int answered =
      options.show_prompt ? ShowPrompt(session, spec) : Answer(session, spec, options.answer);
  return EndWith(answered, session, &provided);
}

// Asks the questions of a file about the documents.
int AskFile(Session& session, const GenerateOptions& options) {
  if (CountStandardInput(options) + (*options.questions == kStandardInput ? 1 : 0) > 1) {
    return session.Misuse("standard input (-) can be used only once");
  }
  for (const auto& [flag, given] : {std::pair("--show-prompt", options.show_prompt),
                                    std::pair("--json-lines", options.answer.json_lines),
                                    std::pair("--output", !options.answer.output.empty())}) {
    if (given)
      return session.Misuse(absl::StrCat(flag, " works with one question, not with --questions"));
  }
  std::string text;
  if (*options.questions == kStandardInput) {
    const int bad = ReadText(session, "--questions", &text);
    if (bad != 0) return bad;
  } else {
    absl::StatusOr<std::string> read = LoadFile(*options.questions, ReadLimits().file_bytes);
    if (!read.ok()) return session.Misuse(read.status().message());
    text = *std::move(read);
    const int bad = CheckText(session, *options.questions, text);
    if (bad != 0) return bad;
  }
  const absl::StatusOr<std::vector<std::string>> questions = ParseQuestions(text);
  if (!questions.ok()) {
    return session.Misuse(
        absl::StrCat("--questions ", *options.questions, ": ", questions.status().message()));
  }
  v1::GenerationSpec spec = options.spec;
  if (const int bad = PlaceSystem(session, options.system, spec); bad != 0) return bad;
  ProvidedDocuments provided;
  const int exit_code = ProvideDocuments(session, options.documents, options.choice, &provided);
  if (exit_code != 0) return exit_code;
  FitToModel(session, spec);
  for (const auto& document : provided.documents) spec.add_documents(document.name());
  const int answered = AskQuestions(session, spec, *questions, options.answer.timings);
  return EndWith(answered, session, &provided);
}

int RunComplete(Session& session, const GenerateOptions& options) {
  const Console& console = session.console();
  const bool has_document = !options.documents.empty();
  if (!options.prompt.has_value() && console.in_is_terminal && !has_document) {
    return session.Misuse("PROMPT is missing: give it as an argument, or on standard input");
  }
  if (!options.prompt.has_value() && CountStandardInput(options) > 0) {
    GenerateOptions without_prompt = options;
    without_prompt.prompt = "";
    return Generate(session, "PROMPT", without_prompt);
  }
  return Generate(session, "PROMPT", options);
}

int RunAsk(Session& session, const GenerateOptions& options) {
  GenerateOptions ask = options;
  ask.is_question = true;
  if (ask.questions.has_value()) return AskFile(session, ask);
  ask.prompt = ask.documents.back();
  ask.documents.pop_back();
  if (!ask.documents.empty()) return Generate(session, "QUESTION", ask);
  // Only now look at standard input. If a document is named it belongs to someone else, for example
  // to a shell loop that reads a list of files.
  Console& console = session.console();
  const bool piped = !console.in_is_terminal && ask.prompt != kStandardInput &&
                     console.in.peek() != std::istream::traits_type::eof();
  if (!piped) {
    std::error_code error;
    return session.Misuse(absl::StrCat(
        "a document and a QUESTION are required, for example: annulus ask report.pdf 'Who?'\n",
        "Only this was given: ", *ask.prompt,
        std::filesystem::exists(*ask.prompt, error) ? "" : " (there is no such file)",
        console.in_is_terminal ? "" : "; standard input is empty"));
  }
  ask.documents = {kStandardInput};
  return Generate(session, "QUESTION", ask);
}

std::shared_ptr<GenerateOptions> AddShared(CLI::App& command, CommonOptions& common) {
  auto options = std::make_shared<GenerateOptions>();
  AddDocumentOptions(command, options->choice);
  command
      .add_flag("--json-lines", options->answer.json_lines,
                "Print each event as one line of JSON, as it arrives; the last line is the object "
                "of --json")
      ->group(kOutputGroup);
  command
      .add_flag("--timings", options->answer.timings,
                "Print token counts, times and rates at the end")
      ->group(kOutputGroup);
  command
      .add_option(
          "-o,--output", options->answer.output,
          "Write the answer to FILE when it is complete (default: stream to standard output)")
      ->type_name("FILE")
      ->group(kOutputGroup);
  AddGenerationOptions(command, options->spec);
  AddCommonOptions(command, common);
  return options;
}

}  // namespace

void AddGenerateCommands(CLI::App& app, CommonOptions& common, Action& action,
                         size_t argument_count) {
  CLI::App& complete = *app.add_subcommand("complete", "Continue a text");
  const auto complete_options = AddShared(complete, common);
  complete.add_option("PROMPT", complete_options->prompt,
                      "Text to continue; - or no argument: standard input, byte for byte");
  complete
      .add_option("--document", complete_options->documents,
                  "Documents to put before the text of PROMPT: files, - or names of documents on "
                  "the server. Give this option after PROMPT")
      ->type_name("DOC...");
  complete.footer(
      "Examples:\n"
      "  annulus complete 'Once upon a time' --max-tokens 64\n"
      "  annulus complete 'In short: ' --document report.txt --temperature 0 --stop '\\n'\n"
      "  annulus complete 'Berlin is in ' --choice Europe --choice Asia\n"
      "  generate-prompt | annulus complete --json > answer.json");
  complete.callback([&action, complete_options] {
    action = [complete_options](Session& session) {
      return RunComplete(session, *complete_options);
    };
  });

  CLI::App& ask = *app.add_subcommand("ask", "Ask a question about documents");
  const auto ask_options = AddShared(ask, common);
  AddDocumentsAndQuestion(ask, ask_options->documents, argument_count, "standard input");
  ask.add_option("-s,--system", ask_options->system, "System message")->type_name("TEXT");
  ask.add_flag("--show-prompt", ask_options->show_prompt,
               "Print the whole prompt, documents included, instead of asking");
  ask.add_option("--questions", ask_options->questions,
                 "Ask all questions in FILE (- for standard input), at most 1,000: one a line, or "
                 "JSON lines with \"question\". Every argument is then a DOC, and the documents "
                 "are computed once. Answers come in order; with --json, one object with an index "
                 "a line. Exit code 3: some failed")
      ->type_name("FILE");
  ask.footer(
      "Examples:\n"
      "  annulus ask contract.txt 'Who signed it?'\n"
      "  annulus ask part1.txt part2.txt 'What changed?' --max-tokens 200 --timings\n"
      "  annulus ask 'reports/**/*.pdf' notes/ 'What changed?' --exclude 'draft*'\n"
      "  annulus ask report.pdf 'What changed?' --show-prompt | less\n"
      "  annulus ask report.pdf --questions questions.txt --json > answers.jsonl\n"
      "  annulus ask invoice.pdf 'Answer in JSON: number, date, total' --json-schema invoice.json\n"
      "  git log | annulus ask 'Who wrote most?'");
  ask.callback([&action, ask_options] {
    action = [ask_options](Session& session) { return RunAsk(session, *ask_options); };
  });
}

}  // namespace annulus::client
