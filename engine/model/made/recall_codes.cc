#include "engine/model/made/recall_codes.h"

#include <bit>
#include <cstddef>
#include <string>

#include "absl/strings/string_view.h"

namespace annulus {
namespace {

// Coordinates below this one are for running text.
constexpr int kTextCoordinates = 5;
constexpr absl::string_view kTextBytes = " etaoinshrdlucmfwygpbvkxqzj.,\n";
constexpr absl::string_view kMarkBytes = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ-':";

// The 264 roots of D12, by the part of the coordinates that they use.
struct Roots {
  std::vector<ContextCode> text;   // both entries among the first five: 40
  std::vector<ContextCode> marks;  // both among the other seven: 84
  std::vector<ContextCode> mixed;  // one in each part: 140
};

Roots AllRoots() {
  Roots roots;
  for (int j = 1; j < kContextCodeSize; ++j) {
    for (int i = 0; i < j; ++i) {
      for (int signs = 0; signs < 4; ++signs) {
        ContextCode code{};
        code[static_cast<size_t>(i)] = (signs & 1) != 0 ? -1 : 1;
        code[static_cast<size_t>(j)] = (signs & 2) != 0 ? -1 : 1;
        auto& part = j < kTextCoordinates    ? roots.text
                     : i >= kTextCoordinates ? roots.marks
                                             : roots.mixed;
        part.push_back(code);
      }
    }
  }
  return roots;
}

// Quadratic forms in four variables over the field of two elements; bit t stands for the product of
// pair t in kVariablePairs. The sum of any two is bent, which is what keeps the words apart.
constexpr std::array<uint8_t, 8> kForms = {0, 12, 22, 27, 39, 41, 53, 58};
constexpr std::array<uint8_t, 6> kVariablePairs = {0b0011, 0b0101, 0b1001, 0b0110, 0b1010, 0b1100};

bool FormAt(unsigned form, unsigned point) {
  bool value = false;
  for (unsigned t = 0; t < kVariablePairs.size(); ++t) {
    const bool product = (point & kVariablePairs[t]) == kVariablePairs[t];
    value ^= product && (form >> t & 1) != 0;
  }
  return value;
}

// Bits 0..3 of the byte choose a linear form, bits 4..6 a quadratic one, bit 7 the sign.
AnswerCode ByteAnswerCode(unsigned byte) {
  AnswerCode code;
  for (unsigned point = 0; point < code.size(); ++point) {
    const bool linear = std::popcount(point & byte & 15) % 2 != 0;
    const bool negative = linear ^ FormAt(kForms[byte >> 4 & 7], point) ^ (byte >= 128);
    code[point] = negative ? -1 : 1;
  }
  return code;
}

}  // namespace

std::vector<ContextCode> ContextCodes() {
  const Roots roots = AllRoots();
  std::vector<ContextCode> codes(kRecallVocabulary);
  std::vector<bool> assigned(kRecallVocabulary, false);
  const auto assign = [&](absl::string_view bytes, const std::vector<ContextCode>& from) {
    for (size_t i = 0; i < bytes.size(); ++i) {
      codes[static_cast<uint8_t>(bytes[i])] = from[i];
      assigned[static_cast<uint8_t>(bytes[i])] = true;
    }
  };
  assign(kTextBytes, roots.text);
  assign(kMarkBytes, roots.marks);

  std::vector<ContextCode> left(roots.text.begin() + kTextBytes.size(), roots.text.end());
  left.insert(left.end(), roots.marks.begin() + kMarkBytes.size(), roots.marks.end());
  left.insert(left.end(), roots.mixed.begin(), roots.mixed.end());
  size_t next = 0;
  for (size_t id = 0; id < codes.size(); ++id) {
    if (!assigned[id]) codes[id] = left[next++];
  }
  return codes;
}

std::vector<AnswerCode> AnswerCodes() {
  std::vector<AnswerCode> codes;
  for (unsigned byte = 0; byte < 256; ++byte) codes.push_back(ByteAnswerCode(byte));
  // At distance 4 from the nearest word, which is as far as a word can be.
  codes.push_back({-1, -1, -1, -1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
  return codes;
}

}  // namespace annulus
