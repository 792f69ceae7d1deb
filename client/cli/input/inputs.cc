#include "client/cli/input/inputs.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/cli/ask/text_parts.h"
#include "client/failure.h"
#include "client/format/text.h"
#include "client/read/encoding.h"
#include "client/read/kind.h"

namespace annulus::client {
namespace {

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

grpc::Status TokensOf(Session& session, const std::string& model, absl::string_view text,
                      int64_t* tokens) {
  constexpr size_t kPieceBytes = size_t{1} << 20;
  *tokens = 0;
  v1::TokenizeRequest request;
  request.set_model(model);
  request.set_add_special(false);
  for (const absl::string_view piece : CutText(text, kPieceBytes)) {
    request.set_text(std::string(piece));
    v1::TokenizeResponse response;
    Call call(session.connection());
    const grpc::Status status =
        session.connection().inference().Tokenize(call.context(), request, &response);
    if (!status.ok()) return status;
    *tokens += response.token_ids_size();
  }
  return grpc::Status::OK;
}

int CountTokens(Session& session, const std::string& model, absl::string_view text,
                int64_t* tokens) {
  const grpc::Status status = TokensOf(session, model, text, tokens);
  return status.ok() ? 0 : session.CallFailed(status);
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
  session.Warn(absl::StrCat(
      model.name(),
      " is a demonstration model: it repeats what followed the same words in the text, and cannot "
      "answer questions. For real answers start annulusd with --model DIR"));
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

ReadOptions Telling(Session& session, ReadOptions options) {
  options.tell = [&session](absl::string_view sentence) { session.Warn(sentence); };
  return options;
}

bool MayBeSentAsIs(const std::string& path, const ReadOptions& options) {
  std::error_code error;
  if (!options.encoding.empty() || !std::filesystem::is_regular_file(path, error)) return false;
  std::ifstream file(path, std::ios::binary);
  constexpr size_t kChunkBytes = size_t{1} << 16;
  static_assert(kChunkBytes >= kDetectBytes);
  constexpr size_t kOverlap = 4;  // of chunks, so that none cuts a sequence
  std::string chunk;
  for (bool first = true; file; first = false) {
    chunk.erase(0, chunk.size() - std::min(chunk.size(), kOverlap));
    const size_t before = chunk.size();
    chunk.resize(before + kChunkBytes);
    file.read(chunk.data() + before, static_cast<std::streamsize>(kChunkBytes));
    chunk.resize(before + static_cast<size_t>(file.gcount()));
    if (first && absl::StartsWith(chunk, "\xEF\xBB\xBF")) return false;
    if (first && DetectKind(chunk).kind != FileKind::kText) return false;
    if (IsSuspicious(chunk)) return false;
  }
  return true;
}

absl::StatusOr<DocumentContent> ReadOneText(Session& session, const std::string& file,
                                            const ReadOptions& options) {
  const bool from_stdin = file == kStandardInput;
  if (!from_stdin && MayBeSentAsIs(file, options)) {
    absl::StatusOr<DocumentContent> content = OpenDocument(file);
    if (content.ok()) return content;
  }
  absl::StatusOr<std::string> bytes =
      from_stdin ? absl::StatusOr<std::string>(ReadAll(session.console().in))
                 : LoadFile(file, ReadLimits().file_bytes);
  if (!bytes.ok()) return bytes.status();
  const std::vector<FileText> texts =
      ReadBytes(from_stdin ? "standard input" : file, *std::move(bytes), Telling(session, options));
  if (texts.size() > 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(file, " holds ", texts.size(), " files; unpack it and give the folder"));
  }
  if (!texts[0].text.ok()) return texts[0].text.status();
  for (const std::string& remark : texts[0].remarks) session.Warn(remark);
  std::istringstream text(*texts[0].text);
  absl::StatusOr<DocumentContent> content = ReadDocument(text);
  if (content.ok() && !from_stdin) content->title = TitleOf(file);
  return content;
}

}  // namespace annulus::client
