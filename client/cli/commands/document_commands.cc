#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/ask/answer.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/document_table.h"
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

struct DocumentOptions {
  std::vector<std::string> arguments;  // files, or names and patterns of names
  std::string name;                    // the document's name on the server
  std::optional<std::string> title;
  std::string output;  // the file that gets the text
  bool force = false;
  bool prefill = false;
  bool pin = false;
  std::optional<double> ttl;  // seconds
  std::string model;
  std::string system;
  ReadOptions read;
};

// A document that was uploaded.
struct PutDocument {
  v1::Document document;
  std::optional<v1::Prefilled> prefilled;
};

nlohmann::ordered_json DocumentJson(const v1::Document& document,
                                    const std::optional<v1::Prefilled>& prefilled) {
  nlohmann::ordered_json members = MessageJson(document, AbsentField::kNull);
  if (prefilled.has_value()) {
    members["prefilled"] = MessageJson(*prefilled);
    members["prefilled"].erase("request_id");
  }
  return members;
}

// Says how much of a document is ready for questions, and how long that took.
std::string ReadAheadText(const v1::Prefilled& prefilled) {
  if (prefilled.tokens() == 0) return "nothing: the document is shorter than a page";
  const int64_t read = prefilled.tokens() - prefilled.cached_tokens();
  return absl::StrCat(FormatCount(prefilled.tokens()),
                      prefilled.tokens() == 1 ? " token" : " tokens",
                      read == 0 ? ", there before"
                                : absl::StrCat(", ", FormatCount(read), " of them computed in ",
                                               FormatDuration(prefilled.prefill())));
}

absl::string_view StayText(const v1::Document& document) {
  if (document.transient()) return "until it is evicted";
  return document.has_bytes() ? "until it is deleted, restarts included" : "until it is deleted";
}

int PrintDocument(Session& session, const v1::Document& document,
                  const std::optional<v1::Prefilled>& prefilled = std::nullopt) {
  if (session.options().json) {
    session.Print(JsonLine(DocumentJson(document, prefilled)));
  } else {
    session.Print(absl::StrCat("title   ", ShownTitle(document), "\n",                 //
                               "name    ", document.name(), "\n",                      //
                               "size    ", FormatBytes(document.size_bytes()), "\n",   //
                               "tokens  ", FormatCount(document.token_count()), "\n",  //
                               "sha256  ", document.sha256(), "\n",                    //
                               "age     ", FormatDuration(document.age()), "\n",       //
                               "used    ", LastUsed(document), "\n",                   //
                               "memory  ", FormatCount(document.memory_tokens()), " tokens\n",
                               "host    ", FormatCount(document.host_tokens()), " tokens\n",
                               "disk    ", FormatCount(document.disk_tokens()), " tokens\n",
                               "kept    ", PinText(document), "\n",  //
                               "stays   ", StayText(document), "\n"));
    if (prefilled.has_value()) {
      session.Print(absl::StrCat("ahead   ", ReadAheadText(*prefilled), "\n"));
      const std::string why = prefilled->has_cache_miss() ? MissText(prefilled->cache_miss()) : "";
      if (!why.empty()) session.Print(absl::StrCat("reuse   ", why, "\n"));
    }
  }
  return session.Finish();
}

// Expands the arguments of `put` (files, folders, patterns) to files; keeps "-".
absl::StatusOr<std::vector<std::string>> FilesToPut(Session& session,
                                                    const std::vector<std::string>& arguments) {
  std::vector<std::string> files;
  for (const std::string& argument : arguments) {
    std::error_code error;
    const bool is_file =
        std::filesystem::exists(argument, error) && !std::filesystem::is_directory(argument, error);
    const bool is_folder = !is_file && std::filesystem::exists(argument, error);
    if (argument == kStandardInput || is_file || (!is_folder && !IsPattern(argument))) {
      files.push_back(argument);
      continue;
    }
    const absl::StatusOr<FoundFiles> found = FindFiles(argument, {});
    if (!found.ok()) return found.status();
    if (!found->left_out.empty()) session.Warn(found->left_out);
    files.insert(files.end(), found->files.begin(), found->files.end());
  }
  return files;
}

// Has the server prefill the document, and the system message before it, showing progress as for a
// prompt.
int Prefill(Session& session, const DocumentOptions& options, const std::string& name,
            std::optional<v1::Prefilled>* prefilled) {
  v1::PrefillDocumentRequest request;
  request.set_name(name);
  request.set_model(options.model);
  if (!options.system.empty()) request.set_system(options.system);
  request.set_pin(options.pin);
  if (options.ttl.has_value()) request.set_ttl(*options.ttl);
  const auto show = [&](const v1::PrefillDocumentResponse& event) {
    if (event.has_queued()) ShowWaiting(session, event.queued());
    if (event.has_prompt_progress()) ShowReading(session, event.prompt_progress());
  };
  const grpc::Status status =
      PrefillDocument(session.connection(), request, show, &prefilled->emplace());
  session.progress().Clear();
  return status.ok() ? 0 : session.CallFailed(status);
}

int PutOne(Session& session, const std::string& file, const DocumentOptions& options,
           PutDocument* put) {
  std::string name = options.name;
  const bool from_stdin = file == kStandardInput;
  if (name.empty()) {
    if (from_stdin) return session.Misuse("a document from standard input needs --name NAME");
    name = std::filesystem::path(file).filename().string();
  }
  if (!IsDocumentName(name)) {
    return session.Misuse(absl::StrCat(
        "\"", name,
        "\" is not a valid document name: 1 to 128 ASCII letters, digits, '.', '_' and '-', the "
        "first a letter or digit, no '..'; give a name with --name NAME"));
  }
  absl::StatusOr<DocumentContent> content = ReadOneText(session, file, options.read);
  if (!content.ok()) return session.Misuse(absl::string_view(content.status().message()));
  if (options.title.has_value()) {
    const int bad = CheckText(session, "--title", *options.title);
    if (bad != 0) return bad;
    content->title = *options.title;
  }
  return Upload(session, name, *content, &put->document);
}

// Says before the first document is read if the server has no room for the keys and values of all.
// Misuse if they are to be pinned. Says nothing to callers who may not see the server's memory.
int CheckPrefillRoom(Session& session, const DocumentOptions& options,
                     const std::vector<PutDocument>& stored) {
  v1::Model model;
  v1::GetLoadResponse load;
  Call call(session.connection());
  if (!DescribeModel(session, options.model, &model).ok() ||
      !session.connection().admin().GetLoad(call.context(), {}, &load).ok()) {
    return 0;
  }
  int64_t tokens = 0, room = 0;
  for (const PutDocument& put : stored) tokens += put.document.token_count();
  for (const v1::RankLoad& rank : load.ranks()) room += rank.kv_bytes_total();
  const double needed =
      static_cast<double>(tokens) * static_cast<double>(model.kv_bytes_per_token());
  if (room == 0 || needed <= static_cast<double>(room)) return 0;
  const std::string what =
      absl::StrCat("keys and values of ", FormatCount(tokens), " tokens take ",
                   FormatBytes(static_cast<int64_t>(needed)), ", and the server has room for ",
                   FormatBytes(room), " of them");
  if (options.pin) {
    return session.Misuse(absl::StrCat(
        what,
        ", so not all can be pinned. Nothing was read ahead; the documents are stored. Pin "
        "fewer, or start annulusd with more --kv-memory"));
  }
  session.Warn(absl::StrCat(what,
                            ": those read first leave its memory before the last are read. "
                            "Read fewer ahead, or start annulusd with more --kv-memory"));
  return 0;
}

// Has the server read the stored documents. Returns the last failure; an interruption ends it.
int PrefillAll(Session& session, const DocumentOptions& options, std::vector<PutDocument>& stored) {
  if (const int bad = CheckPrefillRoom(session, options, stored); bad != 0) return bad;
  int failure = 0;
  for (PutDocument& put : stored) {
    const std::string name = put.document.name();
    int exit_code = Prefill(session, options, name, &put.prefilled);
    if (exit_code == 0) {
      // Ask again, to show how much of it is in memory and on disk now.
      const grpc::Status status = GetDocument(session.connection(), name, &put.document);
      if (!status.ok()) exit_code = session.CallFailed(status);
    } else {
      put.prefilled.reset();
    }
    if (exit_code == kExitInterrupted) return exit_code;
    if (exit_code != 0) failure = exit_code;
  }
  return failure;
}

int PrintDocuments(Session& session, const std::vector<PutDocument>& documents);

int RunPut(Session& session, const DocumentOptions& options) {
  const absl::StatusOr<std::vector<std::string>> files = FilesToPut(session, options.arguments);
  if (!files.ok()) return session.Misuse(files.status().message());
  if (files->size() > 1 && (!options.name.empty() || options.title.has_value())) {
    return session.Misuse(
        absl::StrCat("--name and --title need a single file, but there are ", files->size()));
  }
  if (const int bad = CheckText(session, "--system", options.system); bad != 0) return bad;
  if (!options.prefill && (options.pin || options.ttl.has_value())) {
    return session.Misuse(
        "--pin and --ttl need --prefill: they set how long its keys and values are kept");
  }
  std::vector<PutDocument> stored;
  int failure = 0;
  for (const std::string& file : *files) {
    PutDocument put;
    const int exit_code = PutOne(session, file, options, &put);
    if (exit_code == 0) stored.push_back(std::move(put));
    if (exit_code == kExitInterrupted) return exit_code;
    if (exit_code != 0) failure = exit_code;
  }
  if (stored.empty()) return failure;
  if (options.prefill) {
    const int exit_code = PrefillAll(session, options, stored);
    if (exit_code != 0 && (stored.size() == 1 || exit_code == kExitInterrupted)) return exit_code;
    if (exit_code != 0) failure = exit_code;
  }
  const int printed = files->size() == 1
                          ? PrintDocument(session, stored[0].document, stored[0].prefilled)
                          : PrintDocuments(session, stored);
  return failure != 0 ? kExitPartial : printed;
}

int PrintDocuments(Session& session, const std::vector<PutDocument>& documents) {
  if (session.options().json) {
    nlohmann::ordered_json listed = nlohmann::ordered_json::array();
    for (const auto& [document, prefilled] : documents) {
      listed.push_back(DocumentJson(document, prefilled));
    }
    nlohmann::ordered_json object;
    object["documents"] = std::move(listed);
    session.Print(JsonLine(object));
    return session.Finish();
  }
  std::vector<v1::Document> shown;
  for (const auto& [document, prefilled] : documents) shown.push_back(document);
  session.Print(DocumentTable(shown, session.table_columns()));
  for (const auto& [document, prefilled] : documents) {
    if (!prefilled.has_value()) continue;
    session.Print(
        absl::StrCat("ahead of ", document.name(), ": ", ReadAheadText(*prefilled), "\n"));
  }
  return session.Finish();
}

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
  put->add_option("--name", options->name, "Name on the server (default: the file's own)")
      ->type_name("NAME");
  put->add_option("--title", options->title,
                  "Title that the model and lists show (default: the file's name, else NAME)")
      ->type_name("TEXT");
  put->add_flag("--prefill", options->prefill,
                "Compute the keys and values of the text now, so that a later ask computes only "
                "the question; ask needs the same --system, and no document before this one. They "
                "are kept while there is room");
  put->add_flag("--pin", options->pin, "With --prefill: never evict them until unpin");
  put->add_option_function<std::string>(
         "--ttl", [options](const std::string& text) { options->ttl = ReadTtl(text); },
         "With --prefill: drop them after this time, even if pinned: 90s, 30m, 2h, 7d; a year at "
         "most")
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

  CLI::App* get = add("get", "Bring back the text of a document, as it was uploaded", &RunGet);
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
