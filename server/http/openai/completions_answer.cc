#include "server/http/openai/completions_answer.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/http/json/json_text.h"
#include "server/http/openai/completions_request.h"
#include "server/http/openai/logprob_json.h"
#include "server/http/openai/tools.h"

namespace annulus::server {
namespace {

std::string UsageJson(const Usage& usage) {
  return absl::StrCat(
      "{\"prompt_tokens\":", usage.prompt_tokens,
      ",\"completion_tokens\":", usage.completion_tokens,
      ",\"total_tokens\":", usage.prompt_tokens + usage.completion_tokens,
      ",\"prompt_tokens_details\":{\"cached_tokens\":", usage.cached_tokens,
      "},\"completion_tokens_details\":{\"reasoning_tokens\":", usage.reasoning_tokens, "}}");
}

absl::string_view FinishReasonOf(const Completion& completion) {
  if (completion.finish_reason == FinishReason::kLength) return "\"length\"";
  return completion.calls.empty() ? "\"stop\"" : "\"tool_calls\"";
}

// What chat and completions share: the frame of chunks and answers around one choice.
class OpenAiForm : public AnswerForm {
 public:
  // `choice`: which of the request's choices.
  OpenAiForm(OpenAiRequest request, int choice) : request_(std::move(request)), choice_(choice) {}

  bool streams() const override { return request_.stream; }

  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    std::string events;
    if (!std::exchange(begun_, true)) events = First(facts);
    const std::string logprobs = LogprobsOf(delta);
    const bool has_text = !delta.text.empty() || !delta.reasoning.empty() || !delta.calls.empty();
    if (!has_text && logprobs == "null") return events;
    absl::StrAppend(&events, Chunk(facts, absl::StrCat(Index(), DeltaJson(delta), ",\"logprobs\":",
                                                       logprobs, ",\"finish_reason\":null}")));
    return events;
  }

  std::string ChoiceEnd(const AnswerFacts& facts, const Completion& completion) override {
    std::string events;
    if (!std::exchange(begun_, true)) events = First(facts);
    absl::StrAppend(&events, Chunk(facts, absl::StrCat(Index(), EmptyDelta(),
                                                       ",\"logprobs\":null,\"finish_reason\":",
                                                       FinishReasonOf(completion), "}")));
    return events;
  }

  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    std::string events = ChoiceEnd(facts, completion);
    if (request_.include_usage) {
      absl::StrAppend(&events, Event(absl::StrCat(Head(facts, /*chunk=*/true), ",\"choices\":[]",
                                                  ",\"usage\":", UsageJson(facts.usage), "}")));
    }
    return events + "data: [DONE]\n\n";
  }

  std::string StreamError(const HttpError& error) override { return Event(OpenAiErrorBody(error)); }

  void Gather(const Delta& delta) override {
    text_ += delta.text;
    reasoning_ += delta.reasoning;
    for (const ToolCallDelta& call : delta.calls) {
      calls_bytes_ += call.id.size() + call.name.size() + call.arguments.size();
    }
    AddLogprobs(delta);
  }
  size_t gathered_bytes() const override {
    return text_.size() + reasoning_.size() + calls_bytes_ + LogprobsSize();
  }

  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    return WholeOf(facts, ChoiceJson(completion));
  }
  // A choice that has ended, and the answer with all of them, joined by commas.
  std::string ChoiceJson(const Completion& completion) {
    return absl::StrCat(Index(), AnswerJson({text_, reasoning_, completion.calls}),
                        ",\"logprobs\":", GatheredLogprobs(),
                        ",\"finish_reason\":", FinishReasonOf(completion), "}");
  }
  std::string WholeOf(const AnswerFacts& facts, absl::string_view choices) const {
    return absl::StrCat(Head(facts, /*chunk=*/false), ",\"choices\":[", choices,
                        "],\"usage\":", UsageJson(facts.usage), "}");
  }

  absl::Status PlaceField(absl::Status status) const override {
    return PlaceOpenAiField(std::move(status), request_);
  }

 protected:
  // The beginning of a choice.
  std::string Index() const { return absl::StrCat("{\"index\":", choice_, ","); }
  virtual absl::string_view IdPrefix() const = 0;
  virtual absl::string_view Object(bool chunk) const = 0;
  virtual std::string First(const AnswerFacts& facts) = 0;
  virtual std::string DeltaJson(const Delta& delta) const = 0;
  virtual absl::string_view EmptyDelta() const = 0;
  struct Parts {
    absl::string_view text;
    absl::string_view reasoning;
    const std::vector<ToolCall>& calls;
  };
  virtual std::string AnswerJson(const Parts& parts) const = 0;
  // The log probabilities of one delta; "null" if there are none.
  virtual std::string LogprobsOf(const Delta& delta) = 0;
  virtual void AddLogprobs(const Delta& delta) = 0;
  virtual size_t LogprobsSize() const = 0;
  virtual std::string GatheredLogprobs() const = 0;

  const OpenAiRequest& request() const { return request_; }
  bool wants_logprobs() const { return request_.spec.sampling().has_logprobs(); }

  std::string Chunk(const AnswerFacts& facts, absl::string_view choice) const {
    std::string usage;
    if (request_.continuous_usage) {
      usage = absl::StrCat(",\"usage\":", UsageJson(facts.usage));
    } else if (request_.include_usage) {
      usage = ",\"usage\":null";
    }
    return Event(
        absl::StrCat(Head(facts, /*chunk=*/true), ",\"choices\":[", choice, "]", usage, "}"));
  }
  static std::string Event(absl::string_view json) { return absl::StrCat("data: ", json, "\n\n"); }

 private:
  std::string Head(const AnswerFacts& facts, bool chunk) const {
    return absl::StrCat("{\"id\":", JsonString(absl::StrCat(IdPrefix(), facts.request_id)),
                        ",\"object\":\"", Object(chunk), "\",\"created\":", facts.created,
                        ",\"model\":", JsonString(facts.model));
  }

  const OpenAiRequest request_;
  const int choice_;
  bool begun_ = false;
  std::string text_;
  std::string reasoning_;
  size_t calls_bytes_ = 0;  // of the calls in the completion
};

// Several choices of one request, each with a form of its own.
class ChoicesForm final : public AnswerForm {
 public:
  explicit ChoicesForm(std::vector<std::unique_ptr<OpenAiForm>> forms)
      : forms_(std::move(forms)), ended_(forms_.size()) {}

  void UseChoice(int choice) override { now_ = static_cast<size_t>(choice); }
  bool streams() const override { return forms_[0]->streams(); }
  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    return forms_[now_]->StreamDelta(facts, delta);
  }
  std::string ChoiceEnd(const AnswerFacts& facts, const Completion& completion) override {
    if (streams()) return forms_[now_]->ChoiceEnd(facts, completion);
    ended_[now_] = forms_[now_]->ChoiceJson(completion);
    return "";
  }
  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    return forms_[now_]->StreamEnd(facts, completion);
  }
  std::string StreamError(const HttpError& error) override { return forms_[0]->StreamError(error); }
  void Gather(const Delta& delta) override { forms_[now_]->Gather(delta); }
  size_t gathered_bytes() const override {
    size_t bytes = 0;
    for (const auto& form : forms_) bytes += form->gathered_bytes();
    return bytes;
  }
  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    ended_[now_] = forms_[now_]->ChoiceJson(completion);
    return forms_[0]->WholeOf(facts, absl::StrJoin(ended_, ","));
  }
  bool echoes() const override { return forms_[0]->echoes(); }
  void SetEcho(const std::string& prompt, const std::string& first_token) override {
    for (const auto& form : forms_) form->SetEcho(prompt, first_token);
  }
  absl::Status PlaceField(absl::Status status) const override {
    return forms_[0]->PlaceField(std::move(status));
  }

 private:
  const std::vector<std::unique_ptr<OpenAiForm>> forms_;
  std::vector<std::string> ended_;  // their JSON, for a whole answer
  size_t now_ = 0;
};

class ChatForm final : public OpenAiForm {
 public:
  using OpenAiForm::OpenAiForm;

  std::unique_ptr<AnswerForm> Again() const override {
    return std::make_unique<ChatForm>(request(), /*choice=*/0);
  }

 private:
  absl::string_view IdPrefix() const override { return "chatcmpl-"; }
  absl::string_view Object(bool chunk) const override {
    return chunk ? "chat.completion.chunk" : "chat.completion";
  }
  std::string First(const AnswerFacts& facts) override {
    return Chunk(facts,
                 absl::StrCat(Index(),
                              "\"delta\":{\"role\":\"assistant\",\"content\":\"\"},\"logprobs\":"
                              "null,\"finish_reason\":null}"));
  }
  std::string DeltaJson(const Delta& delta) const override {
    std::string members;
    const auto add = [&members](absl::string_view name, absl::string_view json) {
      absl::StrAppend(&members, members.empty() ? "\"" : ",\"", name, "\":", json);
    };
    if (!delta.reasoning.empty()) add("reasoning_content", JsonString(delta.reasoning));
    if (!delta.text.empty()) add("content", JsonString(delta.text));
    if (!delta.calls.empty()) add("tool_calls", ToolCallsJson(delta.calls));
    // A chunk of log probabilities alone has a content too.
    if (members.empty()) add("content", "\"\"");
    return absl::StrCat("\"delta\":{", members, "}");
  }
  absl::string_view EmptyDelta() const override { return "\"delta\":{}"; }
  std::string AnswerJson(const Parts& parts) const override {
    const bool no_text = parts.text.empty() && !parts.calls.empty();
    std::string json = absl::StrCat("\"message\":{\"role\":\"assistant\",\"content\":",
                                    no_text ? "null" : JsonString(parts.text), ",\"refusal\":null");
    if (!parts.reasoning.empty()) {
      absl::StrAppend(&json, ",\"reasoning_content\":", JsonString(parts.reasoning));
    }
    if (!parts.calls.empty()) {
      absl::StrAppend(&json, ",\"tool_calls\":", ToolCallsJson(parts.calls));
    }
    return json + "}";
  }
  static std::string Framed(absl::string_view entries) {
    return absl::StrCat("{\"content\":[", entries, "],\"refusal\":null}");
  }
  std::string LogprobsOf(const Delta& delta) override {
    return delta.logprobs.empty() ? "null" : Framed(LogprobEntries(delta));
  }
  void AddLogprobs(const Delta& delta) override {
    if (delta.logprobs.empty()) return;
    absl::StrAppend(&logprobs_, logprobs_.empty() ? "" : ",", LogprobEntries(delta));
  }
  size_t LogprobsSize() const override { return logprobs_.size(); }
  std::string GatheredLogprobs() const override {
    return wants_logprobs() ? Framed(logprobs_) : "null";
  }

  std::string logprobs_;
};

class CompletionForm final : public OpenAiForm {
 public:
  using OpenAiForm::OpenAiForm;

  std::unique_ptr<AnswerForm> Again() const override {
    if (echoes()) return nullptr;  // would have to keep the prompt
    return std::make_unique<CompletionForm>(request(), /*choice=*/0);
  }
  bool echoes() const override { return request().echo; }
  void SetEcho(const std::string& prompt, const std::string& first_token) override {
    echo_ = prompt;
    first_token_ = first_token;
  }

 private:
  // The four arrays of a legacy answer's log probabilities.
  struct Lists {
    std::string tokens, token_logprobs, top_logprobs, text_offset;

    size_t size() const {
      return tokens.size() + token_logprobs.size() + top_logprobs.size() + text_offset.size();
    }
    std::string Json() const {
      return absl::StrCat("{\"tokens\":[", tokens, "],\"token_logprobs\":[", token_logprobs,
                          "],\"top_logprobs\":[", top_logprobs, "],\"text_offset\":[", text_offset,
                          "]}");
    }
  };

  absl::string_view IdPrefix() const override { return "cmpl-"; }
  absl::string_view Object(bool) const override { return "text_completion"; }
  std::string First(const AnswerFacts& facts) override {
    if (echo_.empty()) return "";
    return Chunk(facts, absl::StrCat(Index(), TextJson(echo_),
                                     ",\"logprobs\":null,\"finish_reason\":null}"));
  }
  std::string DeltaJson(const Delta& delta) const override { return TextJson(delta.text); }
  static std::string TextJson(absl::string_view text) {
    return absl::StrCat("\"text\":", JsonString(text));
  }
  absl::string_view EmptyDelta() const override { return "\"text\":\"\""; }
  std::string AnswerJson(const Parts& parts) const override {
    return TextJson(absl::StrCat(echo_, parts.text));
  }

  void Add(absl::string_view text, absl::string_view logprob, absl::string_view alternatives,
           Lists& lists) {
    const absl::string_view comma = lists.tokens.empty() ? "" : ",";
    absl::StrAppend(&lists.tokens, comma, JsonString(text));
    absl::StrAppend(&lists.token_logprobs, comma, logprob);
    absl::StrAppend(&lists.top_logprobs, comma, alternatives);
    absl::StrAppend(&lists.text_offset, comma, offset_);
    // In characters, as Python counts them.
    offset_ += std::count_if(text.begin(), text.end(),
                             [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; });
  }
  void Add(const Delta& delta, Lists& lists) {
    // Nothing is known of how likely the first token is.
    if (wants_logprobs() && first_token_.has_value()) {
      Add(*std::exchange(first_token_, std::nullopt), "null", "null", lists);
    }
    for (const auto* const list : {&delta.prompt_logprobs, &delta.logprobs}) {
      for (const TokenLogprob& logprob : *list) {
        Add(LogprobText(logprob, 0), JsonNumber(logprob.logprob), Alternatives(logprob), lists);
      }
    }
  }
  // By text. Of two tokens with the same text, the likelier one counts.
  static std::string Alternatives(const TokenLogprob& logprob) {
    std::string json;
    for (size_t i = 0; i < logprob.alternatives.size(); ++i) {
      const std::string name = JsonString(LogprobText(logprob, i + 1));
      if (absl::StrContains(json, absl::StrCat(name, ":"))) continue;
      absl::StrAppend(&json, json.empty() ? "" : ",", name, ":",
                      JsonNumber(logprob.alternatives[i].second));
    }
    return absl::StrCat("{", json, "}");
  }
  std::string LogprobsOf(const Delta& delta) override {
    if (delta.logprobs.empty() && delta.prompt_logprobs.empty()) return "null";
    Lists lists;
    Add(delta, lists);
    return lists.Json();
  }
  void AddLogprobs(const Delta& delta) override { Add(delta, lists_); }
  size_t LogprobsSize() const override { return lists_.size() + echo_.size(); }
  std::string GatheredLogprobs() const override {
    return wants_logprobs() ? lists_.Json() : "null";
  }

  std::string echo_;                        // the prompt, if the answer begins with it
  std::optional<std::string> first_token_;  // of it, until its place in the lists is taken
  Lists lists_;
  int64_t offset_ = 0;
};

using Reader = absl::Status (*)(const std::deque<std::string>&, OpenAiRequest&, CallMemory&,
                                const CancelFlag&);

template <typename Form>
absl::StatusOr<FormRequest> ReadForm(Reader reader, const std::deque<std::string>& body,
                                     CallMemory& memory, const CancelFlag& cancel) {
  OpenAiRequest request;
  ANNULUS_RETURN_IF_ERROR(reader(body, request, memory, cancel));
  FormRequest form;
  // The form needs the rest of the request; of the spec only how log probabilities are asked for.
  form.asked.spec = std::move(request.spec);
  form.documents = std::move(request.documents);
  request.spec = v1::GenerationSpec();
  if (form.asked.spec.sampling().has_logprobs()) request.spec.mutable_sampling()->set_logprobs(0);
  form.asked.choices = request.choices;
  if (request.choices == 1) {
    form.answer = std::make_unique<Form>(std::move(request), 0);
    return form;
  }
  std::vector<std::unique_ptr<OpenAiForm>> forms;
  for (int i = 0; i < request.choices; ++i) forms.push_back(std::make_unique<Form>(request, i));
  form.answer = std::make_unique<ChoicesForm>(std::move(forms));
  return form;
}

}  // namespace

absl::StatusOr<FormRequest> ReadChatForm(const std::deque<std::string>& body, CallMemory& memory,
                                         const CancelFlag& cancel) {
  return ReadForm<ChatForm>(ReadChatRequest, body, memory, cancel);
}

absl::StatusOr<FormRequest> ReadCompletionForm(const std::deque<std::string>& body,
                                               CallMemory& memory, const CancelFlag& cancel) {
  return ReadForm<CompletionForm>(ReadCompletionRequest, body, memory, cancel);
}

}  // namespace annulus::server
