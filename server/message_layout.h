#ifndef ANNULUS_SERVER_MESSAGE_LAYOUT_H_
#define ANNULUS_SERVER_MESSAGE_LAYOUT_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/count_limits.h"

namespace annulus {

struct MessageLayout;

// What a field of a message becomes in memory.
struct FieldLayout {
  enum class Kind : uint8_t { kNumber, kText, kMessage, kMap };

  int number = 0;
  int index = 0;  // in its message
  Kind kind = Kind::kNumber;
  bool repeated = false;
  google::protobuf::internal::WireFormatLite::WireType wire_type{};  // of one value
  size_t element_bytes = 0;                // of a number; of a map's entry: key, value and links
  const MessageLayout* message = nullptr;  // of a message, and of a map's entry
  const CountLimit* limit = nullptr;
  std::string name;
};

// What an empty message takes, and its fields in the order of their numbers.
struct MessageLayout {
  size_t object_bytes = 0;
  std::vector<FieldLayout> fields;

  // Null for a field that the message does not have.
  const FieldLayout* Find(int number) const;
};

// The layout of a generated message; made once, and kept to the end of the process. Thread-safe.
const MessageLayout& LayoutOf(const google::protobuf::Descriptor& descriptor);

}  // namespace annulus

#endif  // ANNULUS_SERVER_MESSAGE_LAYOUT_H_
