#include "server/http/anthropic/messages_answer.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/request_builder.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/json_text.h"
#include "server/http/spec_fields.h"

namespace annulus::server {
namespace {

constexpr char kMessagesTextBlock[] = "{\"type\":\"text\",\"text\":";

std::string MessagesEvent(absl::string_view name, absl::string_view fields) {
  return absl::StrCat("event: ", name, "\ndata: {\"type\":\"", name, "\"", fields, "}\n\n");
}

// Tokens that came from the cache are not among the input tokens.
std::string MessagesUsageJson(const Usage& usage) {
  return absl::StrCat("{\"input_tokens\":", usage.prompt_tokens - usage.cached_tokens,
                      ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":",
                      usage.cached_tokens, ",\"output_tokens\":", usage.completion_tokens, "}");
}

// The two fields that say how an answer ended.
std::string MessagesStopJson(const Completion& completion) {
  const bool stopped = !completion.matched_stop.empty();
  const absl::string_view reason = completion.finish_reason == FinishReason::kLength ? "max_tokens"
                                   : stopped ? "stop_sequence"
                                             : "end_turn";
  return absl::StrCat("\"stop_reason\":\"", reason, "\",\"stop_sequence\":",
                      stopped ? JsonString(completion.matched_stop) : "null");
}

absl::Status PlaceMessagesFields(const absl::Status& status) {
  return PlaceSpecFields(status, [](absl::string_view field) {
    return field == "sampling.stop" ? "stop_sequences" : SpecFieldName(field);
  });
}

class MessagesForm final : public AnswerForm {
 public:
  explicit MessagesForm(bool streams) : streams_(streams) {}

  std::unique_ptr<AnswerForm> Again() const override {
    return std::make_unique<MessagesForm>(streams_);
  }
  bool streams() const override { return streams_; }

  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    std::string events = Begin(facts);
    if (delta.text.empty()) return events;
    return events +
           MessagesEvent("content_block_delta",
                         absl::StrCat(",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":",
                                      JsonString(delta.text), "}"));
  }

  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    return absl::StrCat(
        Begin(facts), MessagesEvent("content_block_stop", ",\"index\":0"),
        MessagesEvent("message_delta",
                      absl::StrCat(",\"delta\":{", MessagesStopJson(completion),
                                   "},\"usage\":", MessagesUsageJson(completion.usage))),
        MessagesEvent("message_stop", ""));
  }

  std::string StreamError(const HttpError& error) override {
    return absl::StrCat("event: error\ndata: ", AnthropicErrorBody(error), "\n\n");
  }
  std::string StreamBeat() const override { return MessagesEvent("ping", ""); }

  void Gather(const Delta& delta) override { text_ += delta.text; }
  size_t gathered_bytes() const override { return text_.size(); }

  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    return MessageJson(facts, absl::StrCat(kMessagesTextBlock, JsonString(text_), "}"),
                       MessagesStopJson(completion));
  }

  absl::Status PlaceField(absl::Status status) const override {
    return PlaceMessagesFields(status);
  }

 private:
  static std::string MessageJson(const AnswerFacts& facts, absl::string_view blocks,
                                 absl::string_view stop) {
    return absl::StrCat(
        "{\"id\":", JsonString(absl::StrCat("msg_", facts.request_id)),
        ",\"type\":\"message\",\"role\":\"assistant\",\"model\":", JsonString(facts.model),
        ",\"content\":[", blocks, "],", stop, ",\"usage\":", MessagesUsageJson(facts.usage), "}");
  }

  // What comes before the first text.
  std::string Begin(const AnswerFacts& facts) {
    if (std::exchange(begun_, true)) return "";
    AnswerFacts start = facts;
    start.usage.completion_tokens = 0;
    return absl::StrCat(
        MessagesEvent(
            "message_start",
            absl::StrCat(",\"message\":",
                         MessageJson(start, "", "\"stop_reason\":null,\"stop_sequence\":null"))),
        MessagesEvent("content_block_start", absl::StrCat(",\"index\":0,\"content_block\":",
                                                          kMessagesTextBlock, "\"\"}")));
  }

  const bool streams_;
  bool begun_ = false;
  std::string text_;
};

}  // namespace

absl::StatusOr<FormRequest> ReadMessagesForm(const std::deque<std::string>& body,
                                             CallMemory& memory, const CancelFlag& cancel) {
  MessagesRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadMessagesRequest(body, /*counts=*/false, request, memory, cancel));
  FormRequest form;
  form.asked.spec = std::move(request.spec);
  form.answer = std::make_unique<MessagesForm>(request.stream);
  form.documents = std::move(request.documents);
  form.keep_for = request.keep_for;
  return form;
}

absl::StatusOr<HttpAnswer> CountMessageTokens(const HttpWork& work,
                                              const std::deque<std::string>& body,
                                              const CancelFlag& cancel) {
  ServiceContext& context = work.context;
  ANNULUS_ASSIGN_OR_RETURN(const Engine* engine, context.lifecycle.engine());
  MessagesRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadMessagesRequest(body, /*counts=*/true, request, work.memory, cancel));
  ANNULUS_RETURN_IF_ERROR(context.CheckModel(request.spec.model()));
  AskedGeneration asked{.spec = std::move(request.spec)};
  ANNULUS_RETURN_IF_ERROR(AttachDocuments(context, work.caller, std::move(request.documents), asked,
                                          work.memory, cancel));
  const auto built =
      BuildRequest(asked.spec, *engine, context.documents, work.caller.tenant, work.memory, cancel,
                   asked.documents.has_value() ? &*asked.documents : nullptr);
  if (!built.ok()) return PlaceMessagesFields(built.status());
  return HttpAnswer{.content_type = "application/json",
                    .body = absl::StrCat("{\"input_tokens\":", built->spec.prompt.size(), "}")};
}

}  // namespace annulus::server
