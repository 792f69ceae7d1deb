#include "client/cli/commands/document_put.h"

#include <filesystem>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/ask/answer.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/document_table.h"
#include "client/cli/input/inputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

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

// Misuse if no question could be asked about a text, because it alone is longer than the model's
// context. Leaves to the upload what the caller may not ask for.
int CheckLength(Session& session, const std::string& file, const std::string& model_name,
                DocumentContent& content) {
  constexpr int64_t kMostCounted = int64_t{1} << 30;
  v1::Model model;
  if (!DescribeModel(session, model_name, &model).ok()) return 0;
  // A token is at least one byte; a server that does not say its context has none.
  const int64_t context = model.max_context();
  if (context <= 0 || content.size < context || content.size > kMostCounted) return 0;
  int64_t tokens = 0;
  const std::string text = ReadAll(*content.stream);
  content.stream->clear();
  content.stream->seekg(0);
  if (!TokensOf(session, model.name(), text, &tokens).ok() || tokens < context) {
    return 0;
  }
  return session.Misuse(absl::StrCat(
      file == kStandardInput ? "standard input" : file, " has ", FormatCount(tokens),
      " tokens. The model ", model.name(), " reads ", FormatCount(context),
      " at a time, question and answer included. It was not stored. 'annulus ask', 'summarize' and "
      "'extract' read longer documents in parts"));
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
  if (const int bad = CheckLength(session, file, options.model, *content); bad != 0) return bad;
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

}  // namespace

nlohmann::ordered_json DocumentJson(const v1::Document& document,
                                    const std::optional<v1::Prefilled>& prefilled) {
  nlohmann::ordered_json members = MessageJson(document, AbsentField::kNull);
  if (prefilled.has_value()) {
    members["prefilled"] = MessageJson(*prefilled);
    members["prefilled"].erase("request_id");
  }
  return members;
}

int PrintDocument(Session& session, const v1::Document& document,
                  const std::optional<v1::Prefilled>& prefilled) {
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

}  // namespace annulus::client
