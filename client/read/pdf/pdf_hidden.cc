#include "client/read/pdf/pdf_hidden.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/string_view.h"

namespace annulus::client {
namespace {

constexpr int kInvisible = 3;

// Walks the operators of the content streams of one page.
class ContentWalker {
 public:
  // Empties invisible strings between two offsets of `text`.
  void Walk(std::string* text, size_t begin, size_t end) {
    text_ = text;
    at_ = begin;
    end_ = end;
    while (at_ < end_) Token();
  }

  int passages() const { return passages_; }

 private:
  char Here() const { return (*text_)[at_]; }

  void Token() {
    const char c = Here();
    if (absl::ascii_isspace(static_cast<unsigned char>(c)) || c == '\0') {
      ++at_;
    } else if (c == '%') {
      while (at_ < end_ && Here() != '\n' && Here() != '\r') ++at_;
    } else if (c == '(') {
      LiteralString();
    } else if (c == '<' && at_ + 1 < end_ && (*text_)[at_ + 1] != '<') {
      HexString();
    } else if (absl::StrContains("<>[]{}/)", c)) {
      ++at_;
    } else {
      Word();
    }
  }

  void LiteralString() {
    const size_t begin = at_;
    int depth = 0;
    do {
      if (Here() == '\\') {
        ++at_;
      } else if (Here() == '(') {
        ++depth;
      } else if (Here() == ')') {
        --depth;
      }
      ++at_;
    } while (at_ < end_ && depth > 0);
    strings_.emplace_back(begin, std::min(at_, end_));
  }

  void HexString() {
    const size_t begin = at_;
    while (at_ < end_ && Here() != '>') ++at_;
    ++at_;
    strings_.emplace_back(begin, std::min(at_, end_));
  }

  void Word() {
    const size_t begin = at_;
    while (at_ < end_ && !absl::ascii_isspace(static_cast<unsigned char>(Here())) &&
           !absl::StrContains("()<>[]{}/%", Here())) {
      ++at_;
    }
    const absl::string_view word = absl::string_view(*text_).substr(begin, at_ - begin);
    double number = 0;
    if (absl::SimpleAtod(word, &number)) {
      number_ = static_cast<int>(std::clamp(number, -1.0, 100.0));
      return;
    }
    Operator(word);
    strings_.clear();
  }

  void Operator(absl::string_view name) {
    constexpr size_t kDeepest = 1000;
    if (name == "Tr") {
      mode_ = number_;
    } else if (name == "q") {
      if (saved_.size() < kDeepest) saved_.push_back(mode_);
    } else if (name == "Q") {
      if (!saved_.empty()) mode_ = saved_.back(), saved_.pop_back();
    } else if (name == "ID") {
      // The bytes of a picture.
      const size_t stop = text_->find("EI", at_);
      at_ = stop == std::string::npos ? end_ : std::min(stop + 2, end_);
    } else if (name == "Tj" || name == "TJ" || name == "'" || name == "\"") {
      if (mode_ == kInvisible) Empty();
      was_invisible_ = mode_ == kInvisible;
    }
  }

  void Empty() {
    if (strings_.empty()) return;
    passages_ += was_invisible_ ? 0 : 1;
    for (const auto& [begin, end] : strings_) {
      if (end - begin < 2) continue;
      // "(text)" becomes "()    ", so that no offset changes.
      (*text_)[begin + 1] = (*text_)[begin] == '(' ? ')' : '>';
      std::fill(text_->begin() + static_cast<std::ptrdiff_t>(begin) + 2,
                text_->begin() + static_cast<std::ptrdiff_t>(end), ' ');
    }
  }

  std::string* text_ = nullptr;
  size_t at_ = 0;
  size_t end_ = 0;
  std::vector<std::pair<size_t, size_t>> strings_;  // operands, by offset
  std::vector<int> saved_;                          // modes that q has saved
  int number_ = 0;                                  // the last operand that is one
  int mode_ = 0;
  bool was_invisible_ = false;
  int passages_ = 0;
};

}  // namespace

int HideInvisiblePdfText(const std::set<int>& keep, std::string* qdf) {
  constexpr absl::string_view kMark = "\n%% Contents for page ";
  constexpr absl::string_view kBegin = "\nstream\n", kEnd = "\nendstream";
  // Its bytes change, its length does not.
  const absl::string_view view = *qdf;
  int passages = 0, walked = 0;
  ContentWalker walker;
  for (size_t at = view.find(kMark); at != absl::string_view::npos; at = view.find(kMark, at)) {
    at += kMark.size();
    int page = 0;
    const size_t line = std::min(view.find('\n', at), view.size());
    const bool numbered = absl::SimpleAtoi(view.substr(at, line - at), &page);
    const size_t begin = view.find(kBegin, at);
    if (begin == absl::string_view::npos) break;
    const size_t end = view.find(kEnd, begin);
    if (end == absl::string_view::npos) break;
    // A page may have several streams, which are one to a reader.
    if (page != walked) {
      passages += walker.passages();
      walker = ContentWalker();
      walked = page;
    }
    if (numbered && keep.count(page) == 0) walker.Walk(qdf, begin + kBegin.size(), end);
    at = end;
  }
  return passages + walker.passages();
}

}  // namespace annulus::client
