#include "engine/text/models/byte_alphabet.h"

#include <array>
#include <cstdint>

#include "engine/text/utf8.h"

namespace annulus {
namespace {

constexpr size_t kAlphabetEnd = 0x144;  // one above the largest code point in use
constexpr int16_t kNoByte = -1;

constexpr bool StandsForItself(int byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

constexpr std::array<int16_t, kAlphabetEnd> MakeTable() {
  std::array<int16_t, kAlphabetEnd> table{};
  for (int16_t& entry : table) entry = kNoByte;
  size_t next = 0x100;
  for (int byte = 0; byte < 256; ++byte) {
    const size_t code_point = StandsForItself(byte) ? static_cast<size_t>(byte) : next++;
    table[code_point] = static_cast<int16_t>(byte);
  }
  return table;
}

constexpr std::array<int16_t, kAlphabetEnd> kByteOf = MakeTable();

constexpr std::array<char32_t, 256> MakeInverse() {
  std::array<char32_t, 256> characters{};
  for (size_t code_point = 0; code_point < kAlphabetEnd; ++code_point) {
    const int16_t byte = kByteOf[code_point];
    if (byte != kNoByte) characters[static_cast<size_t>(byte)] = static_cast<char32_t>(code_point);
  }
  return characters;
}

constexpr std::array<char32_t, 256> kCharacterOf = MakeInverse();

}  // namespace

std::optional<std::string> FromByteAlphabet(absl::string_view token) {
  std::string bytes;
  for (size_t position = 0; position < token.size();) {
    const char32_t c = NextCodePoint(token, &position);
    if (c >= kAlphabetEnd || kByteOf[c] == kNoByte) return std::nullopt;
    bytes.push_back(static_cast<char>(kByteOf[c]));
  }
  return bytes;
}

std::string ToByteAlphabet(absl::string_view bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const char byte : bytes) AppendUtf8(kCharacterOf[static_cast<uint8_t>(byte)], &text);
  return text;
}

}  // namespace annulus
