#ifndef ANNULUS_SERVER_WORK_MESSAGE_LAYOUT_H_
#define ANNULUS_SERVER_WORK_MESSAGE_LAYOUT_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/wire_format_lite.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "server/work/count_limits.h"

namespace annulus::server {

struct MessageLayout;

// The size of a message's field in memory.
struct FieldLayout {
  enum class Kind : uint8_t { kNumber, kText, kMessage, kMap };

  int number = 0;
  int index = 0;  // within its message
  Kind kind = Kind::kNumber;
  bool repeated = false;
  google::protobuf::internal::WireFormatLite::WireType wire_type{};  // of one value
  size_t element_bytes = 0;                // of a number, a message, or a map entry with its links
  const MessageLayout* message = nullptr;  // layout of a message or a map entry
  const CountLimit* limit = nullptr;
  std::string name;
};

// The size of an empty message, and its fields, sorted by number.
struct MessageLayout {
  size_t object_bytes = 0;
  std::vector<FieldLayout> fields;

  // Null for a field that the message does not have.
  const FieldLayout* Find(int number) const;
};

// Returns the layout of a generated message. It is computed once and lives until the process ends.
// Thread-safe.
const MessageLayout& LayoutOf(const google::protobuf::Descriptor& descriptor);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_MESSAGE_LAYOUT_H_
