#ifndef ANNULUS_ENGINE_API_SENTENCE_ENDS_H_
#define ANNULUS_ENGINE_API_SENTENCE_ENDS_H_

#include <cstdint>

namespace annulus {

// Finds where the sentences of an answer's text end: SentenceEvidence::end. The engine and whoever
// splits an answer at its sentences must agree on it, so the rule stands here.
//
// A sentence ends behind ". ", "! ", "? " or a line end if it has at least kShortest bytes by then,
// and behind a full stop of Chinese or Japanese. Reasoning, a call of a tool and the end of the
// answer also end it: the caller knows these, and calls Restart.
//
// Not thread-safe.
class SentenceEnds {
 public:
  static constexpr int64_t kShortest = 12;

  // Takes the next byte of the text. Returns whether the sentence ends with it; the next byte then
  // begins another one.
  bool Push(char byte) {
    ++length_;
    last_ = last_ << 8 | static_cast<unsigned char>(byte);
    const bool ends = EndsHere();
    if (ends) Restart();
    return ends;
  }
  // The sentence has ended; the next byte begins another one.
  void Restart() {
    length_ = 0;
    last_ = 0;
  }

 private:
  bool EndsHere() const {
    const uint32_t mark = last_ & 0xFFFFFF;
    if (mark == 0xE38082 || mark == 0xEFBC81 || mark == 0xEFBC9F) return true;  // U+3002 FF01 FF1F
    if (length_ < kShortest) return false;
    const uint32_t byte = last_ & 0xFF;
    if (byte == '\n') return true;
    if (byte != ' ' && byte != '\t' && byte != '\r') return false;
    const uint32_t before = last_ >> 8 & 0xFF;
    return before == '.' || before == '!' || before == '?';
  }

  int64_t length_ = 0;  // bytes of the sentence so far
  uint32_t last_ = 0;   // the last four of them
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_SENTENCE_ENDS_H_
