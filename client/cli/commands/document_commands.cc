#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/commands/document_put.h"
#include "client/cli/document_text.h"
#include "client/cli/input/inputs.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/options.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

bool Matches(const std::string& pattern, const v1::Document& document) {
  return MatchesPattern(pattern, document.name()) || MatchesPattern(pattern, document.title());
}

// Finds the document that `argument` means: the one with that name, else the one with that title,
// since the list shows the titles of files that `ask` stored. Misuse if several have the title. If
// there is none, `name` is `argument`, so that the server reports it as missing.
int NameMeant(Session& session, const std::vector<v1::Document>& stored,
              const std::string& argument, std::string* name) {
  std::vector<std::string> titled;
  *name = argument;
  for (const v1::Document& document : stored) {
    if (document.name() == argument) return 0;
    if (!argument.empty() && document.title() == argument) titled.push_back(document.name());
  }
  if (titled.size() > 1) {
    return session.Misuse(absl::StrCat(titled.size(), " documents have the title ", argument,
                                       "; give the name of one: ", absl::StrJoin(titled, ", ")));
  }
  if (!titled.empty()) *name = titled.front();
  return 0;
}

// Finds the names of the documents that the arguments mean: for a pattern, all that match;
// otherwise as NameMeant. Considers titles only if `titles`. Misuse if a pattern has no match,
// unless `force`.
int NamesMeant(Session& session, const std::vector<std::string>& arguments, bool titles, bool force,
               std::vector<std::string>* names) {
  std::vector<v1::Document> stored;
  if (titles || std::any_of(arguments.begin(), arguments.end(), &IsPattern)) {
    const grpc::Status status = ListDocuments(session.connection(), &stored);
    if (!status.ok()) return session.CallFailed(status);
  }
  const auto matches = [&](const std::string& pattern, const v1::Document& document) {
    return titles ? Matches(pattern, document) : MatchesPattern(pattern, document.name());
  };
  for (const std::string& argument : arguments) {
    if (!IsPattern(argument)) {
      std::string& name = names->emplace_back(argument);
      const int bad = titles ? NameMeant(session, stored, argument, &name) : 0;
      if (bad != 0) return bad;
      continue;
    }
    bool matched = false;
    for (const v1::Document& document : stored) {
      if (!matches(argument, document)) continue;
      matched = true;
      const bool known = std::count(names->begin(), names->end(), document.name()) > 0;
      if (!known) names->push_back(document.name());
    }
    if (!matched && !force) {
      return session.Misuse(absl::StrCat("no document on the server matches ", argument));
    }
  }
  return 0;
}

int RunList(Session& session, const DocumentOptions& options) {
  std::vector<v1::Document> documents;
  const grpc::Status status = ListDocuments(session.connection(), &documents);
  if (!status.ok()) return session.CallFailed(status);
  const auto unwanted = [&](const v1::Document& document) {
    return !options.arguments.empty() &&
           std::none_of(options.arguments.begin(), options.arguments.end(),
                        [&](const auto& pattern) { return Matches(pattern, document); });
  };
  documents.erase(std::remove_if(documents.begin(), documents.end(), unwanted), documents.end());
  std::vector<PutDocument> listed;
  for (v1::Document& document : documents) listed.push_back({std::move(document), std::nullopt});
  return PrintDocuments(session, listed);
}

int RunShow(Session& session, const DocumentOptions& options) {
  std::vector<std::string> names;
  int failure = NamesMeant(session, options.arguments, /*titles=*/true, /*force=*/false, &names);
  if (failure != 0) return failure;
  int shown = 0;
  for (const std::string& name : names) {
    v1::Document document;
    const grpc::Status status = GetDocument(session.connection(), name, &document);
    if (!status.ok()) {
      failure = session.CallFailed(status);
      if (failure == kExitInterrupted) return failure;
      continue;
    }
    if (shown++ > 0 && !session.options().json) session.Print("\n");
    const int printed = PrintDocument(session, document);
    if (printed != 0) return printed;
  }
  return failure != 0 && shown > 0 ? kExitPartial : failure;
}

int RunGet(Session& session, const DocumentOptions& options) {
  const bool to_file = !options.output.empty() && options.output != kStandardInput;
  if (session.options().json && !to_file) {
    return session.Misuse("--json describes the document; give its text a file with -o FILE");
  }
  std::vector<std::string> names;
  const int bad = NamesMeant(session, options.arguments, /*titles=*/true, /*force=*/false, &names);
  if (bad != 0) return bad;
  if (names.size() != 1) {
    return session.Misuse(
        absl::StrCat(options.arguments.front(), " matches ", names.size(), " documents; name one"));
  }
  v1::Document document;
  const int saved = SaveText(session, names.front(), options.output, &document);
  if (saved != 0 || !session.options().json) return saved;
  session.Print(JsonLine(DocumentJson(document, std::nullopt)));
  return session.Finish();
}

// Calls `call` for each named document and prints `done` (a participle) with the name.
int RunOnEach(Session& session, const DocumentOptions& options,
              grpc::Status (*call)(Connection&, const std::string&), absl::string_view done) {
  std::vector<std::string> names;
  int failure = NamesMeant(session, options.arguments, /*titles=*/false, options.force, &names);
  if (failure != 0) return failure;
  int succeeded = 0;
  for (const std::string& name : names) {
    const grpc::Status status = call(session.connection(), name);
    const bool absent = status.error_code() == grpc::StatusCode::NOT_FOUND;
    if (absent && options.force) continue;
    if (!status.ok()) {
      failure = session.CallFailed(status);
      if (failure == kExitInterrupted) return failure;
      continue;
    }
    ++succeeded;
    if (session.options().json) {
      JsonWriter json;
      json.BeginObject().Key(done).String(name).EndObject();
      session.Print(absl::StrCat(json.text(), "\n"));
    } else {
      session.Print(absl::StrCat(done, " ", name, "\n"));
    }
  }
  if (failure != 0) return succeeded > 0 ? kExitPartial : failure;
  return session.Finish();
}

int RunDelete(Session& session, const DocumentOptions& options) {
  return RunOnEach(session, options, &DeleteDocument, "deleted");
}

int RunUnpin(Session& session, const DocumentOptions& options) {
  return RunOnEach(session, options, &UnpinDocument, "unpinned");
}

double ReadTtl(const std::string& text) {
  const std::optional<double> seconds = ParseSeconds(text);
  if (seconds.has_value()) return *seconds;
  throw CLI::ValidationError(
      "--ttl",
      absl::StrCat(text,
                   " is not a time: give seconds, or a number with a unit, such as 30m, 2h or 7d"));
}

using RunDocuments = int (*)(Session&, const DocumentOptions&);

struct DocumentCommand {
  const char* name;
  const char* help;
  RunDocuments run;
};

CLI::App* AddDocumentCommand(CLI::App& parent, const DocumentCommand& described,
                             const std::shared_ptr<DocumentOptions>& options, CommonOptions& common,
                             Action& action) {
  CLI::App& command = *parent.add_subcommand(described.name, described.help);
  AddCommonOptions(command, common);
  command.callback([&action, options, run = described.run] {
    action = [options, run](Session& session) { return run(session, *options); };
  });
  return &command;
}

void AddPatterns(CLI::App& list, DocumentOptions& options) {
  list.add_option("PATTERN...", options.arguments,
                  "Only names and titles that match, for example 'rep*'");
}

void AddNamesToDelete(CLI::App& remove, DocumentOptions& options) {
  remove.add_option("NAME...", options.arguments, "Names on the server, or patterns")->required();
  remove.add_flag("-f,--force", options.force, "No error if nothing matches a NAME");
}

}  // namespace

void AddDocumentCommands(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& documents =
      *app.add_subcommand("documents", "Store documents on the server, and list or delete them");
  documents.require_subcommand(1);
  documents.footer("Examples:\n  annulus documents put book.txt\n  annulus documents list");
  const auto options = std::make_shared<DocumentOptions>();
  const auto add = [&](const char* name, const char* help, RunDocuments run) {
    return AddDocumentCommand(documents, {name, help, run}, options, common, action);
  };

  CLI::App* put = add("put", "Upload files as documents", &RunPut);
  put->add_option("FILE...", options->arguments,
                  "Files of any format that ask reads, folders or patterns; - for standard input")
      ->required();
  put->add_option("--name", options->name, "Name on the server (default: the file's name)")
      ->type_name("NAME");
  put->add_option("--title", options->title,
                  "Title that the model and lists show (default: the file's name, else NAME)")
      ->type_name("TEXT");
  put->add_flag(
      "--prefill", options->prefill,
      "Compute the keys and values of the text now. A later ask with the same --system, and "
      "with no document before this one, then computes only the question. They are kept "
      "while there is room");
  put->add_flag("--pin", options->pin,
                "With --prefill: keep keys and values in memory until 'documents unpin'");
  put->add_option_function<std::string>(
         "--ttl", [options](const std::string& text) { options->ttl = ReadTtl(text); },
         "With --prefill: drop keys and values after this time, even if pinned: 90s, 30m, 2h, 7d; "
         "a year at most")
      ->type_name("TIME");
  put->add_option("-s,--system", options->system,
                  "With --prefill: system message before the document")
      ->type_name("TEXT");
  put->add_option("-m,--model", options->model,
                  "With --prefill: name of the model (default: the only one)")
      ->type_name("NAME");
  AddReadOptions(*put, options->read);
  put->footer(
      "Examples:\n"
      "  annulus documents put book.epub\n"
      "  annulus documents put --prefill book.epub && annulus ask book.epub 'Who dies?'\n"
      "  annulus documents put --prefill --pin --ttl 2h book.epub\n"
      "  annulus documents put 'reports/**/*.pdf'\n"
      "  zcat book.gz | annulus documents put - --name book");

  CLI::App* list = add("list", "List the documents on the server (also: ls)", &RunList);
  list->alias("ls");
  AddPatterns(*list, *options);
  list->footer("Examples:\n  annulus documents list\n  annulus documents list --json");

  CLI::App* show = add("show", "Describe documents", &RunShow);
  show->add_option("NAME...", options->arguments, "Names or titles on the server, or patterns")
      ->required();
  show->footer("Examples:\n  annulus documents show book.txt");

  CLI::App* get = add("get", "Print the text of a document, exactly as it was uploaded", &RunGet);
  get->add_option("NAME", options->arguments, "Name or title on the server")
      ->required()
      ->expected(1);
  get->add_option("-o,--output", options->output, "Write to FILE (default: standard output)")
      ->type_name("FILE");
  get->footer(
      "Examples:\n  annulus documents get book.txt -o book.txt\n\n"
      "The server keeps texts if it was started with --documents DIR.");

  CLI::App* unpin = add("unpin", "Unpin documents, so that they can be evicted", &RunUnpin);
  unpin->add_option("NAME...", options->arguments, "Names on the server, or patterns")->required();
  unpin->footer("Examples:\n  annulus documents unpin book.txt");

  CLI::App* remove = add("delete", "Delete documents (also: rm)", &RunDelete);
  remove->alias("rm");
  AddNamesToDelete(*remove, *options);
  remove->footer(
      "Examples:\n  annulus documents delete book.txt\n  annulus documents rm 'draft*' --force");

  // The same, for those who type them without "documents".
  CLI::App* ls = AddDocumentCommand(
      app, {"ls", "List the documents on the server, as 'documents list' does", &RunList}, options,
      common, action);
  AddPatterns(*ls, *options);
  ls->footer("Examples:\n  annulus ls\n  annulus ls '*.pdf'");
  CLI::App* rm = AddDocumentCommand(
      app, {"rm", "Delete documents from the server, as 'documents delete' does", &RunDelete},
      options, common, action);
  AddNamesToDelete(*rm, *options);
  rm->footer("Examples:\n  annulus rm book.txt\n  annulus rm 'draft*' --force");
}

}  // namespace annulus::client
