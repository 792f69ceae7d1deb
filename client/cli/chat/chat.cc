#include "client/cli/chat/chat.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "client/cli/chat/chat_archive.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/provide.h"
#include "client/cli/outputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/table.h"
#include "client/format/text.h"
#include "client/format/units.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr char kPrompt[] = "> ";
constexpr char kPromptBelow[] = ". ";
// Largest file that /load reads, in bytes; a larger conversation would not fit any context.
constexpr int64_t kLongestConversation = 64 << 20;

v1::Message MakeMessage(const char* role, const std::string& content) {
  v1::Message message;
  message.set_role(role);
  message.set_content(content);
  return message;
}

}  // namespace

struct Chat::Command {
  const char* name;
  const char* argument;
  const char* help;
  int (Chat::*run)(const std::string& argument);
};

const std::vector<Chat::Command>& Chat::Commands() {
  static const auto& commands = *new std::vector<Command>{
      {"/help", "", "this list", &Chat::Help},
      {"/docs", "[DOC...]", "list the documents; with DOC, add more", &Chat::Docs},
      {"/save", "FILE", "write the conversation to FILE, as JSON", &Chat::Save},
      {"/load", "FILE", "load a conversation from FILE", &Chat::Load},
      {"/clear", "", "forget the conversation; keep the documents", &Chat::Clear},
      {"/quit", "", "end the chat, like Ctrl-D", &Chat::Quit},
  };
  return commands;
}

Chat::Chat(Session& session, const ChatOptions& options, LineSource& lines)
    : session_(session),
      options_(options),
      lines_(lines),
      to_person_(session.console().in_is_terminal) {
  if (to_person_ && !options_.folder.empty()) saved_as_ = NewChat(options_.folder);
  BeginAnew();
}

void Chat::BeginAnew() {
  conversation_.messages.clear();
  if (!options_.system.empty()) {
    conversation_.messages.push_back(MakeMessage("system", options_.system));
  }
}

int Chat::Run() {
  if (to_person_) session_.StayWhenInterrupted();
  int exit_code = CheckText(session_, "--system", options_.system);
  if (exit_code == 0 && options_.continues) exit_code = ContinueLast();
  if (exit_code == 0) exit_code = AddDocuments(options_.documents);
  if (exit_code != 0) return exit_code;
  FitToModel(session_, options_.spec);
  Greet();
  std::string entry;
  while (!left_ && NextEntry(&entry)) {
    if (absl::StripAsciiWhitespace(entry).empty()) continue;
    exit_code = absl::StartsWith(entry, "/") ? Obey(entry) : Ask(entry);
    if (exit_code == 0) continue;
    if (!to_person_ || !session_.console().out.good()) return exit_code;
    session_.ForgetInterruption();
  }
  if (interrupted_) return kExitInterrupted;
  return skipped_ > 0 ? kExitPartial : session_.Finish();
}

void Chat::Greet() {
  if (!to_person_ || session_.options().quiet) return;
  const size_t count = conversation_.documents.size();
  session_.Remark(
      absl::StrCat(count == 0   ? "No documents; /docs DOC adds some"
                   : count == 1 ? "1 document"
                                : absl::StrCat(count, " documents"),
                   ". /help lists commands, Ctrl-C stops an answer, Ctrl-D ends the chat.\n"),
      0);
}

bool Chat::NextEntry(std::string* entry) {
  entry->clear();
  bool interrupted = false;
  session_.ForgetInterruption();
  while (const std::optional<std::string> line =
             lines_.Next(entry->empty() ? kPrompt : kPromptBelow)) {
    if (lines_.interrupted()) {
      entry->clear();
      interrupted_ = std::exchange(interrupted, true);
      if (interrupted_) return false;
      session_.Remark("Ctrl-C again, or Ctrl-D, ends the chat.\n", 0);
      continue;
    }
    absl::StrAppend(entry, *line);
    if (!absl::EndsWith(*entry, "\\")) return true;
    entry->back() = '\n';
  }
  return !entry->empty();
}

int Chat::Ask(const std::string& question) {
  if (const int bad = CheckText(session_, "the question", question); bad != 0) return bad;
  v1::GenerationSpec spec = options_.spec;
  for (const std::string& name : conversation_.documents) spec.add_documents(name);
  v1::Messages& messages = *spec.mutable_messages();
  for (const v1::Message& message : conversation_.messages) *messages.add_messages() = message;
  *messages.add_messages() = MakeMessage("user", question);
  ++asked_;
  // Request ids must be unique, so each question gets its own.
  if (spec.has_request_id()) spec.set_request_id(absl::StrCat(spec.request_id(), "-", asked_));
  std::string answer;
  const int exit_code = Answer(session_, spec, options_.answer, &answer);
  // An answer that was interrupted stays in the conversation. A question without any answer does
  // not, so it can be asked again.
  if (exit_code == 0 || !answer.empty()) {
    conversation_.messages.push_back(MakeMessage("user", question));
    conversation_.messages.push_back(MakeMessage("assistant", answer));
    SaveByItself();
  }
  return exit_code;
}

int Chat::Obey(const std::string& entry) {
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(entry, absl::MaxSplits(absl::ByAnyChar(" \t"), 1));
  const std::string argument(absl::StripAsciiWhitespace(parts.second));
  std::vector<std::string> names;
  for (const Command& command : Commands()) {
    names.push_back(command.name);
    if (parts.first != command.name) continue;
    if (command.argument[0] == '\0' && !argument.empty()) {
      return session_.Misuse(absl::StrCat(command.name, " takes no argument, but got ", argument));
    }
    return (this->*command.run)(argument);
  }
  const std::string meant = MeantWord(parts.first, names);
  return session_.Misuse(
      absl::StrCat("unknown command: ", parts.first,
                   meant.empty() ? "" : absl::StrCat("; did you mean ", meant, "?"),
                   "\nCommands: ", absl::StrJoin(names, ", "),
                   "; to ask a question that begins with a slash, put a space before it"));
}

int Chat::Help(const std::string& /*argument*/) {
  std::string text;
  for (const Command& command : Commands()) {
    absl::StrAppendFormat(&text, "%-16s%s\n", absl::StrCat(command.name, " ", command.argument),
                          command.help);
  }
  absl::StrAppend(
      &text,
      "Anything else is a question. A line that ends in \\ continues on the next one.\n"
      "Ctrl-C stops an answer and keeps the part received; a second Ctrl-C at the prompt "
      "ends the chat.\n");
  if (!saved_as_.empty()) {
    absl::StrAppend(&text,
                    "The conversation is saved after each answer: annulus chat --continue\n");
  }
  session_.Remark(text, 16);
  return 0;
}

int Chat::AddDocuments(const std::vector<std::string>& docs) {
  if (std::find(docs.begin(), docs.end(), kStandardInput) != docs.end()) {
    return session_.Misuse(
        "standard input (-) is used for questions; to use it as a document, store it first: "
        "annulus documents put - --name NAME");
  }
  ProvidedDocuments provided;
  const int exit_code =
      ProvideDocuments(session_, docs, options_.choice, options_.spec.model(), &provided);
  skipped_ += provided.skipped + provided.incomplete;
  if (exit_code != 0) return exit_code;
  std::vector<std::string> known = conversation_.documents;
  for (const auto& document : provided.documents) {
    const std::string& name = document.name();
    if (std::find(known.begin(), known.end(), name) == known.end()) known.push_back(name);
  }
  if (known.size() > kMostDocuments) {
    const int refused =
        session_.Misuse(absl::StrCat("with these the conversation would have ", known.size(),
                                     " documents; a request takes at most ", kMostDocuments,
                                     "; use /clear, or start another chat"));
    return EndWith(refused, session_, &provided);
  }
  conversation_.documents = std::move(known);
  for (const std::string& doc : docs) {
    std::error_code error;
    if (!std::filesystem::exists(doc, error) && !IsPattern(doc)) continue;  // a name on the server
    const std::string path = std::filesystem::absolute(doc, error).string();
    std::vector<std::string>& files = conversation_.files;
    if (std::find(files.begin(), files.end(), path) == files.end()) files.push_back(path);
  }
  return 0;
}

void Chat::SaveByItself() {
  if (saved_as_.empty()) return;
  const absl::Status saved = SaveChat(saved_as_, conversation_);
  if (saved.ok()) return;
  session_.Warn(absl::StrCat("the conversation is not saved by itself: ", saved.message()));
  saved_as_.clear();
}

int Chat::ContinueLast() {
  const std::string newest = options_.folder.empty() ? "" : NewestChat(options_.folder);
  if (newest.empty()) {
    return session_.Misuse(
        absl::StrCat("no conversation was saved", options_.folder.empty()
                                                      ? ": neither HOME nor XDG_STATE_HOME is set"
                                                      : absl::StrCat(" in ", options_.folder)));
  }
  const int exit_code = Take(newest);
  if (exit_code == 0 && to_person_) saved_as_ = newest;
  return exit_code;
}

int Chat::Docs(const std::string& argument) {
  if (!argument.empty()) {
    const int exit_code = AddDocuments(absl::StrSplit(argument, ' ', absl::SkipEmpty()));
    if (exit_code != 0) return exit_code;
  }
  Table table({{"DOCUMENT"}, {"SIZE", Table::Align::kRight}, {"TOKENS", Table::Align::kRight}});
  for (const std::string& name : conversation_.documents) {
    v1::Document document;
    const grpc::Status status = GetDocument(session_.connection(), name, &document);
    if (!status.ok()) return session_.CallFailed(status);
    table.AddRow({document.title().empty() ? name : OnOneLine(document.title()),
                  FormatBytes(document.size_bytes()), FormatCount(document.token_count())});
  }
  session_.Remark(conversation_.documents.empty() ? "no documents\n"
                                                  : table.Render(session_.console().columns()),
                  0);
  return 0;
}

int Chat::Save(const std::string& file) {
  if (file.empty()) return session_.Misuse("/save needs a file: /save talk.json");
  // Do not overwrite a file that is not a saved conversation.
  const absl::StatusOr<std::string> there = LoadFile(file, kLongestConversation);
  const bool is_new = absl::IsNotFound(there.status());
  if (!is_new && (!there.ok() || !ParseConversation(file, *there).ok())) {
    return session_.Misuse(
        absl::StrCat(file, " exists and is not a saved conversation; give another name"));
  }
  const int exit_code = WriteOutput(session_, file, ConversationJson(conversation_));
  if (exit_code == 0) session_.Remark(absl::StrCat("saved to ", file, "\n"), 0);
  return exit_code;
}

int Chat::Load(const std::string& file) {
  if (file.empty()) return session_.Misuse("/load needs a file: /load talk.json");
  return Take(file);
}

// Whether the documents of the conversation in `file`, which is conversation_ by now, may be
// uploaded again: a file that comes from elsewhere may name any file of this user. Returns the exit
// code.
int Chat::AllowUploads(const std::string& file) {
  std::error_code error;
  const std::filesystem::path folder = std::filesystem::absolute(file, error).parent_path();
  if (!options_.folder.empty() && std::filesystem::equivalent(folder, options_.folder, error)) {
    return 0;  // written by this program
  }
  std::string files;
  for (const std::string& name : conversation_.files) {
    absl::StrAppend(&files, "\n  ", OnOneLine(name));
  }
  if (to_person_) {
    session_.Remark(absl::StrCat(file,
                                 " is about documents that the server does not have. It names "
                                 "these files here to upload:",
                                 files, "\n"),
                    0);
    const std::optional<std::string> said = lines_.Next("Upload them? [y/N] ");
    if (said.has_value() && !lines_.interrupted() && absl::EqualsIgnoreCase(*said, "y")) return 0;
  }
  return session_.Misuse(absl::StrCat(
      file,
      " is about documents that the server does not have, and nobody has agreed to upload "
      "the files that it names; give those that you want to ask about as DOC:",
      files));
}

// Goes on with a saved conversation. Uploads documents again that the server does not have any
// more, if the conversation knows their files.
int Chat::Take(const std::string& file) {
  const absl::StatusOr<std::string> text = LoadFile(file, kLongestConversation);
  if (!text.ok()) return session_.Misuse(text.status().message());
  absl::StatusOr<Conversation> loaded = ParseConversation(file, *text);
  if (!loaded.ok()) return session_.Misuse(loaded.status().message());
  std::vector<std::string> there;
  for (const std::string& name : loaded->documents) {
    v1::Document document;
    const grpc::Status status = GetDocument(session_.connection(), name, &document);
    const bool absent = status.error_code() == grpc::StatusCode::NOT_FOUND;
    if (status.ok()) there.push_back(name);
    if (!status.ok() && (!absent || loaded->files.empty())) return session_.CallFailed(status);
  }
  Conversation before = std::exchange(conversation_, *std::move(loaded));
  if (there.size() < conversation_.documents.size()) {
    conversation_.documents = std::move(there);
    int exit_code = AllowUploads(file);
    if (exit_code == 0) exit_code = AddDocuments(std::vector<std::string>(conversation_.files));
    if (exit_code != 0) {
      conversation_ = std::move(before);
      return exit_code;
    }
  }
  const size_t documents = conversation_.documents.size();
  session_.Remark(absl::StrCat(conversation_.messages.size(), " messages and ", documents,
                               documents == 1 ? " document" : " documents", " from ", file, "\n"),
                  0);
  return 0;
}

int Chat::Clear(const std::string& /*argument*/) {
  BeginAnew();
  return 0;
}

int Chat::Quit(const std::string& /*argument*/) {
  left_ = true;
  return 0;
}

}  // namespace annulus::client
