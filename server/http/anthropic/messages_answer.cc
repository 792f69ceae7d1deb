#include "server/http/anthropic/messages_answer.h"

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/generation/request_builder.h"
#include "server/http/answer_blocks.h"
#include "server/http/anthropic/message_citations.h"
#include "server/http/anthropic/messages_request.h"
#include "server/http/json/json_text.h"
#include "server/http/sentence_parts.h"
#include "server/http/spec_fields.h"

namespace annulus::server {
namespace {

// The block as JSON. `input`: of a call. `citations`: of a text; empty: it has none.
std::string BlockJson(const AnswerBlock& block, absl::string_view text, absl::string_view input,
                      absl::string_view citations = "") {
  switch (block.kind) {
    case AnswerBlock::Kind::kReasoning:
      return absl::StrCat("{\"type\":\"thinking\",\"thinking\":", JsonString(text),
                          ",\"signature\":\"\"}");
    case AnswerBlock::Kind::kText:
      return absl::StrCat("{\"type\":\"text\",\"text\":", JsonString(text),
                          citations.empty() ? "" : ",\"citations\":[", citations,
                          citations.empty() ? "}" : "]}");
    case AnswerBlock::Kind::kCall:
      return absl::StrCat("{\"type\":\"tool_use\",\"id\":", JsonString(block.id),
                          ",\"name\":", JsonString(block.name), ",\"input\":", input, "}");
  }
  return "";
}

std::string BlockDeltaJson(AnswerBlock::Kind kind, absl::string_view bytes) {
  const absl::string_view members =
      kind == AnswerBlock::Kind::kReasoning ? "{\"type\":\"thinking_delta\",\"thinking\":"
      : kind == AnswerBlock::Kind::kText    ? "{\"type\":\"text_delta\",\"text\":"
                                            : "{\"type\":\"input_json_delta\",\"partial_json\":";
  return absl::StrCat(members, JsonString(bytes), "}");
}

std::string MessagesEvent(absl::string_view name, absl::string_view fields) {
  return absl::StrCat("event: ", name, "\ndata: {\"type\":\"", name, "\"", fields, "}\n\n");
}

// Tokens that came from the cache are not among the input tokens.
std::string MessagesUsageJson(const Usage& usage) {
  return absl::StrCat("{\"input_tokens\":", usage.prompt_tokens - usage.cached_tokens,
                      ",\"cache_creation_input_tokens\":0,\"cache_read_input_tokens\":",
                      usage.cached_tokens, ",\"output_tokens\":", usage.completion_tokens, "}");
}

// Whether a call can be made: else its arguments are no JSON object.
bool IsWhole(const ToolCall& call) { return !call.broken; }

// The two fields that say how an answer ended.
std::string MessagesStopJson(const Completion& completion) {
  const bool stopped = !completion.matched_stop.empty();
  const bool calls = std::any_of(completion.calls.begin(), completion.calls.end(), IsWhole);
  const absl::string_view reason = completion.finish_reason == FinishReason::kLength ? "max_tokens"
                                   : calls                                           ? "tool_use"
                                   : stopped ? "stop_sequence"
                                             : "end_turn";
  return absl::StrCat("\"stop_reason\":\"", reason, "\",\"stop_sequence\":",
                      stopped ? JsonString(completion.matched_stop) : "null");
}

// `citing`: the field that asks for citations.
absl::Status PlaceMessagesFields(const absl::Status& status, const std::string& citing) {
  return PlaceSpecFields(status, [&](absl::string_view field) -> std::string {
    if (field == "evidence") return citing;
    if (field == "sampling.stop") return "stop_sequences";
    if (field == "tool_choice.mode") return "tool_choice.type";
    if (field == "reasoning_budget") return "thinking.budget_tokens";
    if (absl::StartsWith(field, "output")) return "output_config.format.schema";
    return SpecFieldName(field);
  });
}

// With citations, each sentence of the text is a block: while it streams, nobody knows yet whether
// it will have any.
class MessagesForm final : public AnswerForm {
 public:
  // `citing`: the field that asks for citations; empty: they are not enabled.
  MessagesForm(bool streams, std::string citing, MessageCitations citations)
      : streams_(streams), citing_(std::move(citing)), citations_(std::move(citations)) {}

  std::unique_ptr<AnswerForm> Again() const override {
    return std::make_unique<MessagesForm>(streams_, citing_, citations_);
  }
  bool streams() const override { return streams_; }

  std::string StreamDelta(const AnswerFacts& facts, const Delta& delta) override {
    std::string events = Begin(facts);
    if (!citations_.enabled()) {
      AddEvents(delta, events);
      return events;
    }
    const auto add = [&](const Delta& part, const SentenceEvidence* evidence, bool ends) {
      AddEvents(part, events);
      for (const std::string& citation : CitationsOf(evidence)) {
        absl::StrAppend(
            &events,
            BlockEvent("content_block_delta",
                       absl::StrCat(",\"delta\":{\"type\":\"citations_delta\",\"citation\":",
                                    citation, "}")));
      }
      if (ends) streamed_.EndBlock();
    };
    sentences_.Split(delta, add);
    return events;
  }

  std::string StreamEnd(const AnswerFacts& facts, const Completion& completion) override {
    std::string events = Begin(facts);
    if (streamed_.AddEmptyText()) absl::StrAppend(&events, Open(AnswerBlock()));
    return absl::StrCat(
        events, BlockEvent("content_block_stop", ""),
        MessagesEvent("message_delta",
                      absl::StrCat(",\"delta\":{", MessagesStopJson(completion),
                                   "},\"usage\":", MessagesUsageJson(completion.usage))),
        MessagesEvent("message_stop", ""));
  }

  std::string StreamError(const HttpError& error) override {
    return absl::StrCat("event: error\ndata: ", AnthropicErrorBody(error), "\n\n");
  }
  std::string StreamBeat() const override { return MessagesEvent("ping", ""); }

  void Gather(const Delta& delta) override {
    if (!citations_.enabled()) return gathered_.Gather(delta);
    const auto add = [&](const Delta& part, const SentenceEvidence* evidence, bool ends) {
      gathered_.Gather(part);
      for (const std::string& citation : CitationsOf(evidence)) {
        std::string& of_block = cited_[gathered_.last()];
        absl::StrAppend(&of_block, of_block.empty() ? "" : ",", citation);
        cited_bytes_ += citation.size() + 1;
      }
      if (ends) gathered_.EndBlock();
    };
    sentences_.Split(delta, add);
  }
  size_t gathered_bytes() const override { return gathered_.bytes() + cited_bytes_; }
  size_t CitationBytes(const Delta& delta) const override {
    return citations_.enabled() ? citations_.Bytes(delta) : 0;
  }
  void SetDocuments(std::vector<PromptedDocument> documents) override {
    citations_.SetDocuments(std::move(documents));
  }
  size_t kept_bytes() const override { return citations_.kept_bytes(); }

  std::string Whole(const AnswerFacts& facts, const Completion& completion) override {
    gathered_.AddEmptyText();
    std::string blocks;
    for (size_t i = 0; i < gathered_.all().size(); ++i) {
      const AnswerBlock& block = gathered_.all()[i];
      const auto cited = cited_.find(i);
      const bool call = block.kind == AnswerBlock::Kind::kCall;
      if (call && !IsWhole(completion.calls[static_cast<size_t>(block.call)])) continue;
      absl::StrAppend(
          &blocks, blocks.empty() ? "" : ",",
          BlockJson(block, block.bytes, block.bytes, cited == cited_.end() ? "" : cited->second));
    }
    return MessageJson(facts, blocks, MessagesStopJson(completion));
  }

  absl::Status PlaceField(absl::Status status) const override {
    return PlaceMessagesFields(status, citing_);
  }

 private:
  static std::string MessageJson(const AnswerFacts& facts, absl::string_view blocks,
                                 absl::string_view stop) {
    return absl::StrCat(
        "{\"id\":", JsonString(absl::StrCat("msg_", facts.request_id)),
        ",\"type\":\"message\",\"role\":\"assistant\",\"model\":", JsonString(facts.model),
        ",\"content\":[", blocks, "],", stop, ",\"usage\":", MessagesUsageJson(facts.usage), "}");
  }

  std::vector<std::string> CitationsOf(const SentenceEvidence* evidence) const {
    return evidence == nullptr ? std::vector<std::string>() : citations_.ToJson(*evidence);
  }

  // Adds the events of what the delta adds to blocks.
  void AddEvents(const Delta& delta, std::string& events) {
    streamed_.Add(delta, [&](const AnswerBlock& block, const std::string& bytes, bool begins) {
      if (begins) absl::StrAppend(&events, Open(block));
      if (bytes.empty()) return;
      absl::StrAppend(&events,
                      BlockEvent("content_block_delta",
                                 absl::StrCat(",\"delta\":", BlockDeltaJson(block.kind, bytes))));
    });
  }

  // What comes before the first block.
  std::string Begin(const AnswerFacts& facts) {
    if (std::exchange(begun_, true)) return "";
    AnswerFacts start = facts;
    start.usage.completion_tokens = 0;
    return MessagesEvent(
        "message_start",
        absl::StrCat(",\"message\":",
                     MessageJson(start, "", "\"stop_reason\":null,\"stop_sequence\":null")));
  }

  std::string BlockEvent(absl::string_view name, absl::string_view fields) const {
    return MessagesEvent(name, absl::StrCat(",\"index\":", streamed_.last(), fields));
  }
  // Ends the block before, and begins the newest.
  std::string Open(const AnswerBlock& block) const {
    const size_t index = streamed_.last();
    const std::string stop =
        index == 0 ? ""
                   : MessagesEvent("content_block_stop", absl::StrCat(",\"index\":", index - 1));
    return absl::StrCat(
        stop, BlockEvent("content_block_start",
                         absl::StrCat(",\"content_block\":", BlockJson(block, "", "{}"))));
  }

  const bool streams_;
  const std::string citing_;
  MessageCitations citations_;
  SentenceParts sentences_;
  bool begun_ = false;
  BlockCutter streamed_;                 // of a stream
  AnswerBlocks gathered_;                // of a whole answer
  std::map<size_t, std::string> cited_;  // by block: its citations
  size_t cited_bytes_ = 0;
};

// What the citations need of the document blocks; they are not enabled if `citing` is empty.
MessageCitations CitationsFor(const MessagesRequest& request) {
  if (request.citing.empty()) return MessageCitations();
  std::vector<CitedDocument> documents;
  for (const AttachedDocument& document : request.documents) {
    documents.push_back({document.name, document.pieces});
  }
  return MessageCitations(std::move(documents));
}

}  // namespace

absl::StatusOr<FormRequest> ReadMessagesForm(const std::deque<std::string>& body,
                                             CallMemory& memory, const CancelFlag& cancel) {
  MessagesRequest request;
  ANNULUS_RETURN_IF_ERROR(ReadMessagesRequest(body, /*counts=*/false, request, memory, cancel));
  FormRequest form;
  form.asked.spec = std::move(request.spec);
  form.answer =
      std::make_unique<MessagesForm>(request.stream, request.citing, CitationsFor(request));
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
  const absl::Status attached = AttachDocuments(context, work.caller, std::move(request.documents),
                                                asked, work.memory, cancel)
                                    .status();
  ANNULUS_RETURN_IF_ERROR(attached);
  const auto built =
      BuildRequest(asked.spec, *engine, context.documents, work.caller.tenant, work.memory, cancel,
                   asked.documents.has_value() ? &*asked.documents : nullptr);
  if (!built.ok()) return PlaceMessagesFields(built.status(), request.citing);
  return HttpAnswer{.content_type = "application/json",
                    .body = absl::StrCat("{\"input_tokens\":", built->spec.prompt.size(), "}")};
}

}  // namespace annulus::server
