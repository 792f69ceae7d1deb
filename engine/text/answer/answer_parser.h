#ifndef ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_PARSER_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_PARSER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "engine/text/answer/answer_event.h"
#include "engine/text/answer/answer_format.h"
#include "engine/text/answer/answer_tools.h"
#include "engine/text/answer/call_object.h"
#include "engine/text/answer/event_writer.h"
#include "engine/text/answer/json_scanner.h"
#include "engine/text/answer/marked_object.h"
#include "engine/text/answer/tagged_value.h"

namespace annulus {

// Parts an answer, as it arrives, into text, reasoning and calls of tools.
//
// - Where a mark of the family is a token of the tokenizer, only that token is the mark. Otherwise
// its
//   text is, at the start of a line; inside JSON strings nothing is a mark but a special token.
// - A call begins when its name and the first byte of its arguments are known, and its name is one
// of
//   the request's tools. Until then its bytes are held back, at most kMostHeld. If they turn out to
//   be no call, they come as text, with a reason.
// - A call that breaks later ends with a reason; the rest is text again.
// - Up to kMostSpace bytes of white space beside a mark belong to the mark.
//
// The events do not depend on how the bytes are cut, except for how they are cut themselves. Takes
// time linear in the bytes, and memory for what is held back. Pieces of whole UTF-8 characters give
// events of whole characters. Not thread-safe; one instance for each answer.
class AnswerParser {
 public:
  static constexpr size_t kMostHeld = size_t{1} << 20;
  static constexpr size_t kMostSpace = 64;
  static constexpr size_t kMostName = 256;  // bytes of a name, an id, an argument's name, a header

  struct Options {
    bool reasoning = true;      // false: reasoning is text, with its marks
    bool in_reasoning = false;  // the prompt has opened a block of reasoning
    uint64_t salt = 0;          // decides the ids of calls to which the model gives none
  };
  // `tools` null: nothing is a call.
  AnswerParser(std::shared_ptr<const AnswerFormat> format, std::shared_ptr<const AnswerTools> tools,
               const Options& options);

  enum class Token : uint8_t {
    kPlain,    // text, or a part of a token
    kMarkup,   // a control token whose text people see, unless it is a mark
    kSpecial,  // a control token whose text people never see, unless it is part of a broken call
  };
  // Takes the next bytes and appends what they complete to `out`. A control token is one piece.
  void Push(absl::string_view bytes, Token kind, std::vector<AnswerEvent>& out);
  // Ends the answer. Must be the last call.
  void Finish(std::vector<AnswerEvent>& out);

  // Whether the next byte would be reasoning.
  bool in_reasoning() const { return reasoning_ && part() == AnswerPart::kReasoning; }
  // Calls that have ended.
  int32_t calls() const { return events_.calls(); }
  const AnswerFormat& format() const { return *format_; }
  // Heap bytes of what is held back. The rest is bounded by a few times kMostName.
  size_t held_bytes() const { return held_.capacity() + pairs_.held().capacity(); }

 private:
  using Exit = AnswerFormat::Exit;

  AnswerPart part() const { return format_->state(state_).part; }
  bool in_prose() const { return part() == AnswerPart::kText || part() == AnswerPart::kReasoning; }

  void Feed(char c);
  void FeedControl(absl::string_view bytes, Token kind);
  void ReleasePending();
  void SinkAll(absl::string_view bytes);
  void Reread(bool ends);
  void Sink(char c);
  void SinkProse(char c);
  void SinkSpace(char c);
  void SinkWord(char c);
  void SinkArguments(char c);
  void SinkMarked(char c);
  bool TakeMarked(const MarkedObject::Piece& piece, size_t source);
  void SinkCall(char c);

  bool Enabled(const Exit& exit) const;
  void Take(const Exit& exit, absl::string_view mark);
  void Go(int state);
  void Route();

  void Structure(absl::string_view bytes);
  void FlushSpace();
  bool BeginCall() { return BeginCall(held_.size()); }
  bool BeginCall(size_t source);
  void EndHeldArguments();
  void EndCall(absl::string_view broken);
  void Break(absl::string_view why);
  void EmitText(absl::string_view broken);

  const std::shared_ptr<const AnswerFormat> format_;
  const std::shared_ptr<const AnswerTools> tools_;
  const bool reasoning_;
  const uint64_t salt_;
  EventWriter events_;

  int state_;
  std::string pending_;       // a beginning of one of the state's marks
  bool line_start_ = true;    // in prose: a line, or what follows a mark, begins here
  bool answer_start_ = true;  // in prose: no text came yet since the reasoning
  std::string space_;         // in prose: white space that may belong to a mark
  bool after_mark_ = false;   // in prose: a mark stands before space_
  bool long_space_ = false;   // in prose: in white space that is too long for that
  std::string held_;          // bytes since the last event, outside of prose
  bool announced_ = false;    // a call was opened, or its name begun, and has not ended
  bool call_open_ = false;    // since kCallBegin
  bool has_marks_ = false;    // any mark was taken
  char previous_ = '\0';      // the byte before the one that is taken now
  std::string word_;          // a header, a name, an id or a key so far
  std::string name_;
  std::string id_;
  JsonScanner scanner_;               // in kArguments
  MarkedObject marked_;               // in kMarked
  std::optional<CallObject> object_;  // in kCall
  size_t arguments_begin_ = 0;        // in held_, of arguments that stand before the name
  size_t arguments_end_ = 0;          // 0: there are none
  TaggedArguments pairs_;             // of a tagged family
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_PARSER_H_
