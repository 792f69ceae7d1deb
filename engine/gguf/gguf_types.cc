#include "engine/gguf/gguf_types.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <vector>

#include "absl/strings/str_join.h"

// Source of the layouts: the block structs of ggml (ggml-common.h) and their description in the
// documents of GGUF. A scale is a float16 unless said otherwise.
namespace annulus {
namespace {

constexpr int64_t kSmall = 32;   // values of a block of the older types
constexpr int64_t kSuper = 256;  // values of a super-block of the K types

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

int Byte(const std::byte* at) { return std::to_integer<int>(*at); }
int Signed(const std::byte* at) { return static_cast<int8_t>(Byte(at)); }

float Half(const std::byte* at) {
  Float16 half;
  std::memcpy(&half.bits, at, sizeof(half.bits));
  return ToFloat(half);
}

template <DType dtype>
void WidenPlain(const std::byte* source, int64_t blocks, float* values) {
  ConvertToFloat(dtype, source, values, static_cast<size_t>(blocks));
}

// Calls `block(bytes, values)` for each block.
template <int64_t kValues, size_t kBytes, class Block>
void ForBlocks(const std::byte* source, int64_t blocks, float* values, Block block) {
  for (int64_t i = 0; i < blocks; ++i) {
    block(source + static_cast<size_t>(i) * kBytes, values + i * kValues);
  }
}

// Sixteen bytes of two 4-bit codes each: low halves are values 0 to 15, high halves 16 to 31.
template <class Value>
void WidenHalves(const std::byte* codes, float* values, Value value) {
  for (int i = 0; i < 16; ++i) {
    values[i] = value(Byte(codes + i) & 15, i);
    values[i + 16] = value(Byte(codes + i) >> 4, i + 16);
  }
}

void WidenQ4_0(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSmall, 18>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    WidenHalves(block + 2, out,
                [&](int code, int) { return static_cast<float>(code - 8) * scale; });
  });
}

void WidenQ4_1(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSmall, 20>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    const float least = Half(block + 2);
    WidenHalves(block + 4, out,
                [&](int code, int) { return static_cast<float>(code) * scale + least; });
  });
}

// The fifth bits of 32 codes, bit i of code i.
uint32_t FifthBits(const std::byte* at) {
  uint32_t bits;
  std::memcpy(&bits, at, sizeof(bits));
  return bits;
}

void WidenQ5_0(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSmall, 22>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    const uint32_t fifth = FifthBits(block + 2);
    WidenHalves(block + 6, out, [&](int code, int i) {
      const int whole = code | static_cast<int>(fifth >> i & 1) << 4;
      return static_cast<float>(whole - 16) * scale;
    });
  });
}

void WidenQ5_1(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSmall, 24>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    const float least = Half(block + 2);
    const uint32_t fifth = FifthBits(block + 4);
    WidenHalves(block + 8, out, [&](int code, int i) {
      const int whole = code | static_cast<int>(fifth >> i & 1) << 4;
      return static_cast<float>(whole) * scale + least;
    });
  });
}

void WidenQ8_0(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSmall, 34>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    for (int i = 0; i < kSmall; ++i) out[i] = static_cast<float>(Signed(block + 2 + i)) * scale;
  });
}

// 16 groups of 16: a byte of scale and minimum (4 bits each) a group; 2-bit codes, of which a byte
// holds those of the same place in four groups of 32.
void WidenQ2K(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSuper, 84>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block + 80);
    const float least = Half(block + 82);
    for (int i = 0; i < kSuper; ++i) {
      const int part = i / 128, shift = i % 128 / 32 * 2, place = i % 32;
      const int group = Byte(block + i / 16);
      const int code = Byte(block + 16 + part * 32 + place) >> shift & 3;
      out[i] = scale * static_cast<float>(group & 15) * static_cast<float>(code) -
               least * static_cast<float>(group >> 4);
    }
  });
}

// 16 scales of 6 bits in 12 bytes: four low bits in bytes 0 to 7, two high bits in bytes 8 to 11.
int ScaleOfQ3K(const std::byte* scales, int group) {
  const int low = group < 8 ? Byte(scales + group) & 15 : Byte(scales + group - 8) >> 4;
  const int high = Byte(scales + 8 + group % 4) >> (group / 4 * 2) & 3;
  return (low | high << 4) - 32;
}

void WidenQ3K(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSuper, 110>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block + 108);
    for (int i = 0; i < kSuper; ++i) {
      const int part = i / 128, step = i % 128 / 32, place = i % 32;
      const int low = Byte(block + 32 + part * 32 + place) >> (step * 2) & 3;
      const bool high = Byte(block + place) >> (part * 4 + step) & 1;
      const float group = scale * static_cast<float>(ScaleOfQ3K(block + 96, i / 16));
      out[i] = group * static_cast<float>(high ? low : low - 4);
    }
  });
}

// Scale and minimum of one of 8 groups, 6 bits each, in 12 bytes.
struct ScaleAndLeast {
  int scale;
  int least;
};
ScaleAndLeast GroupOfQ4K(const std::byte* packed, int group) {
  if (group < 4) return {Byte(packed + group) & 63, Byte(packed + group + 4) & 63};
  const int low = Byte(packed + group + 4);
  return {(low & 15) | (Byte(packed + group - 4) >> 6) << 4, low >> 4 | (Byte(packed + group) >> 6)
                                                                            << 4};
}

// Codes of Q4_K and Q5_K: of 64 values, 32 bytes hold the first half low and the second half high;
// Q5_K has a fifth bit, bit `group` of byte `place` of `high`, which is null for Q4_K.
void WidenGroups(const std::byte* block, const std::byte* high, const std::byte* low, float* out) {
  const float scale = Half(block);
  const float least = Half(block + 2);
  for (int group = 0; group < 8; ++group) {
    const ScaleAndLeast of = GroupOfQ4K(block + 4, group);
    const float step = scale * static_cast<float>(of.scale);
    const float offset = least * static_cast<float>(of.least);
    for (int place = 0; place < 32; ++place) {
      const int byte = Byte(low + group / 2 * 32 + place);
      int code = group % 2 == 0 ? byte & 15 : byte >> 4;
      if (high != nullptr) code |= (Byte(high + place) >> group & 1) << 4;
      out[group * 32 + place] = step * static_cast<float>(code) - offset;
    }
  }
}

void WidenQ4K(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSuper, 144>(source, blocks, values, [](const std::byte* block, float* out) {
    WidenGroups(block, nullptr, block + 16, out);
  });
}

void WidenQ5K(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSuper, 176>(source, blocks, values, [](const std::byte* block, float* out) {
    WidenGroups(block, block + 16, block + 48, out);
  });
}

// 6-bit codes: four low bits as in Q4_K over 128 values, two high bits of four values in a byte;
// an int8 scale for each 16 values.
void WidenQ6K(const std::byte* source, int64_t blocks, float* values) {
  ForBlocks<kSuper, 210>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block + 208);
    for (int i = 0; i < kSuper; ++i) {
      const int part = i / 128, quarter = i % 128 / 32, place = i % 32;
      const int low = Byte(block + part * 64 + quarter % 2 * 32 + place) >> (quarter / 2 * 4) & 15;
      const int high = Byte(block + 128 + part * 32 + place) >> (quarter * 2) & 3;
      const float group = scale * static_cast<float>(Signed(block + 192 + i / 16));
      out[i] = group * static_cast<float>((low | high << 4) - 32);
    }
  });
}

void WidenIq4Nl(const std::byte* source, int64_t blocks, float* values) {
  static constexpr float kLevels[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};
  ForBlocks<kSmall, 18>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = Half(block);
    WidenHalves(block + 2, out, [&](int code, int) { return kLevels[code] * scale; });
  });
}

// e2m1 codes with one exponent (OCP Microscaling Formats 1.0).
void WidenMxfp4(const std::byte* source, int64_t blocks, float* values) {
  static constexpr float kLevels[16] = {0,     0.5f,  1,  1.5f,  2,  3,  4,  6,
                                        -0.0f, -0.5f, -1, -1.5f, -2, -3, -4, -6};
  ForBlocks<kSmall, 17>(source, blocks, values, [](const std::byte* block, float* out) {
    const float scale = std::ldexp(1.0f, Byte(block) - 127);
    WidenHalves(block + 1, out, [&](int code, int) { return kLevels[code] * scale; });
  });
}

constexpr std::array<GgufType, 34> kTypes = {{
    {0, "F32", 1, 4, DType::kF32, WidenPlain<DType::kF32>},
    {1, "F16", 1, 2, DType::kF16, WidenPlain<DType::kF16>},
    {2, "Q4_0", kSmall, 18, {}, WidenQ4_0},
    {3, "Q4_1", kSmall, 20, {}, WidenQ4_1},
    {6, "Q5_0", kSmall, 22, {}, WidenQ5_0},
    {7, "Q5_1", kSmall, 24, {}, WidenQ5_1},
    {8, "Q8_0", kSmall, 34, {}, WidenQ8_0},
    {9, "Q8_1", kSmall, 36, {}, nullptr},
    {10, "Q2_K", kSuper, 84, {}, WidenQ2K},
    {11, "Q3_K", kSuper, 110, {}, WidenQ3K},
    {12, "Q4_K", kSuper, 144, {}, WidenQ4K},
    {13, "Q5_K", kSuper, 176, {}, WidenQ5K},
    {14, "Q6_K", kSuper, 210, {}, WidenQ6K},
    {15, "Q8_K", kSuper, 292, {}, nullptr},
    {16, "IQ2_XXS", kSuper, 66, {}, nullptr},
    {17, "IQ2_XS", kSuper, 74, {}, nullptr},
    {18, "IQ3_XXS", kSuper, 98, {}, nullptr},
    {19, "IQ1_S", kSuper, 50, {}, nullptr},
    {20, "IQ4_NL", kSmall, 18, {}, WidenIq4Nl},
    {21, "IQ3_S", kSuper, 110, {}, nullptr},
    {22, "IQ2_S", kSuper, 82, {}, nullptr},
    {23, "IQ4_XS", kSuper, 136, {}, nullptr},
    {24, "I8", 1, 1, {}, nullptr},
    {25, "I16", 1, 2, {}, nullptr},
    {26, "I32", 1, 4, {}, nullptr},
    {27, "I64", 1, 8, {}, nullptr},
    {28, "F64", 1, 8, {}, nullptr},
    {29, "IQ1_M", kSuper, 56, {}, nullptr},
    {30, "BF16", 1, 2, DType::kBF16, WidenPlain<DType::kBF16>},
    {34, "TQ1_0", kSuper, 54, {}, nullptr},
    {35, "TQ2_0", kSuper, 66, {}, nullptr},
    {39, "MXFP4", kSmall, 17, {}, WidenMxfp4},
    {40, "NVFP4", 64, 36, {}, nullptr},
    {41, "Q1_0", 128, 18, {}, nullptr},
}};

}  // namespace

const GgufType* FindGgufType(uint32_t id) {
  for (const GgufType& type : kTypes) {
    if (type.id == id) return &type;
  }
  return nullptr;
}

std::string ServedGgufTypes() {
  std::vector<absl::string_view> names;
  for (const GgufType& type : kTypes) {
    if (type.served()) names.push_back(type.name);
  }
  return absl::StrJoin(names, ", ");
}

}  // namespace annulus
