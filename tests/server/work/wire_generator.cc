#include "tests/server/work/wire_generator.h"

#include <google/protobuf/wire_format_lite.h>

#include <array>

namespace annulus::server {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::internal::WireFormatLite;

constexpr int kUnknownField = 900;

void AppendVarint(uint64_t value, std::string& out) {
  for (; value >= 128; value >>= 7) out.push_back(static_cast<char>(value | 128));
  out.push_back(static_cast<char>(value));
}

void AppendTag(int number, WireFormatLite::WireType type, std::string& out) {
  AppendVarint(static_cast<uint64_t>(number) << 3 | static_cast<uint64_t>(type), out);
}

void AppendDelimited(int number, const std::string& bytes, std::string& out) {
  AppendTag(number, WireFormatLite::WIRETYPE_LENGTH_DELIMITED, out);
  AppendVarint(bytes.size(), out);
  out += bytes;
}

WireFormatLite::WireType TypeOf(const FieldDescriptor& field) {
  return WireFormatLite::WireTypeForFieldType(static_cast<WireFormatLite::FieldType>(field.type()));
}

}  // namespace

std::string WireGenerator::Message(const Descriptor& type, size_t size) {
  std::string bytes;
  Fields(type, size, 0, bytes);
  return bytes;
}

// A run of one field after another, until `size` bytes are there.
void WireGenerator::Fields(const Descriptor& type, size_t size, int depth, std::string& out) {
  const size_t end = out.size() + size;
  do {
    const bool known = type.field_count() > 0 && Below(8) != 0;
    const FieldDescriptor* const field =
        known ? type.field(static_cast<int>(Below(static_cast<size_t>(type.field_count()))))
              : nullptr;
    const size_t runs = size_t{1} << Below(11);
    for (size_t run = 0; run < runs && out.size() < end; ++run) {
      if (field == nullptr) {
        Unknown(Below(40), depth, out);
      } else {
        Known(*field, Below(4) == 0 ? end - out.size() : Below(8), depth, out);
      }
    }
  } while (out.size() < end && Below(20) != 0);
}

void WireGenerator::Known(const FieldDescriptor& field, size_t size, int depth, std::string& out) {
  if (field.cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
    AppendDelimited(field.number(), Text(), out);
  } else if (field.cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
    std::string inner;
    if (size > 0 && depth < 8) Fields(*field.message_type(), size, depth + 1, inner);
    AppendDelimited(field.number(), inner, out);
  } else if (field.is_repeated() && Below(3) != 0) {
    Packed(field, size, out);
  } else {
    AppendTag(field.number(), TypeOf(field), out);
    Number(field, out);
  }
}

void WireGenerator::Packed(const FieldDescriptor& field, size_t size, std::string& out) {
  std::string numbers;
  while (numbers.size() < size) Number(field, numbers);
  AppendDelimited(field.number(), numbers, out);
}

void WireGenerator::Number(const FieldDescriptor& field, std::string& out) {
  switch (TypeOf(field)) {
    case WireFormatLite::WIRETYPE_FIXED32:
      out.append(4, static_cast<char>(Below(256)));
      break;
    case WireFormatLite::WIRETYPE_FIXED64:
      out.append(8, static_cast<char>(Below(256)));
      break;
    default:
      AppendVarint(Below(4) == 0 ? random_() >> Below(64) : Below(128), out);
  }
}

void WireGenerator::Unknown(size_t size, int depth, std::string& out) {
  const int number = kUnknownField + static_cast<int>(Below(3));
  switch (Below(5)) {
    case 0:
      AppendTag(number, WireFormatLite::WIRETYPE_VARINT, out);
      return AppendVarint(Below(300), out);
    case 1:
      AppendTag(number, WireFormatLite::WIRETYPE_FIXED32, out);
      out.append(4, 'x');
      return;
    case 2:
      return AppendDelimited(number, Text(), out);
    default:
      AppendTag(number, WireFormatLite::WIRETYPE_START_GROUP, out);
      for (const size_t end = out.size() + size; depth < 40 && out.size() < end;) {
        Unknown(Below(size), depth + 1, out);
      }
      AppendTag(number, WireFormatLite::WIRETYPE_END_GROUP, out);
  }
}

std::string WireGenerator::Text() {
  static constexpr std::array<size_t, 10> kSizes = {0, 1, 2, 15, 16, 30, 31, 47, 100, 1000};
  const size_t size = Below(10) == 0 ? Below(5000) : kSizes[Below(kSizes.size())];
  return std::string(size, static_cast<char>('a' + Below(26)));
}

}  // namespace annulus::server
