#ifndef ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_EVENT_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_EVENT_H_

#include <cstddef>
#include <cstdint>
#include <string>

namespace annulus {

// A part of an answer. Events stand in the order of the answer, and their `source`s add up to its
// bytes: each byte is in exactly one event.
struct AnswerEvent {
  enum class Kind : uint8_t {
    kText,       // `bytes` of the answer
    kReasoning,  // `bytes` of what the model thinks before it
    kMark,       // bytes that only separate the others; `bytes` is empty
    kCallBegin,  // a call of `name`, as `id`
    kArguments,  // `bytes` of the call's arguments
    kCallEnd,    // the call ends; if it is complete, its arguments together are a JSON object
  };
  Kind kind = Kind::kText;
  std::string bytes = {};
  size_t source = 0;  // how many bytes of the answer it stands for
  int32_t index = 0;  // of a call, counted from 0
  std::string id = {};
  std::string name = {};
  // Of kText: why this text, which looked like a call, is none. Of kCallEnd: why the arguments are
  // incomplete. One line for people, in UTF-8; empty: nothing is wrong.
  std::string broken = {};
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_ANSWER_EVENT_H_
