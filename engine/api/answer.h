#ifndef ANNULUS_ENGINE_API_ANSWER_H_
#define ANNULUS_ENGINE_API_ANSWER_H_

// How an answer is parted into text, reasoning and calls of tools, and the calls.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/memory_grant.h"

namespace annulus {

class AnswerFormat;  // engine/text/answer
class AnswerTools;

// How the answer to a rendered conversation is read. Default: all of it is text.
struct AnswerReading {
  std::shared_ptr<const AnswerFormat> format;  // null: all of it is text
  std::shared_ptr<const AnswerTools> tools;    // null: nothing is a call
  size_t tools_bytes = 0;                      // heap bytes that `tools` takes, at most
  bool strict_tools = false;                   // some tool's arguments must satisfy its schema
  bool reasoning = true;                       // false: reasoning is text, with its marks
  bool in_reasoning = false;                   // the prompt has opened a block of reasoning
  bool may_think = false;                      // the answer may open one
  std::vector<int32_t> reasoning_end;          // the ids of the mark that ends reasoning
  bool one_call = false;                       // the answer ends behind its first call
  uint64_t id_salt = 0;                        // decides the ids of calls
  // Asked for what reading takes above kOwnBytes: the answer's calls, which are kept until it ends,
  // and what is held back of one that begins. The engine's thread uses it; an error ends the
  // request. Null: all is allowed.
  std::shared_ptr<MemoryGrant> memory;
  static constexpr size_t kOwnBytes = size_t{32} << 10;
};

// The next part of a call.
struct ToolCallDelta {
  int32_t index = 0;      // of the call, counted from 0
  std::string id;         // in the call's first part
  std::string name;       // likewise
  std::string arguments;  // JSON, as it grows

  bool operator==(const ToolCallDelta&) const = default;
};

// A call that the model wants made.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // a JSON object; of a call that breaks off, its beginning
  bool broken = false;    // it breaks off

  bool operator==(const ToolCall&) const = default;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_API_ANSWER_H_
