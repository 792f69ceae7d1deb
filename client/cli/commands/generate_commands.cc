#include <algorithm>
#include <filesystem>
#include <istream>
#include <iterator>
#include <memory>
#include <span>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/cli/ask/answer.h"
#include "client/cli/ask/ask_in_parts.h"
#include "client/cli/ask/evidence_page.h"
#include "client/cli/ask/part_journal.h"
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
  bool show_prompt = false;              // print the prompt instead of an answer
  bool whole = false;                    // refuse documents that are longer than the context
  std::string journal;                   // see PartJournalPath
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

// The documents of `ask`, ready for the question.
struct AskedDocuments {
  v1::Model model;                 // empty if the server does not describe it
  GatheredDocuments gathered;      // if they are too long for the model, else moved from
  ProvidedDocuments provided;      // if they fit
  std::vector<std::string> texts;  // for a page: see AnswerOptions
  bool fit = true;
};

// The text of each document that was read here, empty for those on the server.
std::vector<std::string> TextsOf(const GatheredDocuments& gathered) {
  std::vector<std::string> texts;
  for (const GatheredDocument& document : gathered.documents) {
    std::string& text = texts.emplace_back();
    if (!document.content.has_value()) continue;
    std::istream& stream = *document.content->stream;
    text.assign(std::istreambuf_iterator<char>(stream), {});
    stream.clear();
    stream.seekg(0);
  }
  return texts;
}

// Gathers the documents of `ask` and uploads them if they fit beside the questions. Refuses those
// that do not if options.whole, or if evidence is asked for.
int PlaceDocuments(Session& session, const GenerateOptions& options,
                   const std::vector<std::string>& questions, AskedDocuments* asked) {
  int exit_code = GatherDocuments(session, options.documents, options.choice, &asked->gathered);
  if (exit_code != 0) return exit_code;
  // Ignore a failure: the call that follows will report it.
  if (DescribeModel(session, options.spec.model(), &asked->model).ok()) {
    constexpr size_t kFrameTokens = 64;  // of each document and of the template, about
    size_t longest = 0;                  // a token has at least one byte
    for (const std::string& question : questions) longest = std::max(longest, question.size());
    const size_t others = options.system.size() + longest +
                          kFrameTokens * (asked->gathered.documents.size() + 1) +
                          static_cast<size_t>(options.spec.sampling().max_tokens());
    exit_code = CheckRoom(session, asked->model, static_cast<int64_t>(others), &asked->gathered,
                          &asked->fit);
    if (exit_code != 0) return exit_code;
  }
  if (asked->fit && WantsPage(options.spec, options.answer))
    asked->texts = TextsOf(asked->gathered);
  if (asked->fit) return UploadDocuments(session, asked->gathered, &asked->provided);
  const bool evidence = options.spec.evidence();
  if (!options.whole && !options.show_prompt && !evidence) return 0;
  return session.Misuse(absl::StrCat(TooLongText(asked->model, asked->gathered),
                                     ". Nothing was uploaded. Leave out ",
                                     options.whole ? "--whole"
                                     : evidence    ? "--evidence"
                                                   : "--show-prompt",
                                     " to read in parts"));
}

// Asks about documents that are too long for the model.
int AskLong(Session& session, const GenerateOptions& options, AskedDocuments& asked,
            const std::vector<std::string>& questions) {
  AskInPartsOptions in_parts{.spec = options.spec,
                             .system = options.system,
                             .answer = options.answer,
                             .journal = options.journal,
                             .is_file_of_questions = options.questions.has_value()};
  v1::GenerationSpec* const spec = &in_parts.spec;
  FitToModel(session, asked.model, std::span(&spec, 1));
  const bool partial = asked.gathered.skipped > 0 || asked.gathered.incomplete > 0;
  const int exit_code =
      AskInParts(session, asked.model, in_parts, std::move(asked.gathered), questions);
  return exit_code == 0 && partial ? kExitPartial : exit_code;
}

// Adds the documents to the spec of `ask`, and fits it to the model.
void PlaceInSpec(Session& session, const AskedDocuments& asked, v1::GenerationSpec& spec) {
  v1::GenerationSpec* const alone = &spec;
  FitToModel(session, asked.model, std::span(&alone, 1));
  for (const auto& document : asked.provided.documents) spec.add_documents(document.name());
}

// With the titles of the documents, by which passages are named.
AnswerOptions TitledOptions(const GenerateOptions& options, AskedDocuments& asked) {
  AnswerOptions answer = options.answer;
  for (const v1::Document& document : asked.provided.documents) {
    answer.titles.push_back(document.title().empty() ? document.name() : document.title());
  }
  answer.texts = std::move(asked.texts);
  return answer;
}

int Ask(Session& session, const GenerateOptions& options) {
  if (CountStandardInput(options) > 1) {
    return session.Misuse("standard input (-) can be used once only");
  }
  // Check the question first, so that a wrong one does not cost an upload.
  std::string question;
  v1::GenerationSpec spec = options.spec;
  int exit_code = ReadPrompt(session, "QUESTION", options, &question);
  if (exit_code == 0) exit_code = PlaceSystem(session, options.system, spec);
  if (exit_code != 0) return exit_code;
  PlaceQuestion(question, spec);
  AskedDocuments asked;
  exit_code = PlaceDocuments(session, options, {question}, &asked);
  if (exit_code != 0) return exit_code;
  if (!asked.fit) return AskLong(session, options, asked, {question});
  PlaceInSpec(session, asked, spec);
  AnswerOptions answer = TitledOptions(options, asked);
  answer.question = question;
  const int answered =
      options.show_prompt ? ShowPrompt(session, spec) : Answer(session, spec, answer);
  return EndWith(answered, session, &asked.provided);
}

int Complete(Session& session, const GenerateOptions& options) {
  if (CountStandardInput(options) > 1) {
    return session.Misuse("standard input (-) can be used only once");
  }
  v1::GenerationSpec spec = options.spec;
  ProvidedDocuments provided;
  // Check the prompt first, so that a wrong one does not cost an upload.
  std::string text;
  int exit_code = ReadPrompt(session, "PROMPT", options, &text);
  if (exit_code == 0) {
    exit_code =
        ProvideDocuments(session, options.documents, options.choice, spec.model(), &provided);
  }
  if (exit_code != 0) return exit_code;
  spec.set_text(text);
  FitToModel(session, spec.model(), {});
  for (const auto& document : provided.documents) spec.add_documents(document.name());
  return EndWith(Answer(session, spec, options.answer), session, &provided);
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
  AskedDocuments asked;
  const int exit_code = PlaceDocuments(session, options, *questions, &asked);
  if (exit_code != 0) return exit_code;
  if (!asked.fit) return AskLong(session, options, asked, *questions);
  PlaceInSpec(session, asked, spec);
  const int answered = AskQuestions(session, spec, *questions, TitledOptions(options, asked));
  return EndWith(answered, session, &asked.provided);
}

int RunComplete(Session& session, const GenerateOptions& options) {
  const Console& console = session.console();
  const bool has_document = !options.documents.empty();
  if (!options.prompt.has_value() && console.in_is_terminal && !has_document) {
    return session.Misuse("PROMPT is missing: give it as an argument, or on standard input");
  }
  std::error_code error;
  if (!has_document && options.prompt.has_value() && *options.prompt != kStandardInput &&
      std::filesystem::is_regular_file(*options.prompt, error)) {
    session.Warn(
        absl::StrCat(*options.prompt,
                     " is taken as the text to continue. For the file of that name: annulus "
                     "complete --document ",
                     *options.prompt, " 'PROMPT', or annulus complete - < ", *options.prompt));
  }
  if (!options.prompt.has_value() && CountStandardInput(options) > 0) {
    GenerateOptions without_prompt = options;
    without_prompt.prompt = "";
    return Complete(session, without_prompt);
  }
  return Complete(session, options);
}

int RunAsk(Session& session, const GenerateOptions& options) {
  GenerateOptions ask = options;
  if (ask.questions.has_value()) return AskFile(session, ask);
  ask.prompt = ask.documents.back();
  ask.documents.pop_back();
  if (!ask.documents.empty()) return Ask(session, ask);
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
  return Ask(session, ask);
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
                         const Environment& environment, size_t argument_count) {
  CLI::App& complete = *app.add_subcommand("complete", "Continue a text");
  const auto complete_options = AddShared(complete, common);
  complete.add_option("PROMPT", complete_options->prompt,
                      "Text to continue; - or no argument: standard input, byte for byte");
  AddDocumentFlag(complete, complete_options->documents);
  complete.footer(
      "Examples:\n"
      "  annulus complete 'Once upon a time' --max-tokens 64\n"
      "  annulus complete --document report.txt 'In short: ' --temperature 0 --stop '\\n'\n"
      "  annulus complete --document a.txt --document b.txt 'Both say: '\n"
      "  annulus complete 'Berlin is in ' --choice Europe --choice Asia\n"
      "  generate-prompt | annulus complete --json > answer.json");
  complete.callback([&action, complete_options] {
    action = [complete_options](Session& session) {
      return RunComplete(session, *complete_options);
    };
  });

  CLI::App& ask = *app.add_subcommand("ask", "Ask a question about documents");
  const auto ask_options = AddShared(ask, common);
  ask_options->journal = PartJournalPath(environment);
  AddDocumentsAndQuestion(ask, ask_options->documents, argument_count, "standard input");
  ask.add_option("-s,--system", ask_options->system, "System message")->type_name("TEXT");
  ask.add_flag("--show-prompt", ask_options->show_prompt,
               "Print the whole prompt, documents included, instead of asking");
  ask.add_flag("--whole", ask_options->whole,
               "Refuse documents that are longer than the model's context, instead of reading "
               "them in parts");
  ask.add_flag_callback(
      "--evidence",
      [ask_options] {
        ask_options->spec.set_evidence(true);
        ask_options->choice.keep_text = true;
      },
      "Mark each sentence of the answer with the passages that the model attends most, [1], and "
      "print these below: attention, not proof, and a small model's attention finds a stated fact "
      "less often than a search for the question's words does. With -o FILE.html a page that "
      "shows the answer beside the documents");
  ask.add_option("--questions", ask_options->questions,
                 "Ask all questions in FILE (- for standard input), at most 1,000: one a line, or "
                 "JSON lines with \"question\". Every argument is then a DOC, and the documents "
                 "are computed once. Answers are printed in order; with --json, one object a line, "
                 "with its index. Exit code 3: some failed")
      ->type_name("FILE");
  ask.footer(
      "Examples:\n"
      "  annulus ask contract.txt 'Who signed it?'\n"
      "  annulus ask part1.txt part2.txt 'What changed?' --max-tokens 200 --timings\n"
      "  annulus ask 'reports/**/*.pdf' notes/ 'What changed?' --exclude 'draft*'\n"
      "  annulus ask report.pdf 'What changed?' --evidence -o answer.html\n"
      "  annulus ask report.pdf 'What changed?' --show-prompt | less\n"
      "  annulus ask report.pdf --questions questions.txt --json > answers.jsonl\n"
      "  annulus ask invoice.pdf 'Answer in JSON: number, date, total' --json-schema invoice.json\n"
      "  git log | annulus ask 'Who wrote most?'");
  ask.callback([&action, ask_options] {
    action = [ask_options](Session& session) { return RunAsk(session, *ask_options); };
  });
}

}  // namespace annulus::client
