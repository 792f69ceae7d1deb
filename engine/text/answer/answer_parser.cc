#include "engine/text/answer/answer_parser.h"

#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "engine/text/answer/call_id.h"
#include "kernels/base/check.h"

namespace annulus {
namespace {

using Kind = AnswerEvent::Kind;

constexpr char kCutOff[] = "the answer ends inside of the call";

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

bool IsWord(AnswerPart part) {
  return part == AnswerPart::kHeader || part == AnswerPart::kName || part == AnswerPart::kId ||
         part == AnswerPart::kKey;
}

bool IsCall(AnswerPart part) { return part == AnswerPart::kCall || part == AnswerPart::kBareCall; }

std::string Stripped(absl::string_view text) {
  return std::string(absl::StripAsciiWhitespace(text));
}

// Text of a model in a message for people.
std::string Quoted(absl::string_view text) {
  constexpr size_t kMost = 64;
  const bool longer = text.size() > kMost;
  return absl::StrCat("\"", absl::CHexEscape(text.substr(0, kMost)), longer ? "..\"" : "\"");
}

}  // namespace

AnswerParser::AnswerParser(std::shared_ptr<const AnswerFormat> format,
                           std::shared_ptr<const AnswerTools> tools, const Options& options)
    : format_(std::move(format)),
      tools_(std::move(tools)),
      reasoning_(options.reasoning && format_->reasoning() != AnswerFormat::kNone),
      salt_(options.salt),
      state_(format_->start()) {
  if (!options.in_reasoning || !reasoning_) return;
  state_ = format_->reasoning();
  after_mark_ = true;
}

void AnswerParser::Push(absl::string_view bytes, Token kind, std::vector<AnswerEvent>& out) {
  events_.Begin(out);
  if (kind != Token::kPlain) {
    FeedControl(bytes, kind);
  } else {
    for (const char c : bytes) {
      Feed(c);
      previous_ = c;
    }
  }
  events_.End();
}

// Whether the exit's text may begin here. Tokens need only the tools.
bool AnswerParser::Enabled(const Exit& exit) const {
  if ((exit.flags & AnswerExit::kCall) != 0 && tools_ == nullptr) return false;
  return reasoning_ || !exit.thinks;
}

void AnswerParser::Feed(char c) {
  const AnswerFormat::State& state = format_->state(state_);
  bool goes_on = false;
  for (const Exit& exit : state.exits) {
    if (exit.token || exit.mark.size() <= pending_.size() || exit.mark[pending_.size()] != c ||
        !absl::StartsWith(exit.mark, pending_) || !Enabled(exit)) {
      continue;
    }
    // The places below do not change while a mark is pending.
    if ((exit.flags & AnswerExit::kLine) != 0 && !line_start_) continue;
    if ((exit.flags & AnswerExit::kStart) != 0 && !answer_start_) continue;
    // White space ends a word only once there is one.
    if (IsWord(state.part) && IsSpace(c) && word_.empty()) continue;
    if (exit.mark.size() == pending_.size() + 1) {
      pending_.clear();
      if (state.part != AnswerPart::kValue || !pairs_.KeepsMark()) return Take(exit, exit.mark);
      return SinkAll(exit.mark);
    }
    goes_on = true;
  }
  if (goes_on) {
    pending_.push_back(c);
  } else if (pending_.empty()) {
    Sink(c);
  } else {
    ReleasePending();
    Feed(c);
  }
}

// What was pending is no mark. Its first byte begins none later either: see AnswerFamily.
void AnswerParser::ReleasePending() { SinkAll(std::exchange(pending_, "")); }

// Bytes of this state that begin no mark; some may end it, for other reasons.
void AnswerParser::SinkAll(absl::string_view bytes) {
  const int state = state_;
  for (const char c : bytes) state_ == state&& pending_.empty() ? Sink(c) : Feed(c);
}

// What stood behind a mark in a value was no JSON string, so that it is the mark that it looks
// like.
void AnswerParser::Reread(bool ends) {
  if (part() != AnswerPart::kValue) return;
  std::string rest = pairs_.TakeBack(ends);
  if (rest.empty()) return;
  rest += std::exchange(pending_, "");
  for (const char c : rest) {
    Feed(c);
    previous_ = c;
  }
}

void AnswerParser::FeedControl(absl::string_view bytes, Token kind) {
  const bool in_string =
      part() == AnswerPart::kArguments ? scanner_.in_string()
      : part() == AnswerPart::kMarked
          ? marked_.in_text() && bytes != AnswerFormat::MarkOfTexts(format_->state(state_)).mark
          : IsCall(part()) && object_->in_string();
  if (kind == Token::kMarkup && in_string) {
    for (const char c : bytes) Sink(c);
    return;
  }
  if (kind == Token::kSpecial) Reread(/*ends=*/true);
  // What breaks a call may begin a mark of text, which is none either.
  while (!pending_.empty()) ReleasePending();
  for (const Exit& exit : format_->state(state_).exits) {
    if (exit.token && exit.mark == bytes && Enabled(exit)) {
      Take(exit, bytes);
      return;
    }
  }
  const bool is_mark = format_->HasMark(bytes);
  if (in_prose()) {
    FlushSpace();
    if (kind == Token::kSpecial) {
      events_.Add(Kind::kMark, "", bytes.size());
    } else {
      for (const char c : bytes) SinkProse(c);
    }
  } else if (kind == Token::kSpecial && !is_mark && part() != AnswerPart::kValue) {
    Structure(bytes);  // such as a mark of the end of the text; what a value holds comes before it
  } else if (part() == AnswerPart::kValue && kind == Token::kMarkup) {
    SinkAll(bytes);
  } else if (format_->state(state_).then != AnswerFormat::kNone && part() == AnswerPart::kSpace) {
    Go(format_->state(state_).then);
    FeedControl(bytes, kind);
  } else {
    Break(absl::StrCat(Quoted(bytes), " stands where a call does not go on so"));
    FeedControl(bytes, kind);
  }
}

void AnswerParser::Sink(char c) {
  switch (part()) {
    case AnswerPart::kText:
    case AnswerPart::kReasoning:
      return SinkProse(c);
    case AnswerPart::kSpace:
      return SinkSpace(c);
    case AnswerPart::kHeader:
    case AnswerPart::kName:
    case AnswerPart::kId:
    case AnswerPart::kKey:
      return SinkWord(c);
    case AnswerPart::kArguments:
      return SinkArguments(c);
    case AnswerPart::kMarked:
      return SinkMarked(c);
    case AnswerPart::kCall:
    case AnswerPart::kBareCall:
      return SinkCall(c);
    case AnswerPart::kValue: {
      const TaggedArguments::Piece piece = pairs_.Push(c);
      events_.Add(Kind::kArguments, piece.json, piece.source);
      Reread(/*ends=*/pairs_.held().size() > TaggedArguments::kMostJson);
      if (pairs_.held().size() > TaggedArguments::kMostJson) {
        Break("an argument is longer than 1 MiB");
      }
      return;
    }
  }
}

void AnswerParser::SinkProse(char c) {
  line_start_ = c == '\n';
  if (IsSpace(c) && !long_space_) {
    space_.push_back(c);
    if (space_.size() < kMostSpace) return;
    FlushSpace();
    long_space_ = true;
    return;
  }
  if (!IsSpace(c)) {
    FlushSpace();
    after_mark_ = false;
    long_space_ = false;
    answer_start_ = false;
  }
  events_.Add(in_reasoning() ? Kind::kReasoning : Kind::kText, absl::string_view(&c, 1), 1);
}

void AnswerParser::SinkSpace(char c) {
  if (IsSpace(c)) return Structure(absl::string_view(&c, 1));
  const int then = format_->state(state_).then;
  if (then == AnswerFormat::kNone) {
    Break(absl::StrCat(Quoted(absl::string_view(&c, 1)), " stands where a call does not go on so"));
  } else {
    Go(then);
  }
  Feed(c);
}

void AnswerParser::SinkWord(char c) {
  if (!IsSpace(c) && part() != AnswerPart::kHeader) announced_ = true;
  if (!word_.empty() || !IsSpace(c)) word_.push_back(c);
  Structure(absl::string_view(&c, 1));
  if (word_.size() > kMostName) {
    Break(part() == AnswerPart::kHeader && !has_marks_
              ? ""
              : "a name in the call is longer than 256 bytes");
  }
}

void AnswerParser::SinkArguments(char c) {
  if (!scanner_.begun()) {
    if (IsSpace(c)) return Structure(absl::string_view(&c, 1));
    if (c != '{') {
      Break("the arguments are not a JSON object");
      return Feed(c);
    }
    if (!BeginCall()) return Feed(c);
  }
  const JsonScanner::Result result = scanner_.Push(c);
  if (result == JsonScanner::Result::kBad) {
    Break("the arguments are not valid JSON");
    return Feed(c);
  }
  events_.Add(Kind::kArguments, absl::string_view(&c, 1), 1);
  if (result == JsonScanner::Result::kMore) return;
  EndCall("");
  Go(format_->state(state_).then);
}

// Appends what a byte or a mark of kMarked gives; false if the call breaks there.
bool AnswerParser::TakeMarked(const MarkedObject::Piece& piece, size_t source) {
  if (piece.result == MarkedObject::Result::kBad) {
    Break("the arguments are not as the model's family writes them");
    return false;
  }
  events_.Add(Kind::kArguments, piece.json, source);
  if (piece.result == MarkedObject::Result::kMore) return true;
  EndCall("");
  Go(format_->state(state_).then);
  return true;
}

void AnswerParser::SinkMarked(char c) {
  if (!marked_.begun() && !BeginCall()) return Feed(c);
  if (!TakeMarked(marked_.Push(c), 1)) Feed(c);
}

void AnswerParser::SinkCall(char c) {
  const absl::string_view byte(&c, 1);
  if (!object_->begun() && IsSpace(c)) return Structure(byte);
  if (!object_->begun()) announced_ = true;
  const bool had_arguments = object_->has_arguments();
  const CallObject::Result result = object_->Push(c);
  if (result == CallObject::Result::kBad) {
    Break(object_->why());
    return Feed(c);
  }
  if (result == CallObject::Result::kArguments) {
    const bool begins = !had_arguments && !object_->name().empty();
    if (begins && !BeginCall()) return Feed(c);
    if (call_open_) return events_.Add(Kind::kArguments, byte, 1);
    if (!had_arguments) arguments_begin_ = held_.size();
    arguments_end_ = held_.size() + 1;
  }
  Structure(byte);
  if (in_prose()) return;  // too much was held back
  if (result == CallObject::Result::kName) {
    name_ = object_->name();
    if (arguments_end_ > 0) EndHeldArguments();
  } else if (result == CallObject::Result::kEnd) {
    if (!call_open_) {
      if (!BeginCall()) return;
      events_.Add(Kind::kArguments, "{}", 0);
    }
    EndCall("");
    Go(format_->state(state_).then);
  }
}

// The name has come behind the arguments.
void AnswerParser::EndHeldArguments() {
  const std::string held = held_;
  if (!BeginCall(arguments_begin_)) return;
  events_.Add(Kind::kArguments,
              absl::string_view(held).substr(arguments_begin_, arguments_end_ - arguments_begin_),
              arguments_end_ - arguments_begin_);
  events_.Add(Kind::kMark, "", held.size() - arguments_end_);
  arguments_end_ = 0;
}

void AnswerParser::Take(const Exit& exit, absl::string_view mark) {
  const AnswerPart from = part();
  if (from == AnswerPart::kMarked) {
    if (TakeMarked(marked_.PushMark(), mark.size())) return;
    for (const char c : mark) Sink(c);
    return;
  }
  const bool keep = (exit.flags & AnswerExit::kKeep) != 0;
  has_marks_ = true;
  if (in_prose()) {
    // White space before a mark belongs to it.
    held_ = std::exchange(space_, "");
    if (from == AnswerPart::kReasoning) answer_start_ = true;
    long_space_ = false;
    after_mark_ = false;
  }
  if (from == AnswerPart::kValue) {
    const TaggedArguments::Piece piece = pairs_.EndValue();
    events_.Add(Kind::kArguments, piece.json, piece.source);
  }
  if (!keep) Structure(mark);
  if (from == AnswerPart::kName && !word_.empty()) name_ = Stripped(word_);
  if (from == AnswerPart::kId) id_ = Stripped(word_);
  if (from == AnswerPart::kKey) {
    events_.Add(Kind::kArguments,
                pairs_.BeginValue(word_, tools_->IsText(name_, word_), format_->family().trims), 0);
  }
  if (from == AnswerPart::kName && format_->family().tagged) {
    if (!BeginCall()) return;
    events_.Add(Kind::kArguments, pairs_.Begin(), 0);
  }
  if ((exit.flags & AnswerExit::kEnds) != 0) EndCall("");
  if ((exit.flags & AnswerExit::kCall) != 0) announced_ = true;
  if (exit.next == AnswerFormat::kRoute) {
    Route();
  } else {
    Go(exit.next);
  }
  if (!keep) return;
  for (const char c : mark) Feed(c);
}

// The header is complete.
void AnswerParser::Route() {
  constexpr absl::string_view kTo = "to=";
  const std::string header = word_;
  const size_t to = absl::string_view(header).find(kTo);
  if (to != absl::string_view::npos) {
    absl::string_view name = absl::string_view(header).substr(to + kTo.size());
    name = name.substr(0, name.find(' '));
    name_ = std::string(absl::StripPrefix(name, "functions."));
  }
  Go(format_->Route(header));
  announced_ = part() == AnswerPart::kArguments;
}

void AnswerParser::Go(int state) {
  const bool same_header = part() == AnswerPart::kHeader && state == state_;
  state_ = state;
  if (same_header) {
    word_.push_back(' ');
  } else {
    word_.clear();
  }
  if (part() == AnswerPart::kArguments) scanner_ = JsonScanner();
  if (part() == AnswerPart::kMarked) marked_ = MarkedObject();
  if (IsCall(part())) {
    object_.emplace(/*name_first=*/part() == AnswerPart::kBareCall);
    arguments_end_ = 0;
  }
  if (!in_prose()) return;
  events_.Add(Kind::kMark, "", held_.size());
  held_.clear();
  announced_ = false;
  line_start_ = true;
  after_mark_ = true;
}

// Bytes that are no part of a text or of arguments.
void AnswerParser::Structure(absl::string_view bytes) {
  if (call_open_) return events_.Add(Kind::kMark, "", bytes.size());
  absl::StrAppend(&held_, bytes);
  if (held_.size() > kMostHeld) Break("the call has no name within 1 MiB");
}

void AnswerParser::FlushSpace() {
  if (space_.empty()) return;
  const std::string space = std::exchange(space_, "");
  const Kind kind = in_reasoning() ? Kind::kReasoning : Kind::kText;
  events_.Add(after_mark_ ? Kind::kMark : kind, after_mark_ ? "" : space, space.size());
  after_mark_ = false;
}

// `source`: EventWriter::BeginCall.
bool AnswerParser::BeginCall(size_t source) {
  std::string id = id_;
  if (format_->family().id_names) {
    id = name_;
    absl::string_view name = absl::StripPrefix(id, "functions.");
    name_ = std::string(name.substr(0, name.rfind(':')));
  }
  if (name_.empty()) {
    Break("the call has no name");
    return false;
  }
  if (tools_ == nullptr || !tools_->Has(name_)) {
    Break(absl::StrCat(Quoted(name_), " is not one of the request's tools"));
    return false;
  }
  events_.BeginCall(IsUsableCallId(id) ? std::move(id) : MakeCallId(salt_, calls()), name_, source);
  held_.clear();
  call_open_ = true;
  return true;
}

void AnswerParser::EndCall(absl::string_view broken) {
  if (format_->family().tagged && broken.empty()) {
    events_.Add(Kind::kArguments, TaggedArguments::End(), 0);
  }
  events_.EndCall(broken);
  call_open_ = false;
  announced_ = false;
  name_.clear();
  id_.clear();
}

// What was held back is no call, and what follows is text.
void AnswerParser::Break(absl::string_view why) {
  std::string reason(why);
  if (call_open_) {
    held_ = part() == AnswerPart::kValue ? pairs_.held() : "";
    EndCall(reason);
    reason.clear();
  }
  EmitText(reason);
  state_ = format_->text();
  name_.clear();
  id_.clear();
  announced_ = false;
  after_mark_ = false;
}

void AnswerParser::EmitText(absl::string_view broken) {
  line_start_ = (held_.empty() ? previous_ : held_.back()) == '\n';
  answer_start_ = answer_start_ && held_.empty();
  if (!held_.empty()) events_.AddHeld(std::exchange(held_, ""), broken);
}

void AnswerParser::Finish(std::vector<AnswerEvent>& out) {
  events_.Begin(out);
  Reread(/*ends=*/true);
  const std::string pending = std::exchange(pending_, "");
  if (in_prose()) {
    for (const char c : pending) SinkProse(c);
    FlushSpace();
  } else if (call_open_) {
    if (part() == AnswerPart::kValue || part() == AnswerPart::kMarked) {
      for (const char c : pending) Sink(c);
    } else {
      Structure(pending);
    }
    if (call_open_) Break(kCutOff);
  } else {
    held_ += pending;
    const bool words = part() == AnswerPart::kHeader && !has_marks_;
    if (announced_) {
      EmitText(kCutOff);
    } else if (words) {
      EmitText("");
    } else {
      events_.Add(Kind::kMark, "", held_.size());
    }
  }
  events_.End();
}

}  // namespace annulus
