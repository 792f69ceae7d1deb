#include "engine/request/answer_reader.h"

#include <utility>

namespace annulus {

using Token = AnswerParser::Token;

AnswerReader::AnswerReader(const AnswerReading& reading)
    : parser_(reading.format, reading.tools,
              {.reasoning = reading.reasoning,
               .in_reasoning = reading.in_reasoning,
               .salt = reading.id_salt}),
      one_call_(reading.one_call) {}

bool AnswerReader::IsMark(int32_t id, const Tokenizer& tokenizer) const {
  return tokenizer.IsControl(id) && parser_.format().HasMark(TokenText(tokenizer, id));
}

// Bytes before the mark that are no whole character stay none.
void AnswerReader::PushMark(int32_t id, IncrementalDetokenizer& detokenizer) {
  const Tokenizer& tokenizer = detokenizer.tokenizer();
  parser_.Push(detokenizer.Flush(), Token::kPlain, events_);
  parser_.Push(TokenText(tokenizer, id), tokenizer.IsSpecial(id) ? Token::kSpecial : Token::kMarkup,
               events_);
}

void AnswerReader::Push(int32_t id, IncrementalDetokenizer& detokenizer, Delta& delta) {
  const bool was_reasoning = parser_.in_reasoning();
  if (IsMark(id, detokenizer.tokenizer())) {
    PushMark(id, detokenizer);
  } else {
    parser_.Push(detokenizer.Push(id), Token::kPlain, events_);
  }
  if (was_reasoning || parser_.in_reasoning()) ++reasoning_tokens_;
  Collect(delta);
}

void AnswerReader::PushEnd(int32_t id, IncrementalDetokenizer& detokenizer, Delta& delta) {
  const bool was_reasoning = parser_.in_reasoning();
  if (IsMark(id, detokenizer.tokenizer())) PushMark(id, detokenizer);
  if (was_reasoning) ++reasoning_tokens_;
  Collect(delta);
}

void AnswerReader::Finish(IncrementalDetokenizer& detokenizer, Delta& delta) {
  if (std::exchange(finished_, true)) return;
  parser_.Push(detokenizer.Flush(), Token::kPlain, events_);
  parser_.Finish(events_);
  Collect(delta);
}

std::string AnswerReader::TakeText() { return std::exchange(text_, ""); }

void AnswerReader::AddArguments(const AnswerEvent& event, Delta& delta) {
  if (delta.calls.empty() || delta.calls.back().index != event.index) {
    delta.calls.push_back({.index = event.index, .id = "", .name = "", .arguments = ""});
  }
  delta.calls.back().arguments += event.bytes;
  std::string& arguments = calls_.back().arguments;
  kept_bytes_ -= arguments.capacity();
  arguments += event.bytes;
  kept_bytes_ += arguments.capacity();
}

void AnswerReader::Collect(Delta& delta) {
  for (AnswerEvent& event : events_) {
    if (!event.broken.empty() && broken_.size() < kMostBroken) broken_.push_back(event.broken);
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        text_ += event.bytes;
        break;
      case AnswerEvent::Kind::kReasoning:
        delta.reasoning += event.bytes;
        break;
      case AnswerEvent::Kind::kCallBegin:
        delta.calls.push_back({event.index, event.id, event.name, ""});
        calls_.push_back({std::move(event.id), std::move(event.name), ""});
        // A vector may have room for twice as many.
        kept_bytes_ += 2 * sizeof(ToolCall) + calls_.back().id.capacity() +
                       calls_.back().name.capacity() + calls_.back().arguments.capacity();
        break;
      case AnswerEvent::Kind::kArguments:
        AddArguments(event, delta);
        break;
      case AnswerEvent::Kind::kMark:
      case AnswerEvent::Kind::kCallEnd:
        break;
    }
  }
  events_.clear();
}

}  // namespace annulus
