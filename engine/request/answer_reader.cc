#include "engine/request/answer_reader.h"

#include <utility>

#include "engine/request/delta_order.h"

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

void AnswerReader::Push(int32_t id, IncrementalDetokenizer& detokenizer,
                        std::vector<Delta>& parts) {
  const bool was_reasoning = parser_.in_reasoning();
  if (IsMark(id, detokenizer.tokenizer())) {
    PushMark(id, detokenizer);
  } else {
    parser_.Push(detokenizer.Push(id), Token::kPlain, events_);
  }
  if (was_reasoning || parser_.in_reasoning()) ++reasoning_tokens_;
  Collect(parts);
}

void AnswerReader::PushEnd(int32_t id, IncrementalDetokenizer& detokenizer,
                           std::vector<Delta>& parts) {
  const bool was_reasoning = parser_.in_reasoning();
  if (IsMark(id, detokenizer.tokenizer())) PushMark(id, detokenizer);
  if (was_reasoning) ++reasoning_tokens_;
  Collect(parts);
}

void AnswerReader::Finish(IncrementalDetokenizer& detokenizer, std::vector<Delta>& parts) {
  if (std::exchange(finished_, true)) return;
  parser_.Push(detokenizer.Flush(), Token::kPlain, events_);
  parser_.Finish(events_);
  Collect(parts);
}

void AnswerReader::KeepArguments(absl::string_view bytes) {
  std::string& arguments = calls_.back().arguments;
  kept_bytes_ -= arguments.capacity();
  arguments.append(bytes.data(), bytes.size());
  kept_bytes_ += arguments.capacity();
}

void AnswerReader::Collect(std::vector<Delta>& parts) {
  const auto part = [&parts](DeltaRank next) -> Delta& {
    return MayJoin(parts.back(), next) ? parts.back() : parts.emplace_back();
  };
  for (AnswerEvent& event : events_) {
    if (!event.broken.empty() && broken_.size() < kMostBroken) broken_.push_back(event.broken);
    switch (event.kind) {
      case AnswerEvent::Kind::kText:
        part(DeltaRank::kText).text += event.bytes;
        break;
      case AnswerEvent::Kind::kReasoning:
        part(DeltaRank::kReasoning).reasoning += event.bytes;
        break;
      case AnswerEvent::Kind::kCallBegin:
        part(DeltaRank::kCalls).calls.push_back({event.index, event.id, event.name, ""});
        calls_.push_back({std::move(event.id), std::move(event.name), "", /*broken=*/true});
        // A vector may have room for twice as many.
        kept_bytes_ += 2 * sizeof(ToolCall) + calls_.back().id.capacity() +
                       calls_.back().name.capacity() + calls_.back().arguments.capacity();
        break;
      case AnswerEvent::Kind::kArguments:
        KeepArguments(event.bytes);
        AddCallDelta({event.index, "", "", std::move(event.bytes)}, part(DeltaRank::kCalls));
        break;
      case AnswerEvent::Kind::kCallEnd:
        calls_.back().broken = !event.broken.empty();
        break;
      case AnswerEvent::Kind::kMark:
        break;
    }
  }
  events_.clear();
}

}  // namespace annulus
