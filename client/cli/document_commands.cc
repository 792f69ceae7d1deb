#include <filesystem>
#include <memory>

#include "absl/strings/str_cat.h"
#include "client/cli/commands.h"
#include "client/cli/inputs.h"
#include "client/cli/options.h"
#include "client/documents.h"
#include "client/format/json.h"
#include "client/format/table.h"
#include "client/format/units.h"

namespace annulus {
namespace {

struct DocumentOptions {
  std::string file;
  std::string name;
};

void WriteDocument(const v1::Document& document, JsonWriter& json) {
  json.BeginObject();
  json.Key("name").String(document.name());
  json.Key("size_bytes").Int(document.size_bytes());
  json.Key("sha256").String(document.sha256());
  json.Key("token_count").Int(document.token_count());
  json.Key("age").Double(document.age());
  json.EndObject();
}

int PrintDocument(Session& session, const v1::Document& document) {
  if (session.options().json) {
    JsonWriter json;
    WriteDocument(document, json);
    session.Print(absl::StrCat(json.text(), "\n"));
  } else {
    session.Print(absl::StrCat("name    ", document.name(), "\n",                      //
                               "size    ", FormatBytes(document.size_bytes()), "\n",   //
                               "tokens  ", FormatCount(document.token_count()), "\n",  //
                               "sha256  ", document.sha256(), "\n",                    //
                               "age     ", FormatDuration(document.age()), "\n"));
  }
  return session.Finish();
}

int RunPut(Session& session, const DocumentOptions& options) {
  const bool from_stdin = options.file == kStandardInput;
  std::string name = options.name;
  if (name.empty()) {
    if (from_stdin) return session.Misuse("a document from standard input needs --name NAME");
    name = std::filesystem::path(options.file).filename().string();
  }
  if (!IsDocumentName(name)) {
    return session.Misuse(absl::StrCat(
        "\"", name,
        "\" cannot be a document's name: 1 to 128 ASCII letters, digits, '.', '_' and '-', the "
        "first a letter or digit, no '..'; give one with --name NAME"));
  }
  auto content = from_stdin ? ReadDocument(session.console().in) : OpenDocument(options.file);
  if (!content.ok()) return session.Misuse(absl::string_view(content.status().message()));
  v1::Document document;
  const int exit_code = Upload(session, name, *content, &document);
  return exit_code == 0 ? PrintDocument(session, document) : exit_code;
}

int RunList(Session& session) {
  std::vector<v1::Document> documents;
  const grpc::Status status = ListDocuments(session.connection(), &documents);
  if (!status.ok()) return session.CallFailed(status);
  if (session.options().json) {
    JsonWriter json;
    json.BeginObject().Key("documents").BeginArray();
    for (const v1::Document& document : documents) WriteDocument(document, json);
    json.EndArray().EndObject();
    session.Print(absl::StrCat(json.text(), "\n"));
    return session.Finish();
  }
  using Align = Table::Align;
  Table table(
      {{"NAME"}, {"SIZE", Align::kRight}, {"TOKENS", Align::kRight}, {"AGE", Align::kRight}});
  for (const v1::Document& document : documents) {
    table.AddRow({document.name(), FormatBytes(document.size_bytes()),
                  FormatCount(document.token_count()), FormatDuration(document.age())});
  }
  session.Print(table.Render(session.table_columns()));
  return session.Finish();
}

int RunShow(Session& session, const DocumentOptions& options) {
  v1::Document document;
  const grpc::Status status = GetDocument(session.connection(), options.name, &document);
  return status.ok() ? PrintDocument(session, document) : session.CallFailed(status);
}

int RunDelete(Session& session, const DocumentOptions& options) {
  const grpc::Status status = DeleteDocument(session.connection(), options.name);
  if (!status.ok()) return session.CallFailed(status);
  if (session.options().json) {
    JsonWriter json;
    json.BeginObject().Key("deleted").String(options.name).EndObject();
    session.Print(absl::StrCat(json.text(), "\n"));
  } else {
    session.Print(absl::StrCat("deleted ", options.name, "\n"));
  }
  return session.Finish();
}

}  // namespace

void AddDocumentCommands(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& documents =
      *app.add_subcommand("documents", "Store texts on the server and look after them");
  documents.require_subcommand(1);
  documents.footer("Examples:\n  annulus documents put book.txt\n  annulus documents list");
  const auto options = std::make_shared<DocumentOptions>();
  const auto add = [&](const char* name, const char* help,
                       int (*run)(Session&, const DocumentOptions&)) {
    CLI::App& command = *documents.add_subcommand(name, help);
    AddCommonOptions(command, common);
    command.callback([&action, options, run] {
      action = [options, run](Session& session) { return run(session, *options); };
    });
    return &command;
  };

  CLI::App* put = add("put", "Upload a text file", &RunPut);
  put->add_option("FILE", options->file, "UTF-8 text; - for standard input")->required();
  put->add_option("--name", options->name, "Name on the server (default: the file's own)")
      ->type_name("NAME");
  put->footer(
      "Examples:\n"
      "  annulus documents put book.txt\n"
      "  zcat book.gz | annulus documents put - --name book");

  CLI::App* list = add("list", "List the documents on the server",
                       [](Session& session, const DocumentOptions&) { return RunList(session); });
  list->footer("Examples:\n  annulus documents list\n  annulus documents list --json");

  CLI::App* show = add("show", "Describe one document", &RunShow);
  show->add_option("NAME", options->name, "Name on the server")->required();
  show->footer("Examples:\n  annulus documents show book.txt");

  CLI::App* remove = add("delete", "Delete one document", &RunDelete);
  remove->add_option("NAME", options->name, "Name on the server")->required();
  remove->footer("Examples:\n  annulus documents delete book.txt");
}

}  // namespace annulus
