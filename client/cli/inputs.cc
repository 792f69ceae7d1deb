#include "client/cli/inputs.h"

#include <chrono>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "client/failure.h"
#include "client/format/text.h"

namespace annulus {
namespace {

int ProvideContent(Session& session, absl::StatusOr<DocumentContent> content, std::string* name) {
  if (!content.ok()) return session.Misuse(absl::string_view(content.status().message()));
  *name = ContentName(*content);
  v1::Document document;
  const grpc::Status found = GetDocument(session.connection(), *name, &document);
  if (found.ok()) return 0;
  if (found.error_code() != grpc::StatusCode::NOT_FOUND) return session.CallFailed(found);
  return Upload(session, *name, *content, &document);
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
  session.Misuse(absl::StrCat(name,
                              " is neither a file here nor a document on the server; 'annulus "
                              "documents list' shows those"));
  return ExitCode(found);
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

int PlacePrompt(Session& session, const std::string& text, v1::GenerationSpec& spec) {
  v1::GetModelRequest request;
  request.set_name(spec.model());
  v1::GetModelResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().models().GetModel(call.context(), request, &response);
  if (!status.ok()) return session.CallFailed(status);
  if (!response.model().has_chat_template()) {
    spec.set_text(text);
    return 0;
  }
  v1::Message* const message = spec.mutable_messages()->add_messages();
  message->set_role("user");
  message->set_content(text);
  return 0;
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

int ProvideDocuments(Session& session, const std::vector<std::string>& docs,
                     std::vector<std::string>* names) {
  for (const std::string& doc : docs) {
    std::string name = doc;
    std::error_code error;
    int exit_code = 0;
    if (doc == kStandardInput) {
      exit_code = ProvideContent(session, ReadDocument(session.console().in), &name);
    } else if (std::filesystem::exists(doc, error)) {
      exit_code = ProvideContent(session, OpenDocument(doc), &name);
    } else {
      exit_code = ProvideNamed(session, doc);
    }
    if (exit_code != 0) return exit_code;
    names->push_back(std::move(name));
  }
  return 0;
}

}  // namespace annulus
