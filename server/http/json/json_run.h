#ifndef ANNULUS_SERVER_HTTP_JSON_JSON_RUN_H_
#define ANNULUS_SERVER_HTTP_JSON_JSON_RUN_H_

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace annulus::server {

namespace json_run {

inline constexpr uint64_t kOnes = 0x0101010101010101;
inline constexpr uint64_t kHighBits = 0x8080808080808080;
// The high bit of each byte that equals `c`. Beyond the lowest one there may be wrong ones, since
// the subtraction borrows.
constexpr uint64_t Equals(uint64_t bytes, char c) {
  const uint64_t difference = bytes ^ (kOnes * static_cast<uint8_t>(c));
  return (difference - kOnes) & ~difference & kHighBits;
}

}  // namespace json_run

// How many bytes at the front of a string stand for themselves: neither a quotation mark nor a
// backslash, and with `kPlainAscii` no control character and nothing beyond ASCII. Looks at eight
// at a time: prompts are long.
template <bool kPlainAscii>
size_t JsonRun(const char* begin, const char* end) {
  static_assert(std::endian::native == std::endian::little, "the lowest byte is the first");
  const char* at = begin;
  for (; end - at >= 8; at += 8) {
    uint64_t bytes;
    std::memcpy(&bytes, at, sizeof(bytes));
    uint64_t ends = json_run::Equals(bytes, '"') | json_run::Equals(bytes, '\\');
    if (kPlainAscii)
      ends |= (bytes & json_run::kHighBits) |
              ((bytes - json_run::kOnes * 0x20) & ~bytes & json_run::kHighBits);
    if (ends != 0) return static_cast<size_t>(at - begin) + std::countr_zero(ends) / 8;
  }
  for (; at != end; ++at) {
    const auto c = static_cast<uint8_t>(*at);
    if (c == '"' || c == '\\' || (kPlainAscii && (c < 0x20 || c >= 0x80))) break;
  }
  return static_cast<size_t>(at - begin);
}

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_JSON_JSON_RUN_H_
