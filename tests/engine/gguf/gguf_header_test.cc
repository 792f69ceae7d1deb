#include "engine/gguf/gguf_header.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <string>

#include "tests/engine/gguf/gguf_writer.h"

namespace annulus {
namespace {

using testing::GgufNumber;
using testing::GgufText;
using testing::GgufWriter;
using ::testing::HasSubstr;

absl::StatusOr<GgufHeader> Parse(const std::string& file) {
  return ParseGgufHeader(std::as_bytes(std::span(file)), file.size(), "f.gguf");
}

void ExpectInvalid(const std::string& file, const std::string& message) {
  const auto header = Parse(file);
  EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << header.status();
  EXPECT_THAT(header.status().message(), HasSubstr(message));
}

GgufWriter Small() {
  GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.block_count", 2u);
  writer.Set("llama.eps", 1e-5f);
  writer.Set("flag", true);
  writer.Set("tokens", std::vector<std::string>{"a", "", "ccc"});
  writer.Set("types", std::vector<int32_t>{1, -1, 3});
  writer.AddFloats("b", {2, 3}, {1, 2, 3, 4, 5, 6});
  writer.AddTensor("a", {64}, 3, std::string(40, 'x'));
  return writer;
}

// Version 3 differs from 2 only in that it may be big-endian.
class GgufVersionTest : public ::testing::TestWithParam<uint32_t> {};

TEST_P(GgufVersionTest, ReadsValuesAndTensors) {
  GgufWriter writer = Small();
  writer.version = GetParam();
  const std::string file = writer.File();
  const auto header = Parse(file);
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_EQ(header->Find("general.architecture")->Scalar(), "llama");
  EXPECT_EQ(header->Find("llama.block_count")->Scalar(), 2);
  EXPECT_EQ(header->Find("llama.eps")->Scalar(), static_cast<double>(1e-5f));
  EXPECT_EQ(header->Find("flag")->Scalar(), true);
  EXPECT_EQ(header->Find("tokens")->texts, (std::vector<absl::string_view>{"a", "", "ccc"}));
  EXPECT_EQ(header->Find("types")->At(1), -1);
  EXPECT_EQ(header->Find("absent"), nullptr);
  ASSERT_EQ(header->tensors.size(), 2u);
  const GgufTensor* const b = header->FindTensor("b");
  ASSERT_NE(b, nullptr);
  EXPECT_EQ(b->shape, (std::vector<int64_t>{2, 3}));
  EXPECT_EQ(b->bytes, 24u);
  EXPECT_EQ(b->offset % 32, 0u);
  const GgufTensor* const a = header->FindTensor("a");
  EXPECT_EQ(a->type->name, "Q4_1");
  EXPECT_EQ(a->offset, b->offset + 32);
  EXPECT_EQ(a->bytes, 40u);
}

INSTANTIATE_TEST_SUITE_P(, GgufVersionTest, ::testing::Values(2u, 3u));

// A file that is cut short anywhere is an error and nothing else, and says so.
TEST(GgufHeaderTest, RefusesAFileThatEndsAtAnyByte) {
  const std::string file = Small().File();
  for (size_t size = 0; size < file.size(); ++size) {
    const auto header = Parse(file.substr(0, size));
    ASSERT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << size;
  }
}

// Where the file has more than was read, the parser asks for it and accepts what it then gets.
TEST(GgufHeaderTest, AsksForMoreOfAHeaderThatGoesOn) {
  const std::string file = Small().File();
  const size_t header = Small().Header().size();
  for (size_t size = 0; size < file.size(); ++size) {
    const auto parsed =
        ParseGgufHeader(std::as_bytes(std::span(file)).first(size), file.size(), "f.gguf");
    EXPECT_EQ(parsed.ok(), size >= header) << size << ": " << parsed.status();
    if (size < header) {
      EXPECT_TRUE(absl::IsOutOfRange(parsed.status())) << size;
    }
  }
}

TEST(GgufHeaderTest, RefusesCountsThatTheFileCannotHold) {
  for (const uint64_t count : {uint64_t{1} << 20, uint64_t{1} << 60, ~uint64_t{0}}) {
    GgufWriter tensors = Small();
    tensors.tensor_count = count;
    EXPECT_EQ(Parse(tensors.File()).status().code(), absl::StatusCode::kInvalidArgument) << count;
    GgufWriter values = Small();
    values.value_count = count;
    EXPECT_EQ(Parse(values.File()).status().code(), absl::StatusCode::kInvalidArgument) << count;
    for (const uint32_t element : {0u, 8u, 12u}) {
      GgufWriter array = Small();
      array.Raw("array", 9, GgufNumber(element) + GgufNumber(count));
      EXPECT_EQ(Parse(array.File()).status().code(), absl::StatusCode::kInvalidArgument) << count;
    }
    GgufWriter text = Small();
    text.Raw("text", 8, GgufNumber(count));
    EXPECT_EQ(Parse(text.File()).status().code(), absl::StatusCode::kInvalidArgument) << count;
  }
}

TEST(GgufHeaderTest, RefusesOtherFormsOfFile) {
  ExpectInvalid("GGML" + std::string(100, '\0'), "does not begin with \"GGUF\"");
  for (const uint32_t version : {0u, 1u, 4u, 0x03000000u}) {
    GgufWriter writer = Small();
    writer.version = version;
    EXPECT_EQ(Parse(writer.File()).status().code(), absl::StatusCode::kUnimplemented);
  }
}

TEST(GgufHeaderTest, RefusesValuesThatAreNone) {
  GgufWriter nested = Small();
  nested.Raw("array", 9, GgufNumber<uint32_t>(9) + GgufNumber<uint64_t>(1));
  ExpectInvalid(nested.File(), "an array of arrays");
  GgufWriter unknown = Small();
  unknown.Raw("x", 13, "");
  ExpectInvalid(unknown.File(), "x has value type 13");
  GgufWriter flag = Small();
  flag.Raw("x", 7, "\x02");
  ExpectInvalid(flag.File(), "x is a bool of 2");
  GgufWriter twice = Small();
  twice.Set("flag", false);
  ExpectInvalid(twice.File(), "flag appears twice");
  GgufWriter name = Small();
  name.Raw(absl::string_view("a\0b", 3), 7, "\x01");
  ExpectInvalid(name.File(), "visible ASCII");
}

TEST(GgufHeaderTest, RefusesTensorsThatDoNotFit) {
  const auto with = [](absl::string_view name, const std::vector<int64_t>& shape, uint32_t type,
                       uint64_t offset) {
    GgufWriter writer = Small();
    writer.AddTensorAt(name, shape, type, offset);
    return writer.File();
  };
  ExpectInvalid(with("a", {4}, 0, 0), "tensor a appears twice");
  ExpectInvalid(with("c", {4}, 0, 0), "overlap");
  ExpectInvalid(with("c", {2}, 0, 64), "overlap");
  ExpectInvalid(with("c", {4}, 0, 50), "multiples of the alignment");
  ExpectInvalid(with("c", {4}, 0, 1 << 20), "truncated");
  ExpectInvalid(with("c", {4}, 0, ~uint64_t{31}), "truncated");
  ExpectInvalid(with("c", {0, 4}, 0, 128), "dimension of 0");
  ExpectInvalid(with("c", {}, 0, 128), "0 dimensions");
  ExpectInvalid(with("c", {1, 1, 1, 1, 1}, 0, 128), "5 dimensions");
  ExpectInvalid(with("c", {1, 33}, 2, 128), "needs a multiple of 32");
  // Products that wrap around to the right size.
  const int64_t half = int64_t{1} << 32;
  ExpectInvalid(with("c", {half, half, 4}, 0, 128), "all together below");
  ExpectInvalid(with("c", {std::numeric_limits<int64_t>::min(), 2}, 0, 128), "all together below");
  EXPECT_EQ(Parse(with("c", {4}, 4, 128)).status().code(), absl::StatusCode::kUnimplemented);
}

TEST(GgufHeaderTest, RefusesAlignmentsThatAreNone) {
  for (const uint32_t alignment : {0u, 4u, 33u, 1u << 30}) {
    GgufWriter writer = Small();
    writer.Set("general.alignment", alignment);
    ExpectInvalid(writer.File(), "a power of two from 8");
  }
  GgufWriter text = Small();
  text.Set("general.alignment", "32");
  ExpectInvalid(text.File(), "a power of two from 8");
  GgufWriter no_text = Small();
  no_text.Set("general.alignment", "\xFF\xFE");
  ExpectInvalid(no_text.File(), "general.alignment is \"\\xff\\xfe\"; allowed");
  GgufWriter wide;
  wide.alignment = 4096;
  wide.Set("general.alignment", 4096u);
  wide.AddFloats("a", {2}, {1, 2});
  EXPECT_TRUE(Parse(wide.File()).ok());
}

// Single bits and bytes changed anywhere: an error or a header, never anything else.
TEST(GgufHeaderTest, SurvivesDamageAnywhere) {
  const std::string file = Small().File();
  std::mt19937 random(7);
  for (size_t at = 0; at < Small().Header().size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(damaged[at] ^ 1 << bit);
      Parse(damaged).IgnoreError();
    }
    std::string damaged = file;
    for (int i = 0; i < 8; ++i)
      damaged[(at + random() % 9) % file.size()] = static_cast<char>(random());
    Parse(damaged).IgnoreError();
  }
}

}  // namespace
}  // namespace annulus
