#include "client/cli/inputs.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/failure.h"
#include "client/format/text.h"
#include "client/read/kind.h"

namespace annulus::client {
namespace {

// Uploads a text unless the server has it with the same title. The model sees the title, so a text
// with another title is a different document.
int ProvideContent(Session& session, absl::StatusOr<DocumentContent> content, std::string* name) {
  if (!content.ok()) return session.Misuse(absl::string_view(content.status().message()));
  for (const std::string& known : {ContentName(*content), TitledName(*content)}) {
    *name = known;
    v1::Document document;
    const grpc::Status found = GetDocument(session.connection(), known, &document);
    if (found.error_code() == grpc::StatusCode::NOT_FOUND) {
      return Upload(session, known, *content, &document);
    }
    if (!found.ok()) return session.CallFailed(found);
    if (document.title() == content->title) return 0;
  }
  return 0;
}

int ProvideNamed(Session& session, const std::string& name) {
  if (!IsDocumentName(name)) {
    return session.Misuse(absl::StrCat("there is no file ", name,
                                       ", and a document on the server cannot have that name"));
  }
  v1::Document document;
  const grpc::Status found = GetDocument(session.connection(), name, &document);
  if (found.ok()) return 0;
  if (found.error_code() != grpc::StatusCode::NOT_FOUND) return session.CallFailed(found);
  session.PrintFailure(found);
  session.Misuse(absl::StrCat(name,
                              " is neither a file here nor a document on the server; 'annulus "
                              "documents list' shows those"));
  return ExitCode(found);
}

// Provides all texts in one file.
int ProvideBytes(Session& session, const std::string& title, std::string bytes,
                 const DocumentChoice& choice, ProvidedDocuments* provided) {
  for (const FileText& read : ReadBytes(title, std::move(bytes))) {
    const int exit_code = ProvideText(session, read, choice, provided);
    if (exit_code != 0) return exit_code;
  }
  return 0;
}

// Whether a file begins like plain text that needs no conversion. If it is UTF-8 to its end, it is
// uploaded without loading it into memory.
bool BeginsAsUtf8(const std::string& path) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  std::string head(kDetectBytes, '\0');
  file.read(head.data(), static_cast<std::streamsize>(head.size()));
  head.resize(static_cast<size_t>(file.gcount()));
  const bool has_mark = absl::StartsWith(head, "\xEF\xBB\xBF");
  return !has_mark && !absl::StrContains(head, '\0') && DetectKind(head).kind == FileKind::kText;
}

int ProvideFile(Session& session, const std::string& path, const DocumentChoice& choice,
                ProvidedDocuments* provided) {
  if (BeginsAsUtf8(path)) {
    absl::StatusOr<DocumentContent> content = OpenDocument(path);
    if (content.ok()) {
      std::string name;
      const int exit_code = ProvideContent(session, std::move(content), &name);
      if (exit_code == 0) provided->names.push_back(std::move(name));
      return exit_code;
    }
  }
  absl::StatusOr<std::string> bytes = LoadFile(path, ReadLimits().file_bytes);
  if (bytes.ok()) return ProvideBytes(session, path, *std::move(bytes), choice, provided);
  return ProvideText(session, {path, bytes.status()}, choice, provided);
}

// Provides a DOC other than standard input.
int ProvideDoc(Session& session, const std::string& doc, const DocumentChoice& choice,
               ProvidedDocuments* provided) {
  std::error_code error;
  const bool exists = std::filesystem::exists(doc, error);
  if (exists && !std::filesystem::is_directory(doc, error)) {
    return ProvideFile(session, doc, choice, provided);
  }
  if (exists || IsPattern(doc)) {
    const absl::StatusOr<std::vector<std::string>> files = FindFiles(doc, choice.files);
    if (!files.ok()) return session.Misuse(files.status().message());
    for (const std::string& file : *files) {
      const int exit_code = ProvideFile(session, file, choice, provided);
      if (exit_code != 0) return exit_code;
    }
    return 0;
  }
  const int exit_code = ProvideNamed(session, doc);
  if (exit_code == 0) provided->names.push_back(doc);
  return exit_code;
}

// Whether no field says how tokens are drawn.
bool SaysNothing(const v1::SamplingParams& sampling) {
  return !sampling.has_temperature() && !sampling.has_top_p() && !sampling.has_top_k() &&
         !sampling.has_min_p() && !sampling.has_seed();
}

bool DrawsFromAll(const v1::SamplingParams& sampling) {
  return sampling.temperature() == 1 && sampling.top_p() == 1 && sampling.top_k() == 0 &&
         sampling.min_p() == 0;
}

}  // namespace

int CheckText(Session& session, absl::string_view what, absl::string_view text) {
  const std::optional<size_t> invalid = FindInvalidUtf8(text);
  if (!invalid.has_value()) return 0;
  return session.Misuse(
      absl::StrCat(what, " is not UTF-8 (byte ", *invalid, "); convert it first"));
}

int ReadText(Session& session, absl::string_view what, std::string* text) {
  *text = ReadAll(session.console().in);
  return CheckText(session, what, *text);
}

int PlaceSystem(Session& session, const std::string& text, v1::GenerationSpec& spec) {
  if (text.empty()) return 0;
  if (CheckText(session, "--system", text) != 0) return kExitMisuse;
  v1::Message* const system = spec.mutable_messages()->add_messages();
  system->set_role("system");
  system->set_content(text);
  return 0;
}

void PlaceQuestion(const std::string& text, v1::GenerationSpec& spec) {
  v1::Message* const message = spec.mutable_messages()->add_messages();
  message->set_role("user");
  message->set_content(text);
}

void FitToModel(Session& session, v1::GenerationSpec& question) {
  v1::GenerationSpec* const alone = &question;
  FitToModel(session, question.model(), std::span(&alone, 1));
}

grpc::Status DescribeModel(Session& session, const std::string& name, v1::Model* model) {
  v1::GetModelRequest request;
  request.set_name(name);
  v1::GetModelResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().models().GetModel(call.context(), request, &response);
  if (status.ok()) *model = std::move(*response.mutable_model());
  return status;
}

void FitToModel(Session& session, const std::string& name,
                std::span<v1::GenerationSpec* const> questions) {
  v1::Model model;
  // Ignore a failure: the call that follows will report it.
  if (DescribeModel(session, name, &model).ok()) FitToModel(session, model, questions);
}

void FitToModel(Session& session, const v1::Model& model,
                std::span<v1::GenerationSpec* const> questions) {
  for (v1::GenerationSpec* const question : questions) {
    if (!model.has_default_sampling() || !DrawsFromAll(model.default_sampling())) break;
    if (SaysNothing(question->sampling())) question->mutable_sampling()->set_temperature(0);
  }
  if (!absl::StartsWith(model.architecture(), "builtin:")) return;
  session.Warn(absl::StrCat(model.name(),
                            " is a demonstration model: it finds what follows like words in the "
                            "text and understands nothing. For real answers start annulusd with "
                            "--model DIR"));
}

int Upload(Session& session, const std::string& name, DocumentContent& content,
           v1::Document* document) {
  const auto start = std::chrono::steady_clock::now();
  ProgressSample sample;
  sample.phase = "Uploading";
  sample.unit = ProgressSample::Unit::kBytes;
  const auto show = [&](int64_t sent, int64_t total) {
    sample.done = sent;
    sample.total = total;
    sample.elapsed =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    session.progress().Show(sample);
  };
  const grpc::Status status = UploadDocument(session.connection(), name, content, show, document);
  session.progress().Clear();
  return status.ok() ? 0 : session.CallFailed(status);
}

int ProvideText(Session& session, const FileText& read, const DocumentChoice& choice,
                ProvidedDocuments* provided) {
  if (!read.text.ok()) {
    const absl::string_view message = read.text.status().message();
    if (!choice.skip_unreadable) return session.Misuse(message);
    session.Warn(absl::StrCat("skipped: ", message));
    ++provided->skipped;
    return 0;
  }
  if (!read.remark.empty()) session.Warn(read.remark);
  std::istringstream text(*read.text);
  std::string name;
  absl::StatusOr<DocumentContent> content = ReadDocument(text);
  if (content.ok()) content->title = TitleOf(read.title);
  const int exit_code = ProvideContent(session, std::move(content), &name);
  if (exit_code == 0) provided->names.push_back(std::move(name));
  return exit_code;
}

int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     const DocumentChoice& choice, ProvidedDocuments* provided) {
  for (const std::string& doc : docs) {
    int exit_code = 0;
    if (doc == kStandardInput) {
      exit_code =
          ProvideBytes(session, "standard input", ReadAll(session.console().in), choice, provided);
    } else {
      exit_code = ProvideDoc(session, doc, choice, provided);
    }
    if (exit_code != 0) return exit_code;
  }
  if (provided->names.empty() && provided->skipped > 0) {
    return session.Misuse("none of the documents can be read");
  }
  return 0;
}

absl::StatusOr<DocumentContent> ReadOneText(Session& session, const std::string& file) {
  const bool from_stdin = file == kStandardInput;
  if (!from_stdin && BeginsAsUtf8(file)) {
    absl::StatusOr<DocumentContent> content = OpenDocument(file);
    if (content.ok()) return content;
  }
  absl::StatusOr<std::string> bytes =
      from_stdin ? absl::StatusOr<std::string>(ReadAll(session.console().in))
                 : LoadFile(file, ReadLimits().file_bytes);
  if (!bytes.ok()) return bytes.status();
  const std::vector<FileText> texts =
      ReadBytes(from_stdin ? "standard input" : file, *std::move(bytes));
  if (texts.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " holds ", texts.size(), " files; unpack it and give the folder"));
  }
  if (!texts[0].text.ok()) return texts[0].text.status();
  if (!texts[0].remark.empty()) session.Warn(texts[0].remark);
  std::istringstream text(*texts[0].text);
  absl::StatusOr<DocumentContent> content = ReadDocument(text);
  if (content.ok() && !from_stdin) content->title = TitleOf(file);
  return content;
}

int ExitAfter(int exit_code, const ProvidedDocuments& provided) {
  return exit_code == 0 && provided.skipped > 0 ? kExitPartial : exit_code;
}

}  // namespace annulus::client
