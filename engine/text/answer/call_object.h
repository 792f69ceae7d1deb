#ifndef ANNULUS_ENGINE_TEXT_ANSWER_CALL_OBJECT_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_CALL_OBJECT_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/text/answer/json_scanner.h"

namespace annulus {

// Reads a call that is one JSON object, such as {"name": "search", "arguments": {..}}, byte by
// byte. The function's name is the member "name" or "tool_name", the arguments are the member
// "arguments" or "parameters", in either order; other members are skipped. Not thread-safe.
class CallObject {
 public:
  static constexpr size_t kMostName = 256;  // bytes of a name, as it is written

  // `name_first`: the first member must be the name, else the object is no call.
  explicit CallObject(bool name_first) : name_first_(name_first) {}

  enum class Result : uint8_t {
    kOther,      // a byte of neither
    kName,       // the byte ended the name
    kArguments,  // a byte of the arguments
    kEnd,        // the byte ended the object
    kBad,        // see why(); the object cannot be used any more
  };
  Result Push(char c);

  bool begun() const { return scanner_.begun(); }
  bool in_string() const { return scanner_.in_string(); }
  // Empty until it was read.
  const std::string& name() const { return name_; }
  bool has_arguments() const { return arguments_ != Arguments::kNone; }
  // What is wrong with it, for people. Empty: it does not look like a call.
  const char* why() const { return why_; }

 private:
  enum class Member : uint8_t { kOther, kName, kArguments };
  enum class Arguments : uint8_t { kNone, kOpen, kRead };

  Result Bad(const char* why);
  Result BeginMember(char c);
  Result EndName();

  const bool name_first_;
  JsonScanner scanner_;
  Member member_ = Member::kOther;
  bool first_ = true;  // no member was read yet
  std::string key_;
  std::string written_name_;  // with its quotes and escapes
  std::string name_;
  Arguments arguments_ = Arguments::kNone;
  const char* why_ = "";
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_CALL_OBJECT_H_
