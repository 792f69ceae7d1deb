#include "server/http/openai/responses_answer.h"

#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/http/answer_blocks.h"
#include "server/http/json/json_text.h"
#include "server/http/openai/file_citations.h"
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
  absl::string_view parallel_tool_calls = "true";
  absl::string_view tool_choice = "auto";
  int32_t top_logprobs = 0;
};

ResponsesEcho ResponsesEchoOf(const ResponsesRequest& request) {
  const v1::SamplingParams& sampling = request.spec.sampling();
  ResponsesEcho echo;
  if (sampling.has_temperature()) echo.temperature = JsonNumber(sampling.temperature());
  if (sampling.has_top_p()) echo.top_p = JsonNumber(sampling.top_p());
  if (sampling.has_max_tokens()) echo.max_output_tokens = absl::StrCat(sampling.max_tokens());
  echo.top_logprobs = request.top_logprobs.value_or(0);
  if (request.spec.has_parallel_tool_calls() && !request.spec.parallel_tool_calls()) {
    echo.parallel_tool_calls = "false";
  }
  const v1::ToolChoiceMode mode = request.spec.tool_choice().mode();
  if (mode == v1::TOOL_CHOICE_MODE_NONE) echo.tool_choice = "none";
  if (mode == v1::TOOL_CHOICE_MODE_REQUIRED) echo.tool_choice = "required";
  return echo;
}

std::string ResponsesUsageJson(const Usage& usage) {
  return absl::StrCat("{\"input_tokens\":", usage.prompt_tokens,
                      ",\"input_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
                      ",\"cache_write_tokens\":0},\"output_tokens\":", usage.completion_tokens,
                      ",\"output_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens,
                      "},\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens, "}");
}

absl::Status PlaceResponsesFields(const absl::Status& status) {
  return PlaceSpecFields(status, [](absl::string_view field) -> std::string {
    if (field == "sampling.max_tokens") return "max_output_tokens";
    if (field == "sampling.logprobs") return "top_logprobs";
    if (field == "output.json_schema" || field == "output") return "text.format.schema";
    if (absl::StartsWith(field, "tool_choice.")) return "tool_choice";
    return SpecFieldName(field);
  });
}

// Output items in a row: reasoning and messages, each with one part, and calls. Events and answer
// have all of their text at their end, so it is gathered for streams, too.
class ResponsesForm final : public AnswerForm {
 public:
  // `annotations`: without any yet.
  ResponsesForm(bool streams, ResponsesEcho echo, FileCitations annotations)
      : streams_(streams), echo_(std::move(echo)), annotations_(std::move(annotations)) {}

  std::unique_ptr<AnswerForm> Again() const override {
    return std::make_unique<ResponsesForm>(streams_, echo_, annotations_);
  }
  bool streams() const override { return streams_; }
  bool gathers() const override { return true; }

  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    std::string events = Begin(facts);
    const std::string logprobs = LogprobEntries(delta);
    const auto take = [&](const AnswerBlock& block, const std::string& bytes, bool begins) {
      if (begins) absl::StrAppend(&events, Opened(facts));
      if (bytes.empty() && block.kind != Kind::kText) return;
      absl::StrAppend(
          &events,
          Event(absl::StrCat(EventPrefix(block.kind), ".delta"),
                absl::StrCat(Place(facts, streamed_.last()), ",\"delta\":", JsonString(bytes),
                             block.kind == Kind::kText ? Logprobs(logprobs) : "")));
    };
    if (!IsBare(delta)) {
      streamed_.Add(delta, take);
    } else if (!logprobs.empty() && streamed_.in_text()) {
      const bool begins = streamed_.AddEmptyText();
      take(AnswerBlock(), "", begins);
    }
    return events + AnnotationEvents(facts, gathered_.last());
  }

  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    const bool cut = completion.finish_reason == FinishReason::kLength;
    const absl::string_view status = cut ? "incomplete" : "completed";
    std::string events = Begin(facts);
    gathered_.AddEmptyText();
    if (streamed_.AddEmptyText()) absl::StrAppend(&events, Opened(facts));
    absl::StrAppend(&events, Closed(facts, streamed_.last(), status));
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
    GatherText(delta);
    annotations_.Add(delta, gathered_);
  }
  size_t gathered_bytes() const override {
    return gathered_.bytes() + logprobs_bytes_ + annotations_.bytes();
  }
  size_t CitationBytes(const Delta& delta) const override { return annotations_.BytesOf(delta); }
  void SetDocuments(std::vector<PromptedDocument> documents) override {
    annotations_.SetDocuments(std::move(documents));
  }

  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    gathered_.AddEmptyText();
    const bool cut = completion.finish_reason == FinishReason::kLength;
    return ResponseJson(facts, cut ? "incomplete" : "completed");
  }

  absl::Status PlaceField(absl::Status status) const override {
    return PlaceResponsesFields(status);
  }

 private:
  using Kind = AnswerBlock::Kind;

  void GatherText(const Delta& delta) {
    const bool bare = IsBare(delta);
    const std::string logprobs = LogprobEntries(delta);
    if (bare && (logprobs.empty() || !gathered_.in_text())) return;
    if (bare) gathered_.AddEmptyText();
    gathered_.Gather(delta);
    if (logprobs.empty() || (!bare && delta.text.empty())) return;
    size_t text = gathered_.last();
    while (gathered_.all()[text].kind != Kind::kText) --text;
    std::string& entries = logprobs_[text];
    logprobs_bytes_ += logprobs.size() + 1;
    absl::StrAppend(&entries, entries.empty() ? "" : ",", logprobs);
  }

  // Whether a delta has nothing but log probabilities, of tokens whose text is held back.
  static bool IsBare(const Delta& delta) {
    return delta.text.empty() && delta.reasoning.empty() && delta.calls.empty();
  }
  static absl::string_view EventPrefix(Kind kind) {
    return kind == Kind::kText        ? "response.output_text"
           : kind == Kind::kReasoning ? "response.reasoning_text"
                                      : "response.function_call_arguments";
  }
  static std::string Logprobs(absl::string_view entries) {
    return absl::StrCat(",\"logprobs\":[", entries, "]");
  }

  std::string Event(absl::string_view name, absl::string_view fields) {
    return absl::StrCat("event: ", name, "\ndata: {\"type\":\"", name,
                        "\",\"sequence_number\":", sequence_++, fields, "}\n\n");
  }

  std::string ItemId(const AnswerFacts& facts, size_t index) const {
    const Kind kind = gathered_.all()[index].kind;
    const absl::string_view prefix = kind == Kind::kText        ? "msg_"
                                     : kind == Kind::kReasoning ? "rs_"
                                                                : "fc_";
    return JsonString(
        absl::StrCat(prefix, facts.request_id, index == 0 ? "" : absl::StrCat("_", index)));
  }
  // The fields that say where a text belongs.
  std::string Place(const AnswerFacts& facts, size_t index) const {
    const bool call = gathered_.all()[index].kind == Kind::kCall;
    return absl::StrCat(",\"item_id\":", ItemId(facts, index), ",\"output_index\":", index,
                        call ? "" : ",\"content_index\":0");
  }
  // `whole`: with the text.
  std::string PartJson(size_t index, bool whole) const {
    const AnswerBlock& block = gathered_.all()[index];
    const std::string text = JsonString(whole ? block.bytes : "");
    if (block.kind == Kind::kReasoning) {
      return absl::StrCat("{\"type\":\"reasoning_text\",\"text\":", text, "}");
    }
    return absl::StrCat("{\"type\":\"output_text\",\"text\":", text, ",\"annotations\":[",
                        whole ? annotations_.Of(index) : "", "]",
                        Logprobs(whole ? LogprobsOf(index) : ""), "}");
  }
  absl::string_view LogprobsOf(size_t index) const {
    const auto entries = logprobs_.find(index);
    return entries == logprobs_.end() ? "" : absl::string_view(entries->second);
  }
  // `status`: "in_progress" is without text. A call that broke off is "incomplete", since agents
  // run the others.
  std::string ItemJson(const AnswerFacts& facts, size_t index, absl::string_view status) const {
    const AnswerBlock& block = gathered_.all()[index];
    const bool begins = status == "in_progress";
    if (!begins && block.kind == Kind::kCall && !nlohmann::json::accept(block.bytes)) {
      status = "incomplete";
    }
    const std::string head =
        absl::StrCat("{\"id\":", ItemId(facts, index), ",\"status\":\"", status, "\",\"type\":");
    if (block.kind == Kind::kCall) {
      return absl::StrCat(head, "\"function_call\",\"call_id\":", JsonString(block.id),
                          ",\"name\":", JsonString(block.name),
                          ",\"arguments\":", JsonString(begins ? "" : block.bytes), "}");
    }
    return absl::StrCat(head,
                        block.kind == Kind::kText ? "\"message\",\"role\":\"assistant\""
                                                  : "\"reasoning\",\"summary\":[]",
                        ",\"content\":[", begins ? "" : PartJson(index, /*whole=*/true), "]}");
  }
  std::string ResponseJson(const AnswerFacts& facts, absl::string_view status) const {
    const bool begins = status == "in_progress";
    const bool cut = status == "incomplete";
    std::string items;
    for (size_t i = 0; i < gathered_.all().size() && !begins; ++i) {
      absl::StrAppend(&items, i == 0 ? "" : ",",
                      ItemJson(facts, i, i == gathered_.last() ? status : "completed"));
    }
    return absl::StrCat(
        "{\"id\":", JsonString(absl::StrCat("resp_", facts.request_id)),
        ",\"object\":\"response\",\"created_at\":", facts.created, ",\"status\":\"", status,
        "\",\"background\":false,\"error\":null,\"incomplete_details\":",
        cut ? "{\"reason\":\"max_output_tokens\"}" : "null",
        ",\"instructions\":null,\"max_output_tokens\":", echo_.max_output_tokens,
        ",\"model\":", JsonString(facts.model), ",\"output\":[", items,
        "],\"parallel_tool_calls\":", echo_.parallel_tool_calls,
        ",\"previous_response_id\":null,\"reasoning\":{\"effort\":null,\"summary\":null},"
        "\"store\":false,\"temperature\":",
        echo_.temperature, ",\"text\":{\"format\":{\"type\":\"text\"}},\"tool_choice\":\"",
        echo_.tool_choice, "\",\"tools\":[],\"top_logprobs\":", echo_.top_logprobs,
        ",\"top_p\":", echo_.top_p, ",\"truncation\":\"disabled\",\"metadata\":{},\"usage\":",
        begins ? "null" : ResponsesUsageJson(facts.usage), "}");
  }

  // What comes before the first item.
  std::string Begin(const AnswerFacts& facts) {
    if (std::exchange(begun_, true)) return "";
    const std::string response = absl::StrCat(",\"response\":", ResponseJson(facts, "in_progress"));
    std::string events = Event("response.created", response);
    return events + Event("response.in_progress", response);
  }
  // Ends the item before, and begins the newest.
  std::string Opened(const AnswerFacts& facts) {
    const size_t index = streamed_.last();
    std::string events = index == 0 ? "" : Closed(facts, index - 1, "completed");
    absl::StrAppend(&events, Event("response.output_item.added",
                                   absl::StrCat(",\"output_index\":", index, ",\"item\":",
                                                ItemJson(facts, index, "in_progress"))));
    if (gathered_.all()[index].kind == Kind::kCall) return events;
    return events +
           Event("response.content_part.added",
                 absl::StrCat(Place(facts, index), ",\"part\":", PartJson(index, /*whole=*/false)));
  }
  // Of blocks up to this one, which have been opened.
  std::string AnnotationEvents(const AnswerFacts& facts, size_t last_block) {
    std::string events;
    for (const FileCitations::Annotation& annotation : annotations_.TakeFresh(last_block)) {
      absl::StrAppend(&events, Event("response.output_text.annotation.added",
                                     absl::StrCat(Place(facts, annotation.block),
                                                  ",\"annotation_index\":", annotation.index,
                                                  ",\"annotation\":", annotation.json)));
    }
    return events;
  }
  std::string Closed(const AnswerFacts& facts, size_t index, absl::string_view status) {
    const AnswerBlock& block = gathered_.all()[index];
    const bool call = block.kind == Kind::kCall;
    std::string events = AnnotationEvents(facts, index);
    absl::StrAppend(
        &events, Event(absl::StrCat(EventPrefix(block.kind), ".done"),
                       absl::StrCat(Place(facts, index), call ? ",\"arguments\":" : ",\"text\":",
                                    JsonString(block.bytes),
                                    call ? absl::StrCat(",\"name\":", JsonString(block.name)) : "",
                                    block.kind == Kind::kText ? Logprobs(LogprobsOf(index)) : "")));
    if (!call) {
      absl::StrAppend(&events, Event("response.content_part.done",
                                     absl::StrCat(Place(facts, index),
                                                  ",\"part\":", PartJson(index, /*whole=*/true))));
    }
    return events + Event("response.output_item.done",
                          absl::StrCat(",\"output_index\":", index,
                                       ",\"item\":", ItemJson(facts, index, status)));
  }

  const bool streams_;
  const ResponsesEcho echo_;
  bool begun_ = false;
  int64_t sequence_ = 0;
  AnswerBlocks gathered_;
  BlockCutter streamed_;                    // which of them was sent last
  std::map<size_t, std::string> logprobs_;  // by block
  size_t logprobs_bytes_ = 0;
  FileCitations annotations_;
};

}  // namespace

absl::StatusOr<FormRequest> ReadResponsesForm(const std::deque<std::string>& body,
                                              CallMemory& memory, const CancelFlag& cancel) {
  ResponsesRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadResponsesRequest(body, request, memory, cancel));
  FormRequest form;
  form.answer = std::make_unique<ResponsesForm>(request.stream, ResponsesEchoOf(request),
                                                FileCitations(request.spec.evidence()));
  if (!request.ignored_tools.empty()) {
    form.headers.push_back(
        absl::StrCat("annulus-ignored-tools: ", absl::StrJoin(request.ignored_tools, ", ")));
  }
  form.documents = std::move(request.documents);
  form.asked.spec = std::move(request.spec);
  return form;
}

}  // namespace annulus::server
