#include "client/cli/input/provide.h"

#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/input/inputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// The most text that is held in memory before it is uploaded: far more than a model reads.
constexpr int64_t kMostHeldBytes = int64_t{1} << 30;

std::string NameOf(const GatheredDocument& document) {
  if (!document.content.has_value()) return document.stored.name();
  return document.content->title.empty() ? "standard input" : document.content->title;
}

// Counts the tokens of a document.
int Count(Session& session, const v1::Model& model, GatheredDocument& document) {
  DocumentContent& content = *document.content;
  if (content.size > kMostHeldBytes) {
    return session.Misuse(absl::StrCat(NameOf(document), " holds ", FormatBytes(content.size),
                                       " of text; at most ", FormatBytes(kMostHeldBytes),
                                       " are read at a time; give parts of it"));
  }
  content.stream->clear();
  content.stream->seekg(0);
  return CountTokens(session, model.name(), ReadAll(*content.stream), &document.tokens);
}

// Uploads a text unless the server has it with the same title. The model sees the title, so a text
// with another title is a different document.
int UploadOnce(Session& session, DocumentContent& content, ProvidedDocuments* provided) {
  content.transient = true;
  v1::Document document;
  for (const std::string& name : {ContentName(content), TitledName(content)}) {
    const grpc::Status found = GetDocument(session.connection(), name, &document);
    if (found.error_code() == grpc::StatusCode::NOT_FOUND) {
      const int exit_code = Upload(session, name, content, &document);
      if (exit_code != 0) return exit_code;
      provided->uploaded.push_back(name);
      break;
    }
    if (!found.ok()) return session.CallFailed(found);
    if (document.title() != content.title) continue;
    // It may be there without its text.
    if (content.keep_text && !document.has_text()) {
      const int exit_code = Upload(session, name, content, &document);
      if (exit_code != 0) return exit_code;
    }
    break;
  }
  provided->documents.push_back(std::move(document));
  return 0;
}

// Reads the documents of a command line.
class Gatherer {
 public:
  Gatherer(Session& session, const DocumentChoice& choice, GatheredDocuments& gathered)
      : session_(session), choice_(choice), gathered_(gathered) {}

  int Add(const std::string& doc) {
    if (doc == kStandardInput) {
      return AddBytes("standard input", ReadAll(session_.console().in));
    }
    std::error_code error;
    const bool exists = std::filesystem::exists(doc, error);
    if (exists && !std::filesystem::is_directory(doc, error)) return AddFile(doc);
    if (!exists && !IsPattern(doc)) return AddNamed(doc);
    const absl::StatusOr<FoundFiles> found = FindFiles(doc, choice_.files);
    if (!found.ok()) return session_.Misuse(found.status().message());
    if (!found->left_out.empty()) session_.Warn(found->left_out);
    // If some are skipped, the number is known only after reading them.
    if (!choice_.skip_unreadable) {
      const int exit_code = CheckCount(doc, found->files.size());
      if (exit_code != 0) return exit_code;
    }
    for (const std::string& file : found->files) {
      const int exit_code = AddFile(file);
      if (exit_code != 0) return exit_code;
    }
    return 0;
  }

  int AddText(const FileText& read) {
    if (!read.text.ok()) {
      const absl::string_view message = read.text.status().message();
      if (!choice_.skip_unreadable) {
        const int misuse = session_.Misuse(message);
        return read.incomplete ? kExitPartial : misuse;
      }
      session_.Warn(absl::StrCat("skipped: ", message));
      ++gathered_.skipped;
      return 0;
    }
    for (const std::string& remark : read.remarks) session_.Warn(remark);
    gathered_.incomplete += choice_.strict && read.incomplete ? 1 : 0;
    std::istringstream text(*read.text);
    absl::StatusOr<DocumentContent> content = ReadDocument(text);
    if (!content.ok()) return session_.Misuse(content.status().message());
    content->title = TitleOf(read.title);
    held_bytes_ += content->size;
    if (held_bytes_ > kMostHeldBytes) {
      return session_.Misuse(absl::StrCat("the documents up to ", read.title, " have more than ",
                                          FormatBytes(kMostHeldBytes),
                                          " of text; give fewer documents"));
    }
    if (choice_.keep_text) KeepText(*read.text, *content);
    gathered_.documents.push_back({std::move(*content)});
    return 0;
  }

 private:
  static void KeepText(absl::string_view text, DocumentContent& content) {
    content.keep_text = true;
    content.marks = MarksOf(text);
  }

  // Misuse if `more` documents of `what` would be too many for one request.
  int CheckCount(const std::string& what, size_t more) {
    const size_t before = gathered_.documents.size();
    if (before + more <= kMostDocuments) return 0;
    return session_.Misuse(absl::StrCat(
        what, " has ", FormatCount(static_cast<int64_t>(more)),
        more == 1 ? " document" : " documents",
        before == 0 ? ""
                    : absl::StrCat(", in total ", FormatCount(static_cast<int64_t>(before + more))),
        "; a request takes at most ", kMostDocuments,
        ". Nothing was uploaded. Select some with --include and --exclude, or ask in several "
        "runs"));
  }

  int AddBytes(const std::string& title, std::string bytes) {
    const std::vector<FileText> texts =
        ReadBytes(title, std::move(bytes), Telling(session_, choice_.read));
    size_t readable = 0;
    for (const FileText& read : texts) {
      readable += read.text.ok() || !choice_.skip_unreadable ? 1 : 0;
    }
    const int exit_code = CheckCount(title, readable);
    if (exit_code != 0) return exit_code;
    for (const FileText& read : texts) {
      const int bad = AddText(read);
      if (bad != 0) return bad;
    }
    return 0;
  }

  int AddFile(const std::string& path) {
    if (MayBeSentAsIs(path, choice_.read)) {
      absl::StatusOr<DocumentContent> content = OpenDocument(path);
      if (content.ok()) {
        const int exit_code = CheckCount(path, 1);
        content->keep_text = choice_.keep_text;
        if (exit_code == 0) gathered_.documents.push_back({std::move(*content)});
        return exit_code;
      }
    }
    absl::StatusOr<std::string> bytes = LoadFile(path, ReadLimits().file_bytes);
    return bytes.ok() ? AddBytes(path, *std::move(bytes)) : AddText({path, bytes.status()});
  }

  int AddNamed(const std::string& name) {
    if (!IsDocumentName(name)) {
      return session_.Misuse(absl::StrCat("there is no file ", name,
                                          ", and a document on the server cannot have that name"));
    }
    v1::Document document;
    const grpc::Status found = GetDocument(session_.connection(), name, &document);
    if (found.ok()) {
      const int exit_code = CheckCount(name, 1);
      if (exit_code == 0)
        gathered_.documents.push_back({std::nullopt, document, document.token_count()});
      return exit_code;
    }
    if (found.error_code() != grpc::StatusCode::NOT_FOUND) {
      // The name may be a mistyped path, which the failure of the call does not say.
      if (!session_.interrupted()) {
        session_.Misuse(absl::StrCat("there is no file ", name,
                                     ", and the server could not look up a document of that name"));
      }
      return session_.CallFailed(found);
    }
    session_.PrintFailure(found);
    session_.Misuse(absl::StrCat(
        name,
        " is neither a local file nor a document on the server (see 'annulus documents list')"));
    return ExitCode(found);
  }

  Session& session_;
  const DocumentChoice& choice_;
  GatheredDocuments& gathered_;
  int64_t held_bytes_ = 0;  // of texts in memory
};

}  // namespace

int GatherDocuments(Session& session, const std::vector<std::string>& docs,
                    const DocumentChoice& choice, GatheredDocuments* gathered) {
  Gatherer gatherer(session, choice, *gathered);
  for (const std::string& doc : docs) {
    const int exit_code = gatherer.Add(doc);
    if (exit_code != 0) return exit_code;
  }
  if (gathered->documents.empty() && gathered->skipped > 0) {
    return session.Misuse("none of the documents can be read");
  }
  return 0;
}

int CheckRoom(Session& session, const v1::Model& model, int64_t others, GatheredDocuments* gathered,
              bool* fit) {
  const int64_t room = model.max_context() - others;
  int64_t most = 0;  // a token has at least one byte
  for (const GatheredDocument& document : gathered->documents) {
    most += document.content.has_value() ? document.content->size : document.tokens;
  }
  *fit = most < room || model.max_context() == 0;  // 0: an older server does not tell
  if (*fit) return 0;
  int64_t tokens = 0;
  for (GatheredDocument& document : gathered->documents) {
    const int exit_code = document.content.has_value() ? Count(session, model, document) : 0;
    if (exit_code != 0) return exit_code;
    tokens += document.tokens;
  }
  *fit = tokens < room;
  return 0;
}

std::string TooLongText(const v1::Model& model, const GatheredDocuments& gathered) {
  int64_t tokens = 0;
  std::vector<std::string> longest;
  for (const GatheredDocument& document : gathered.documents) {
    tokens += document.tokens;
    longest.push_back(absl::StrCat(NameOf(document), " has ", FormatCount(document.tokens)));
  }
  constexpr size_t kMostNamed = 8;
  const size_t more = longest.size() > kMostNamed ? longest.size() - kMostNamed : 0;
  longest.resize(longest.size() - more);
  const bool one = gathered.documents.size() == 1;
  return absl::StrCat(
      one ? "" : absl::StrCat("the documents have ", FormatCount(tokens), " tokens together: "),
      absl::StrJoin(longest, ", "), one ? " tokens" : "",
      more > 0 ? absl::StrCat(" and ", more, " more documents") : "", ". The model ", model.name(),
      " reads ", FormatCount(model.max_context()), " at a time, question and answer included");
}

int UploadDocuments(Session& session, GatheredDocuments& gathered, ProvidedDocuments* provided) {
  provided->skipped += gathered.skipped;
  provided->incomplete += gathered.incomplete;
  for (GatheredDocument& document : gathered.documents) {
    if (!document.content.has_value()) {
      provided->documents.push_back(std::move(document.stored));
      continue;
    }
    const int exit_code = UploadOnce(session, *document.content, provided);
    if (exit_code != 0) {
      WithdrawUploads(session, provided);
      return exit_code;
    }
    document.content.reset();
  }
  return 0;
}

int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     const DocumentChoice& choice, const std::string& model_name,
                     ProvidedDocuments* provided) {
  GatheredDocuments gathered;
  int exit_code = GatherDocuments(session, docs, choice, &gathered);
  if (exit_code != 0) return exit_code;
  v1::Model model;
  // Ignore a failure: the call that follows will report it.
  if (!gathered.documents.empty() && DescribeModel(session, model_name, &model).ok()) {
    bool fit = false;
    exit_code = CheckRoom(session, model, /*others=*/0, &gathered, &fit);
    if (exit_code != 0) return exit_code;
    if (!fit) {
      return session.Misuse(absl::StrCat(TooLongText(model, gathered),
                                         ". Nothing was uploaded. 'annulus ask' and 'annulus "
                                         "summarize' read longer documents in parts"));
    }
  }
  return UploadDocuments(session, gathered, provided);
}

int ProvideText(Session& session, const FileText& read, const DocumentChoice& choice,
                ProvidedDocuments* provided) {
  GatheredDocuments gathered;
  const int exit_code = Gatherer(session, choice, gathered).AddText(read);
  return exit_code != 0 ? exit_code : UploadDocuments(session, gathered, provided);
}

void WithdrawUploads(Session& session, ProvidedDocuments* provided) {
  // Also after an interruption.
  session.ForgetInterruption();
  for (const std::string& name : std::exchange(provided->uploaded, {})) {
    const grpc::Status status = WithdrawDocument(session.connection(), name);
    if (!status.ok() && status.error_code() != grpc::StatusCode::NOT_FOUND) return;
  }
}

int EndWith(int exit_code, Session& session, ProvidedDocuments* provided) {
  if (exit_code != 0 && exit_code != kExitPartial) WithdrawUploads(session, provided);
  const bool partial = provided->skipped > 0 || provided->incomplete > 0;
  return exit_code == 0 && partial ? kExitPartial : exit_code;
}

}  // namespace annulus::client
