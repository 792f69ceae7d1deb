#include "engine/text/answer/answer_format.h"

#include <algorithm>

#include "absl/memory/memory.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/strip.h"
#include "kernels/base/check.h"

namespace annulus {

using IsToken = absl::FunctionRef<bool(absl::string_view mark)>;

AnswerFormat::AnswerFormat(const AnswerFamily& family, IsToken is_token) : family_(family) {
  for (const AnswerState& row : family.states) {
    State state{row.part, row.then.empty() ? kNone : IndexOf(row.then), {}};
    for (const AnswerExit& exit : row.exits) {
      const int next = exit.next == "route" ? kRoute : IndexOf(exit.next);
      state.exits.push_back({std::string(exit.mark), next, exit.flags, is_token(exit.mark)});
    }
    states_.push_back(std::move(state));
  }
  start_ = IndexOf(family.start);
  text_ = IndexOf("text");
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].part == AnswerPart::kReasoning) reasoning_ = static_cast<int>(i);
  }
  if (reasoning_ == kNone) return;
  reasoning_end_ = state(reasoning_).exits.front().mark;
  const auto opens = [this](int next) {
    return next == reasoning_ ||
           (next >= 0 && state(next).part == AnswerPart::kSpace && state(next).then == reasoning_);
  };
  for (State& state : states_) {
    for (Exit& exit : state.exits) exit.thinks = opens(exit.next);
  }
  for (const Exit& exit : state(text_).exits) {
    if (exit.thinks) reasoning_begins_.push_back(exit.mark);
  }
}

int AnswerFormat::IndexOf(absl::string_view name) const {
  const auto& states = family_.states;
  const auto at = std::find_if(states.begin(), states.end(),
                               [name](const AnswerState& state) { return state.name == name; });
  ANNULUS_CHECK(at != states.end()) << family_.name << " has no state " << name;
  return static_cast<int>(at - states.begin());
}

std::shared_ptr<const AnswerFormat> AnswerFormat::Make(absl::string_view name, IsToken is_token) {
  for (const AnswerFamily& family : AnswerFamilies()) {
    if (family.name == name) return absl::WrapUnique(new AnswerFormat(family, is_token));
  }
  return nullptr;
}

absl::string_view AnswerFormat::Recognise(absl::string_view chat_template) {
  for (const AnswerFamily& family : AnswerFamilies()) {
    const auto has = [chat_template](absl::string_view needle) {
      return absl::StrContains(chat_template, needle);
    };
    const auto& needles = family.needles;
    if (!needles.empty() && std::all_of(needles.begin(), needles.end(), has)) return family.name;
  }
  return "";
}

int AnswerFormat::Route(absl::string_view header) const {
  for (const auto& [words, next] : family_.routes) {
    if (absl::StrContains(header, words)) return IndexOf(next);
  }
  return text_;
}

bool AnswerFormat::HasMark(absl::string_view bytes) const {
  for (const State& state : states_) {
    for (const Exit& exit : state.exits) {
      if (exit.mark == bytes) return true;
    }
  }
  return false;
}

bool AnswerFormat::OpensReasoning(absl::string_view prompt) const {
  const absl::string_view end = absl::StripTrailingAsciiWhitespace(prompt);
  return std::any_of(reasoning_begins_.begin(), reasoning_begins_.end(),
                     [end](const std::string& mark) { return absl::EndsWith(end, mark); });
}

bool AnswerFormat::EndsInReasoning(absl::string_view text) const {
  if (reasoning_ == kNone) return false;
  const size_t end = text.rfind(reasoning_end_);
  const absl::string_view rest = end == text.npos ? text : text.substr(end);
  return std::any_of(reasoning_begins_.begin(), reasoning_begins_.end(),
                     [rest](const std::string& mark) { return absl::StrContains(rest, mark); });
}

bool AnswerFormat::ClosesReasoning(absl::string_view prompt) const {
  return !reasoning_end_.empty() &&
         absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt), reasoning_end_);
}

}  // namespace annulus
