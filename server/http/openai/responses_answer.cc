#include "server/http/openai/responses_answer.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/json_text.h"
#include "server/http/openai/logprob_json.h"
#include "server/http/openai/responses_request.h"
#include "server/http/spec_fields.h"

namespace annulus::server {
namespace {

// What the response repeats of its request.
struct ResponsesEcho {
  std::string temperature = "null";
  std::string top_p = "null";
  std::string max_output_tokens = "null";
  int32_t top_logprobs = 0;
};

ResponsesEcho ResponsesEchoOf(const ResponsesRequest& request) {
  const v1::SamplingParams& sampling = request.spec.sampling();
  ResponsesEcho echo;
  if (sampling.has_temperature()) echo.temperature = JsonNumber(sampling.temperature());
  if (sampling.has_top_p()) echo.top_p = JsonNumber(sampling.top_p());
  if (sampling.has_max_tokens()) echo.max_output_tokens = absl::StrCat(sampling.max_tokens());
  echo.top_logprobs = request.top_logprobs.value_or(0);
  return echo;
}

std::string ResponsesUsageJson(const Usage& usage) {
  return absl::StrCat("{\"input_tokens\":", usage.prompt_tokens,
                      ",\"input_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
                      ",\"cache_write_tokens\":0},\"output_tokens\":", usage.completion_tokens,
                      ",\"output_tokens_details\":{\"reasoning_tokens\":0},\"total_tokens\":",
                      usage.prompt_tokens + usage.completion_tokens, "}");
}

absl::Status PlaceResponsesFields(const absl::Status& status) {
  return PlaceSpecFields(status, [](absl::string_view field) -> std::string {
    if (field == "sampling.max_tokens") return "max_output_tokens";
    if (field == "sampling.logprobs") return "top_logprobs";
    return SpecFieldName(field);
  });
}

// One output item, a message with one part. Events and answer have all of its text at their end, so
// it is gathered for streams, too.
class ResponsesForm final : public AnswerForm {
 public:
  ResponsesForm(bool streams, ResponsesEcho echo) : streams_(streams), echo_(std::move(echo)) {}

  std::unique_ptr<AnswerForm> Again() const override {
    return std::make_unique<ResponsesForm>(streams_, echo_);
  }
  bool streams() const override { return streams_; }
  bool gathers() const override { return true; }

  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    std::string events = Begin(facts);
    const std::string logprobs = LogprobEntries(delta);
    if (delta.text.empty() && logprobs.empty()) return events;
    return events + Event("response.output_text.delta",
                          absl::StrCat(PlaceJson(facts), ",\"delta\":", JsonString(delta.text),
                                       ",\"logprobs\":[", logprobs, "]"));
  }

  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    const bool cut = completion.finish_reason == FinishReason::kLength;
    const absl::string_view status = cut ? "incomplete" : "completed";
    std::string events = Begin(facts);
    absl::StrAppend(&events, Event("response.output_text.done",
                                   absl::StrCat(PlaceJson(facts), ",\"text\":", JsonString(text_),
                                                ",\"logprobs\":[", logprobs_, "]")));
    absl::StrAppend(&events, Event("response.content_part.done",
                                   absl::StrCat(PlaceJson(facts), ",\"part\":", PartJson())));
    absl::StrAppend(&events,
                    Event("response.output_item.done",
                          absl::StrCat(",\"output_index\":0,\"item\":", ItemJson(facts, status))));
    return events + Event(absl::StrCat("response.", status),
                          absl::StrCat(",\"response\":", ResponseJson(facts, status)));
  }

  // With the object that OpenAI's SDK raises, beside the fields of this API's event.
  std::string StreamError(const HttpError& error) override {
    return absl::StrCat("event: error\ndata: {\"type\":\"error\",\"sequence_number\":", sequence_++,
                        ",\"code\":", JsonString(error.code),
                        ",\"message\":", JsonString(error.message),
                        ",\"param\":", error.param.empty() ? "null" : JsonString(error.param), ",",
                        absl::string_view(OpenAiErrorBody(error)).substr(1), "\n\n");
  }

  void Gather(const Delta& delta) override {
    text_ += delta.text;
    if (delta.logprobs.empty()) return;
    absl::StrAppend(&logprobs_, logprobs_.empty() ? "" : ",", LogprobEntries(delta));
  }
  size_t gathered_bytes() const override { return text_.size() + logprobs_.size(); }

  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    const bool cut = completion.finish_reason == FinishReason::kLength;
    return ResponseJson(facts, cut ? "incomplete" : "completed");
  }

  absl::Status PlaceField(absl::Status status) const override {
    return PlaceResponsesFields(status);
  }

 private:
  std::string Event(absl::string_view name, absl::string_view fields) {
    return absl::StrCat("event: ", name, "\ndata: {\"type\":\"", name,
                        "\",\"sequence_number\":", sequence_++, fields, "}\n\n");
  }

  static std::string ItemId(const AnswerFacts& facts) {
    return JsonString(absl::StrCat("msg_", facts.request_id));
  }
  // The fields that say where a text belongs.
  static std::string PlaceJson(const AnswerFacts& facts) {
    return absl::StrCat(",\"item_id\":", ItemId(facts), ",\"output_index\":0,\"content_index\":0");
  }
  std::string PartJson() const {
    return absl::StrCat("{\"type\":\"output_text\",\"text\":", JsonString(text_),
                        ",\"annotations\":[],\"logprobs\":[", logprobs_, "]}");
  }
  // `status`: "in_progress" is without the part.
  std::string ItemJson(const AnswerFacts& facts, absl::string_view status) const {
    return absl::StrCat("{\"id\":", ItemId(facts), ",\"type\":\"message\",\"status\":\"", status,
                        "\",\"role\":\"assistant\",\"content\":[",
                        status == "in_progress" ? "" : PartJson(), "]}");
  }
  std::string ResponseJson(const AnswerFacts& facts, absl::string_view status) const {
    const bool begins = status == "in_progress";
    const bool cut = status == "incomplete";
    return absl::StrCat(
        "{\"id\":", JsonString(absl::StrCat("resp_", facts.request_id)),
        ",\"object\":\"response\",\"created_at\":", facts.created, ",\"status\":\"", status,
        "\",\"background\":false,\"error\":null,\"incomplete_details\":",
        cut ? "{\"reason\":\"max_output_tokens\"}" : "null",
        ",\"instructions\":null,\"max_output_tokens\":", echo_.max_output_tokens,
        ",\"model\":", JsonString(facts.model), ",\"output\":[",
        begins ? "" : ItemJson(facts, status),
        "],\"parallel_tool_calls\":true,\"previous_response_id\":null,\"reasoning\":{\"effort\":"
        "null,\"summary\":null},\"store\":false,\"temperature\":",
        echo_.temperature,
        ",\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"auto\",\"tools\":[],"
        "\"top_logprobs\":",
        echo_.top_logprobs, ",\"top_p\":", echo_.top_p,
        ",\"truncation\":\"disabled\",\"metadata\":{},\"usage\":",
        begins ? "null" : ResponsesUsageJson(facts.usage), "}");
  }

  // What comes before the first text.
  std::string Begin(const AnswerFacts& facts) {
    if (std::exchange(begun_, true)) return "";
    const std::string response = absl::StrCat(",\"response\":", ResponseJson(facts, "in_progress"));
    std::string events = Event("response.created", response);
    absl::StrAppend(&events, Event("response.in_progress", response));
    absl::StrAppend(
        &events, Event("response.output_item.added", absl::StrCat(",\"output_index\":0,\"item\":",
                                                                  ItemJson(facts, "in_progress"))));
    return events + Event("response.content_part.added",
                          absl::StrCat(PlaceJson(facts),
                                       ",\"part\":{\"type\":\"output_text\",\"text\":\"\","
                                       "\"annotations\":[],\"logprobs\":[]}"));
  }

  const bool streams_;
  const ResponsesEcho echo_;
  bool begun_ = false;
  int64_t sequence_ = 0;
  std::string text_;
  std::string logprobs_;
};

}  // namespace

absl::StatusOr<FormRequest> ReadResponsesForm(const std::deque<std::string>& body,
                                              CallMemory& memory, const CancelFlag& cancel) {
  ResponsesRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadResponsesRequest(body, request, memory, cancel));
  FormRequest form;
  form.answer = std::make_unique<ResponsesForm>(request.stream, ResponsesEchoOf(request));
  if (!request.ignored_tools.empty()) {
    form.headers.push_back(
        absl::StrCat("annulus-ignored-tools: ", absl::StrJoin(request.ignored_tools, ", ")));
  }
  form.documents = std::move(request.documents);
  form.asked.spec = std::move(request.spec);
  return form;
}

}  // namespace annulus::server
