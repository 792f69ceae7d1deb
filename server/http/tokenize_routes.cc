#include "server/http/tokenize_routes.h"

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/request_builder.h"
#include "server/http/json/json_text.h"
#include "server/http/openai/completions_request.h"
#include "server/work/work_cost.h"

namespace annulus::server {
namespace {

// An id with its comma: ten digits at most.
constexpr size_t kIdDigits = 11;
// An answer without its ids or text.
constexpr size_t kFrameBytes = 256;
// Copies of an answer that exist at a time: a text grows by doubling, and is framed.
constexpr size_t kTextCopies = 4;

// Turns the engine's INVALID_ARGUMENT about a text or ids into an error of that field.
absl::Status AsField(absl::string_view field, const absl::Status& status) {
  return absl::IsInvalidArgument(status) ? FieldError(field, status.message()) : status;
}

// Holds memory for an answer of at most `bytes`.
absl::Status HoldAnswer(const HttpWork& work, size_t bytes) {
  const size_t most = work.context.config.max_message_bytes;
  if (bytes > most) return AnswerTooLargeError(bytes, most);
  return work.memory.Hold(CallMemory::kKept, kTextCopies * bytes);
}

absl::StatusOr<std::vector<int32_t>> IdsOf(const HttpWork& work, const Engine& engine,
                                           const OpenAiRequest& request, const CancelFlag& cancel) {
  const v1::GenerationSpec& spec = request.spec;
  if (spec.has_messages()) {
    auto built =
        BuildRequest(spec, engine, work.context.documents, work.caller.tenant, work.memory, cancel);
    if (!built.ok()) return PlaceOpenAiField(built.status(), request);
    return std::move(built->spec.prompt);
  }
  ANNULUS_RETURN_IF_ERROR(work.memory.Hold(
      CallMemory::kWork, TokenizeMemory::Of(spec.text()) + spec.text().size() * sizeof(int32_t)));
  auto ids = engine.Tokenize(spec.text(), request.add_special.value_or(true), cancel);
  return ids.ok() ? std::move(ids) : AsField("prompt", ids.status());
}

}  // namespace

absl::StatusOr<HttpAnswer> AnswerTokenize(const HttpWork& work, const std::deque<std::string>& body,
                                          const CancelFlag& cancel) {
  OpenAiRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadTokenizeRequest(body, request, work.memory, cancel));
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, work.context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(work.context.CheckModel(request.spec.model()));
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, IdsOf(work, *engine, request, cancel));
  ANNULUS_RETURN_IF_ERROR(HoldAnswer(work, kFrameBytes + kIdDigits * ids.size()));
  HttpAnswer answer{.content_type = "application/json"};
  answer.body = absl::StrCat("{\"count\":", ids.size(),
                             ",\"max_model_len\":", engine->model().max_context, ",\"tokens\":[");
  for (size_t i = 0; i < ids.size(); ++i) {
    absl::StrAppend(&answer.body, i == 0 ? "" : ",", ids[i]);
  }
  answer.body += "],\"token_strs\":null}";
  return answer;
}

absl::StatusOr<HttpAnswer> AnswerDetokenize(const HttpWork& work,
                                            const std::deque<std::string>& body,
                                            const CancelFlag& cancel) {
  OpenAiRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadDetokenizeRequest(body, request, work.memory, cancel));
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, work.context.lifecycle.engine());
  ANNULUS_RETURN_IF_ERROR(work.context.CheckModel(request.spec.model()));
  const auto& list = request.spec.token_ids().ids();
  const std::span<const int32_t> ids(list.data(), static_cast<size_t>(list.size()));
  ANNULUS_ASSIGN_OR_RETURN(const size_t bytes,
                           DetokenizeWork(*engine, ids, /*skip_special=*/false,
                                          work.context.config.max_message_bytes, cancel));
  ANNULUS_RETURN_IF_ERROR(work.memory.Hold(CallMemory::kWork, bytes));
  const auto text = engine->Detokenize(ids, /*skip_special=*/false, cancel);
  if (!text.ok()) return AsField("tokens", text.status());
  ANNULUS_RETURN_IF_ERROR(HoldAnswer(work, kFrameBytes + JsonStringSize(*text)));
  HttpAnswer answer{.content_type = "application/json"};
  answer.body = absl::StrCat("{\"prompt\":", JsonString(*text), "}");
  return answer;
}

}  // namespace annulus::server
