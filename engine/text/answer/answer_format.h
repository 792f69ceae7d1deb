#ifndef ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_FORMAT_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_FORMAT_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/string_view.h"

namespace annulus {

// How the models of one family write reasoning and calls of tools, as data: the states of the one
// machine that reads them all (AnswerParser), and the marks that lead from state to state.

// What the bytes of a state are.
enum class AnswerPart : uint8_t {
  kText,       // of the answer
  kReasoning,  // of what the model thinks before it
  kHeader,     // words that say what comes next: see AnswerFamily::routes
  kSpace,      // white space alone
  kName,       // of the function; if there are none, an earlier name stays
  kId,         // of the call
  kArguments,  // a JSON object: the arguments
  kMarked,     // a MarkedObject: the arguments; an exit to itself is the mark of its texts
  kCall,       // a JSON object: the whole call, see CallObject
  kBareCall,   // a JSON object: a call if it begins with the function's name
  kKey,        // the name of one argument
  kValue,      // its value: text, or JSON if its schema allows no text
};

// A mark that ends a state.
struct AnswerExit {
  enum Flag : uint8_t {
    kLine = 1,   // as text, a mark only at the start of a line, or behind another mark
    kStart = 2,  // as text, a mark only at the start of the answer or behind the reasoning
    kKeep = 4,   // the mark's bytes are those of the next state
    kEnds = 8,   // the call is complete
    kCall = 16,  // opens a call: a mark only if the request has tools
  };
  absl::string_view mark;
  // The state's name. "route": by the header, see AnswerFamily::routes.
  absl::string_view next;
  uint8_t flags = 0;
};

struct AnswerState {
  absl::string_view name;
  AnswerPart part = AnswerPart::kText;
  // Where it goes on when the object is complete; for kSpace, with any other byte (empty: that
  // breaks the call).
  absl::string_view then = {};
  std::vector<AnswerExit> exits = {};
};

// The state "text" must exist, and at most one state is kReasoning. A mark that may stand anywhere
// in text, a name or a value has its first byte only once, so a search for it never goes back.
struct AnswerFamily {
  absl::string_view name;
  std::vector<AnswerState> states;
  // How its templates are told from others: one that has all of these is of the first such family.
  std::vector<absl::string_view> needles = {};
  absl::string_view start = "text";  // the state at the start of an answer
  bool tagged = false;               // arguments are pairs of kKey and kValue
  bool trims = false;                // a line feed at each end of a value is no part of it
  bool text_arguments = false;       // its templates want arguments as a text of JSON
  bool id_names = false;             // a name is written as functions.NAME:NUMBER, and is the id
  // Members of a kCall object as its templates write them; `call_id` may be empty.
  absl::string_view call_id = {};
  absl::string_view call_name = "name";
  absl::string_view call_arguments = "arguments";
  // A word that may stand in the place of the name, which then comes in the next kName.
  absl::string_view kind_word = {};
  // Headers with their marks, as its templates write them; NAME stands for the function.
  std::vector<absl::string_view> headers = {};
  // Where "route" leads: the first row whose words the header has. Behind "to=" stands the
  // function.
  std::vector<std::pair<absl::string_view, absl::string_view>> routes = {};
};

// All families, in the order in which templates are compared with them.
const std::vector<AnswerFamily>& AnswerFamilies();

// A family, bound to a tokenizer. Immutable and thread-safe.
class AnswerFormat {
 public:
  // `is_token`: whether the tokenizer has a control token (Tokenizer::IsControl) with this text.
  // Such a mark is recognised by its token alone, others by their text. Null if no family has the
  // name.
  static std::shared_ptr<const AnswerFormat> Make(
      absl::string_view name, absl::FunctionRef<bool(absl::string_view mark)> is_token);
  // The name of the family that a chat template is of; empty if it is of none.
  static absl::string_view Recognise(absl::string_view chat_template);

  struct Exit {
    std::string mark;
    int next = 0;  // kRoute: by the header
    uint8_t flags = 0;
    bool token = false;   // its token alone is the mark
    bool thinks = false;  // it opens reasoning, before which a word may stand
  };
  static constexpr int kRoute = -1;
  static constexpr int kNone = -2;
  struct State {
    AnswerPart part = AnswerPart::kText;
    int then = kNone;
    std::vector<Exit> exits;
  };

  const AnswerFamily& family() const { return family_; }
  const State& state(int index) const { return states_[static_cast<size_t>(index)]; }
  int start() const { return start_; }
  int text() const { return text_; }
  int reasoning() const { return reasoning_; }  // kNone: the family does not think
  // The state that a header leads to.
  int Route(absl::string_view header) const;

  // The mark of texts in a state that is kMarked.
  static const Exit& MarkOfTexts(const State& state) { return state.exits.front(); }
  // Whether a text of these bytes is a mark of the family.
  bool HasMark(absl::string_view bytes) const;
  // The mark that ends reasoning; empty if the family does not think.
  const std::string& reasoning_end() const { return reasoning_end_; }
  // Whether a prompt ends with an open block of reasoning, so that the answer begins inside it.
  bool OpensReasoning(absl::string_view prompt) const;
  // Whether a text ends inside a block of reasoning that it begins, perhaps with words in it.
  bool EndsInReasoning(absl::string_view text) const;
  // Whether it ends behind such a block, so that the answer does not think.
  bool ClosesReasoning(absl::string_view prompt) const;

 private:
  AnswerFormat(const AnswerFamily& family,
               absl::FunctionRef<bool(absl::string_view mark)> is_token);
  int IndexOf(absl::string_view name) const;

  const AnswerFamily& family_;
  std::vector<State> states_;
  int start_ = 0;
  int text_ = 0;
  int reasoning_ = kNone;
  std::vector<std::string> reasoning_begins_;
  std::string reasoning_end_;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_FORMAT_H_
