#include "engine/model/files/safetensors_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/sanitizers.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// One member of a header: "name":{"dtype":..,"shape":..,"data_offsets":..}.
std::string Member(absl::string_view name, absl::string_view dtype, absl::string_view shape,
                   absl::string_view offsets) {
  return absl::StrCat("\"", name, "\":{\"dtype\":\"", dtype, "\",\"shape\":", shape,
                      ",\"data_offsets\":", offsets, "}");
}

std::string Header(const std::vector<std::string>& members) {
  return absl::StrCat("{", absl::StrJoin(members, ","), "}");
}

TEST(SafetensorsHeaderTest, ReadsTensorsInOrderOfName) {
  const auto tensors = ParseSafetensorsHeader(
      Header({Member("w", "BF16", "[2,3]", "[4,16]"), Member("b", "F32", "[]", "[0,4]"),
              "\"__metadata__\":{\"format\":\"pt\"}"}) +
          "   ",
      16, "f");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  ASSERT_EQ(tensors->size(), 2u);
  EXPECT_EQ((*tensors)[0].name, "b");
  EXPECT_TRUE((*tensors)[0].shape.empty());
  EXPECT_EQ((*tensors)[1].name, "w");
  EXPECT_EQ((*tensors)[1].type->dtype, DType::kBF16);
  EXPECT_EQ((*tensors)[1].shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ((*tensors)[1].begin, 4u);
  EXPECT_EQ((*tensors)[1].end, 16u);
}

// MLX writes null where there is none.
TEST(SafetensorsHeaderTest, MetadataMayBeNull) {
  const std::string tensor = Member("w", "F32", "[1]", "[0,4]");
  for (const auto& members : {std::vector<std::string>{"\"__metadata__\":null", tensor},
                              {tensor, "\"__metadata__\":null"}}) {
    const auto tensors = ParseSafetensorsHeader(Header(members), 4, "f");
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    ASSERT_EQ(tensors->size(), 1u);
    EXPECT_EQ((*tensors)[0].name, "w");
  }
}

TEST(SafetensorsHeaderTest, AcceptsNoTensorsAndEmptyTensors) {
  EXPECT_TRUE(ParseSafetensorsHeader("{}", 0, "f").ok());
  EXPECT_TRUE(ParseSafetensorsHeader(
                  Header({Member("a", "F32", "[0]", "[0,0]"), Member("b", "F32", "[1]", "[0,4]"),
                          Member("c", "F32", "[3,0,9]", "[4,4]")}),
                  4, "f")
                  .ok());
}

TEST(SafetensorsHeaderTest, KnowsTypesThatItCannotServe) {
  const auto tensors = ParseSafetensorsHeader(
      Header({Member("a", "I64", "[1]", "[0,8]"), Member("b", "F4", "[2]", "[8,9]"),
              Member("c", "F6_E2M3", "[4]", "[9,12]"), Member("d", "BOOL", "[1]", "[12,13]")}),
      13, "f");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  for (const StoredTensor& tensor : *tensors) EXPECT_FALSE(tensor.type->dtype.has_value());
}

struct BadHeader {
  const char* what;
  std::string json;
  const char* message;  // part of it
};

constexpr uint64_t kData = 8;

std::vector<BadHeader> BadHeaders() {
  const std::string good = Member("a", "F32", "[2]", "[0,8]");
  const auto shape = [](absl::string_view s) { return Header({Member("a", "F32", s, "[0,8]")}); };
  const auto range = [](absl::string_view r) { return Header({Member("a", "F32", "[2]", r)}); };
  const auto pair = [](absl::string_view a, absl::string_view b) {
    return Header({Member("a", "U8", "[4]", a), Member("b", "U8", "[4]", b)});
  };
  const auto fields = [](absl::string_view f) { return absl::StrCat("{\"a\":{", f, "}}"); };
  const std::string nul("{\"a\0b\":1}", 9);
  return {
      {"Empty", "", "does not begin with '{'"},
      {"LeadingSpace", absl::StrCat(" ", Header({good})), "does not begin with '{'"},
      {"ByteOrderMark", absl::StrCat("\xEF\xBB\xBF", Header({good})), "does not begin with '{'"},
      {"Array", "[]", "does not begin with '{'"},
      {"Unclosed", absl::StrCat("{", good), "not valid JSON"},
      {"TrailingText", absl::StrCat(Header({good}), "x"), "not valid JSON"},
      {"TwoObjects", absl::StrCat(Header({good}), "{}"), "not valid JSON"},
      {"TrailingNul", absl::StrCat(Header({good}), std::string(1, '\0')), "NUL"},
      {"NulInName", nul, "NUL"},
      {"NotUtf8", Header({Member("\xff", "F32", "[2]", "[0,8]")}), "not valid JSON"},
      {"OverlongUtf8", Header({Member("\xc0\xaf", "F32", "[2]", "[0,8]")}), "not valid JSON"},
      {"LoneSurrogate", Header({Member("\\ud800", "F32", "[2]", "[0,8]")}), "not valid JSON"},
      {"DeepNesting", absl::StrCat("{\"a\":", std::string(1'000'000, '[')), "does not allow here"},
      {"DeepMetadata", absl::StrCat("{\"__metadata__\":{\"a\":", std::string(1'000'000, '{')),
       "not a string"},
      {"DuplicateName", Header({good, good}), "given twice"},
      {"DuplicateNameByEscape", Header({good, Member("\\u0061", "F32", "[2]", "[0,8]")}),
       "given twice"},
      {"DuplicateField", fields("\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[2]"),
       "has dtype twice"},
      {"DuplicateMetadata", "{\"__metadata__\":{},\"__metadata__\":{}}", "given twice"},
      {"DuplicateMetadataKey", "{\"__metadata__\":{\"k\":\"\",\"k\":\"\"}}", "twice"},
      {"MetadataTwiceAsNull", "{\"__metadata__\":null,\"__metadata__\":null}", "given twice"},
      {"NullInMetadata", "{\"__metadata__\":{\"k\":null}}", "does not allow here"},
      {"NullInAMember", fields("\"dtype\":null"), "does not allow here"},
      {"NumberInMetadata", "{\"__metadata__\":{\"k\":1}}", "does not allow here"},
      {"ObjectInMetadata", "{\"__metadata__\":{\"k\":{}}}", "not a string"},
      {"MetadataIsAString", "{\"__metadata__\":\"k\"}", "does not allow here"},
      {"TensorIsANumber", "{\"a\":1}", "does not allow here"},
      {"TensorIsNull", "{\"a\":null}", "does not allow here"},
      {"UnknownField", fields("\"stride\":[1]"), "allowed: dtype, shape, data_offsets"},
      {"NoDType", fields("\"shape\":[2],\"data_offsets\":[0,8]"), "lacks one of"},
      {"NoShape", fields("\"dtype\":\"F32\",\"data_offsets\":[0,8]"), "lacks one of"},
      {"NoOffsets", fields("\"dtype\":\"F32\",\"shape\":[2]"), "lacks one of"},
      {"UnknownDType", Header({Member("a", "Q4_K", "[2]", "[0,8]")}), "unknown dtype \"Q4_K\""},
      {"LowerCaseDType", Header({Member("a", "f32", "[2]", "[0,8]")}), "known: F32, BF16, F16"},
      {"DTypeIsANumber", fields("\"dtype\":4"), "does not allow here"},
      {"WidthMismatch", Header({Member("a", "F16", "[2]", "[0,8]")}), "[2] has 4"},
      {"SubByteMisaligned", Header({Member("a", "F4", "[15]", "[0,8]")}), "60 bits"},
      {"ShapeTooSmall", shape("[1]"), "[1] has 4"},
      {"ShapeTooLarge", shape("[3]"), "[3] has 12"},
      {"ShapeRankZero", shape("[]"), "[] has 4"},
      {"ShapeNegative", shape("[-2]"), "does not allow here"},
      {"ShapeMinusZero", shape("[-0]"), "does not allow here"},
      {"ShapeFloat", shape("[2.0]"), "does not allow here"},
      {"ShapeExponent", shape("[1e3]"), "does not allow here"},
      {"ShapeString", shape("[\"2\"]"), "does not allow here"},
      {"ShapeNested", shape("[[2]]"), "does not allow here"},
      {"ShapeNull", shape("null"), "does not allow here"},
      {"ShapeBeyond63Bits", shape("[9223372036854775808]"), "below 2^63"},
      {"ShapeBeyond64Bits", shape("[18446744073709551616]"), "does not allow here"},
      // 2^62 * 2^62 * 4 is 2 modulo 2^64, and (2^61 + 1) * 4 * 4 is 16: sums that wrap.
      {"ShapeWraps", shape("[4611686018427387904,4611686018427387904,4]"), "beyond 2^63"},
      {"ShapeWrapsToTheRightSize", shape("[2305843009213693954,1]"), "beyond 2^63"},
      {"ShapeOverflowsBeforeZero", shape("[4611686018427387904,4611686018427387904,0]"),
       "beyond 2^63"},
      {"TenToTheFifthDimensions",
       shape(absl::StrCat("[", absl::StrJoin(std::vector<int>(100'000, 1), ","), ",2]")),
       "too many dimensions; allowed: 8"},
      {"OffsetsReversed", range("[8,0]"), "end before they begin"},
      {"OffsetsPastTheEnd", range("[0,9]"), "the file has 8 bytes of data"},
      {"OffsetsShort", range("[0,7]"), "which is 7 bytes"},
      {"OffsetsLate", range("[1,8]"), "which is 7 bytes"},
      {"OffsetsNegative", range("[-8,0]"), "does not allow here"},
      {"OffsetsFloat", range("[0.0,8]"), "does not allow here"},
      {"OffsetsExponent", range("[0,8e0]"), "does not allow here"},
      {"OffsetsBeyond63Bits", range("[0,9223372036854775816]"), "the file has 8 bytes"},
      {"OffsetsBeyond64Bits", range("[0,18446744073709551624]"), "does not allow here"},
      {"OffsetsBeyondADouble", range("[0,1e999]"), "within the range of a double"},
      {"OneOffset", range("[8]"), "exactly two"},
      {"ThreeOffsets", range("[0,4,8]"), "exactly two"},
      {"OffsetsEmpty", range("[]"), "exactly two"},
      {"Overlap", pair("[0,4]", "[3,7]"), "they overlap"},
      {"SameRange", pair("[0,4]", "[0,4]"), "they overlap"},
      {"Hole", Header({Member("a", "U8", "[3]", "[0,3]"), Member("b", "U8", "[4]", "[4,8]")}),
       "there is a hole"},
      {"HoleAtTheStart", Header({Member("a", "U8", "[4]", "[4,8]")}), "there is a hole"},
      {"TrailingBytes", Header({Member("a", "U8", "[4]", "[0,4]")}), "the file at 8"},
      {"NoTensorsButData", "{}", "the file at 8"},
      {"EmptyTensorInAHole",
       Header({Member("a", "U8", "[4]", "[0,4]"), Member("z", "U8", "[0]", "[6,6]"),
               Member("b", "U8", "[4]", "[4,8]")}),
       "they overlap"},
  };
}

class BadHeaderTest : public ::testing::TestWithParam<BadHeader> {};

TEST_P(BadHeaderTest, IsRefusedWithFileAndReason) {
  const auto tensors = ParseSafetensorsHeader(GetParam().json, kData, "model.safetensors");
  ASSERT_EQ(tensors.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(tensors.status().message()),
              AllOf(HasSubstr("model.safetensors: "), HasSubstr(GetParam().message)));
  EXPECT_LT(tensors.status().message().size(), 500u);
}

INSTANTIATE_TEST_SUITE_P(All, BadHeaderTest, ::testing::ValuesIn(BadHeaders()),
                         [](const auto& info) { return info.param.what; });

TEST(SafetensorsHeaderTest, NamesTheTensor) {
  const auto tensors =
      ParseSafetensorsHeader(Header({Member("model.norm.weight", "F32", "[3]", "[0,8]")}), 8, "f");
  EXPECT_THAT(std::string(tensors.status().message()),
              HasSubstr("tensor \"model.norm.weight\" has data_offsets [0, 8], which is 8 bytes, "
                        "but F32 [3] has 12"));
}

TEST(SafetensorsHeaderTest, HandlesAMillionTensors) {
  constexpr int kTensors = kSanitized ? 200'000 : 1'000'000;
  std::string json = "{";
  for (int i = 0; i < kTensors; ++i) {
    absl::StrAppend(&json, i == 0 ? "" : ",",
                    Member(absl::StrCat(i), "U8", "[1]", absl::StrCat("[", i, ",", i + 1, "]")));
  }
  json += "}";
  const auto tensors = ParseSafetensorsHeader(json, kTensors, "f");
  ASSERT_TRUE(tensors.ok()) << tensors.status();
  EXPECT_EQ(tensors->size(), size_t{kTensors});
}

TEST(SafetensorsHeaderTest, RefusesEndlessMetadata) {
  std::string json = "{\"__metadata__\":{";
  for (int i = 0; i < 100'000; ++i) absl::StrAppend(&json, i == 0 ? "" : ",", "\"", i, "\":\"\"");
  EXPECT_THAT(std::string(ParseSafetensorsHeader(json + "}}", 0, "f").status().message()),
              HasSubstr("too many keys; allowed: 65536"));
}

// Every truncation and every single-bit flip of a good header: an answer or an error, nothing else.
TEST(SafetensorsHeaderTest, SurvivesEveryTruncationAndBitFlip) {
  const std::string good =
      Header({Member("a", "F32", "[2]", "[0,8]"), Member("b", "BF16", "[2,2]", "[8,16]"),
              "\"__metadata__\":{\"format\":\"pt\"}"});
  ASSERT_TRUE(ParseSafetensorsHeader(good, 16, "f").ok());
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(ParseSafetensorsHeader(good.substr(0, length), 16, "f").ok()) << length;
  }
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ (1 << (bit % 8)));
    const auto tensors = ParseSafetensorsHeader(flipped, 16, "f");
    if (!tensors.ok()) continue;
    for (const StoredTensor& tensor : *tensors) EXPECT_LE(tensor.end, 16u);
  }
}

}  // namespace
}  // namespace annulus
