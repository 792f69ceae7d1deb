#include "client/cli/input/provide.h"

#include <filesystem>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "client/cli/input/inputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// The most text that is held in memory before it is uploaded: far more than a model reads.
constexpr int64_t kMostHeldBytes = int64_t{1} << 30;

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
    if (document.title() == content.title) break;
  }
  provided->documents.push_back(std::move(document));
  return 0;
}

// Reads the documents of a command line, and uploads them afterwards.
class Gatherer {
 public:
  Gatherer(Session& session, const DocumentChoice& choice, ProvidedDocuments& provided)
      : session_(session), choice_(choice), provided_(provided) {}

  int Add(const std::string& doc) {
    if (doc == kStandardInput) {
      return AddBytes("standard input", ReadAll(session_.console().in));
    }
    std::error_code error;
    const bool exists = std::filesystem::exists(doc, error);
    if (exists && !std::filesystem::is_directory(doc, error)) return AddFile(doc);
    if (!exists && !IsPattern(doc)) return AddNamed(doc);
    const absl::StatusOr<std::vector<std::string>> files = FindFiles(doc, choice_.files);
    if (!files.ok()) return session_.Misuse(files.status().message());
    // If some are skipped, the number is known only after reading them.
    if (!choice_.skip_unreadable) {
      const int exit_code = CheckCount(doc, files->size());
      if (exit_code != 0) return exit_code;
    }
    for (const std::string& file : *files) {
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
      ++provided_.skipped;
      return 0;
    }
    for (const std::string& remark : read.remarks) session_.Warn(remark);
    provided_.incomplete += choice_.strict && read.incomplete ? 1 : 0;
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
    gathered_.push_back({std::move(*content), {}});
    return 0;
  }

  int UploadAll() {
    if (gathered_.empty() && provided_.skipped > 0 && provided_.documents.empty()) {
      return session_.Misuse("none of the documents can be read");
    }
    for (Gathered& gathered : gathered_) {
      if (!gathered.content.has_value()) {
        provided_.documents.push_back(std::move(gathered.stored));
        continue;
      }
      const int exit_code = UploadOnce(session_, *gathered.content, &provided_);
      if (exit_code != 0) return exit_code;
      gathered.content.reset();
    }
    return 0;
  }

 private:
  struct Gathered {
    std::optional<DocumentContent> content;  // nullopt: it is on the server
    v1::Document stored;
  };

  // Misuse if `more` documents of `what` would be too many for one request.
  int CheckCount(const std::string& what, size_t more) {
    const size_t before = provided_.documents.size() + gathered_.size();
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
    const std::vector<FileText> texts = ReadBytes(title, std::move(bytes), choice_.read);
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
        if (exit_code == 0) gathered_.push_back({std::move(*content), {}});
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
      if (exit_code == 0) gathered_.push_back({std::nullopt, std::move(document)});
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
  ProvidedDocuments& provided_;
  std::vector<Gathered> gathered_;
  int64_t held_bytes_ = 0;  // of texts in memory
};

}  // namespace

int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     const DocumentChoice& choice, ProvidedDocuments* provided) {
  Gatherer gatherer(session, choice, *provided);
  for (const std::string& doc : docs) {
    const int exit_code = gatherer.Add(doc);
    if (exit_code != 0) return exit_code;
  }
  const int exit_code = gatherer.UploadAll();
  if (exit_code != 0) WithdrawUploads(session, provided);
  return exit_code;
}

int ProvideText(Session& session, const FileText& read, const DocumentChoice& choice,
                ProvidedDocuments* provided) {
  const int skipped = provided->skipped;
  Gatherer gatherer(session, choice, *provided);
  const int exit_code = gatherer.AddText(read);
  return exit_code != 0 || provided->skipped > skipped ? exit_code : gatherer.UploadAll();
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
