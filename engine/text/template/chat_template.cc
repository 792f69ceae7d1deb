#include "engine/text/template/chat_template.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/text/template/json_value.h"
#include "engine/text/template/language/ast.h"
#include "engine/text/template/language/evaluator.h"
#include "engine/text/template/language/failure.h"
#include "engine/text/template/language/lexer.h"
#include "engine/text/template/language/parser.h"
#include "engine/text/utf8.h"
#include "kernels/base/status_macros.h"

namespace annulus {

namespace {

// A template may put whole conversations into its message; a status has room for a few KiB.
constexpr size_t kMostMessageBytes = 2048;

absl::string_view Shown(const jinja::Failure& failure) {
  return TruncateUtf8(failure.message, kMostMessageBytes);
}

absl::Status Error(absl::string_view file_name, int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(file_name, ":", line, ": ", message));
}

absl::Status CheckSource(absl::string_view source, absl::string_view file_name) {
  if (source.size() > kMaxTemplateBytes) {
    return Error(file_name, 1,
                 absl::StrCat("the template has ", source.size(), " bytes; at most ",
                              kMaxTemplateBytes, " are allowed"));
  }
  if (const auto bad = FirstInvalidUtf8(source); bad.has_value()) {
    return Error(file_name, 1, absl::StrCat("byte ", *bad, " is not UTF-8"));
  }
  return absl::OkStatus();
}

}  // namespace

RenderLimits RenderLimits::ForInput(size_t bytes) {
  RenderLimits limits;
  limits.output_bytes += 4 * bytes;
  limits.value_bytes += 32 * bytes;
  limits.steps += static_cast<int64_t>(8 * bytes);
  return limits;
}

ChatTemplate::ChatTemplate(std::unique_ptr<const jinja::Ast> ast, absl::string_view file_name)
    : ast_(std::move(ast)), file_name_(file_name) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

absl::StatusOr<ChatTemplate> ChatTemplate::Parse(absl::string_view source,
                                                 absl::string_view file_name) {
  ANNULUS_RETURN_IF_ERROR(CheckSource(source, file_name));
  try {
    auto ast = std::make_unique<jinja::Ast>();
    jinja::Parser(jinja::Tokenize(source), *ast).Parse();
    ChatTemplate parsed(std::move(ast), file_name);
    parsed.mentions_documents_ = absl::StrContains(source, "documents");
    return parsed;
  } catch (const jinja::Failure& failure) {
    return Error(file_name, failure.line, failure.message);
  }
}

absl::StatusOr<std::vector<std::string>> ChatTemplate::Literals(absl::string_view source,
                                                                absl::string_view file_name) {
  ANNULUS_RETURN_IF_ERROR(CheckSource(source, file_name));
  std::vector<std::string> literals;
  try {
    for (jinja::Token& token : jinja::Tokenize(source)) {
      const bool is_text =
          token.type == jinja::TokenType::kData || token.type == jinja::TokenType::kString;
      if (is_text) literals.push_back(std::move(token.text));
    }
  } catch (const jinja::Failure& failure) {
    return Error(file_name, failure.line, failure.message);
  }
  return literals;
}

absl::StatusOr<std::string> ChatTemplate::Render(absl::string_view variables, const std::tm& now,
                                                 const RenderLimits& limits,
                                                 const CancelFlag& cancel,
                                                 MemoryGrant& memory) const {
  jinja::Runtime runtime(limits, now, cancel, memory);
  jinja::Value values;
  try {
    values = jinja::ParseJson(runtime, variables);
  } catch (const jinja::Failure& failure) {
    if (!failure.refusal.ok()) return failure.refusal;
    return absl::Status(failure.code, absl::StrCat("the template's variables: ", Shown(failure)));
  }
  if (!values.is(jinja::Kind::kDict)) {
    return absl::InvalidArgumentError("the template's variables are not a JSON object");
  }
  std::optional<jinja::Evaluator> evaluator;
  try {
    evaluator.emplace(runtime, values);
    return evaluator->Render(*ast_);
  } catch (const jinja::Failure& failure) {
    if (!failure.refusal.ok()) return failure.refusal;
    const int line = failure.line > 0 ? failure.line : evaluator ? evaluator->line() : 1;
    return absl::Status(failure.code, absl::StrCat(file_name_, ":", line, ": ", Shown(failure)));
  }
}

}  // namespace annulus
