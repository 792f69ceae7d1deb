#include "engine/gguf/gguf_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::AllOf;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::TempDirectory;

std::string Part(uint32_t number, uint32_t count, const std::string& tensor) {
  GgufWriter writer;
  writer.Set("split.no", number);
  writer.Set("split.count", count);
  if (number == 0) writer.Set("name", "first");
  writer.AddFloats(tensor, {2}, {static_cast<float>(number), 7});
  return writer.File();
}

TEST(GgufFileTest, IsKnownByItsMagicNumberWhateverItsName) {
  const TempDirectory directory;
  directory.Write("sha256-abc", Part(0, 1, "a"));
  directory.Write("x.gguf", "{}");
  EXPECT_TRUE(IsGgufFile((directory.path() / "sha256-abc").string()));
  EXPECT_FALSE(IsGgufFile((directory.path() / "x.gguf").string()));
  EXPECT_FALSE(IsGgufFile((directory.path() / "absent").string()));
  EXPECT_FALSE(IsGgufFile(directory.path().string()));
}

TEST(GgufFileTest, ReadsASplitSetFromAnyOfItsFiles) {
  const TempDirectory directory;
  for (uint32_t i = 0; i < 3; ++i) {
    directory.Write(absl::StrCat("m-0000", i + 1, "-of-00003.gguf"),
                    Part(i, 3, absl::StrCat("t", i)));
  }
  for (const int named : {1, 3}) {
    const auto file = GgufFile::Open(
        (directory.path() / absl::StrCat("m-0000", named, "-of-00003.gguf")).string());
    ASSERT_TRUE(file.ok()) << file.status();
    EXPECT_EQ((*file)->Text("name"), "first");
    EXPECT_EQ((*file)->Tensors().size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const GgufTensor* const tensor = (*file)->FindTensor(absl::StrCat("t", i));
      ASSERT_NE(tensor, nullptr);
      EXPECT_EQ(*(*file)->ReadAsFloat(*tensor), (std::vector<float>{static_cast<float>(i), 7}));
    }
  }
  const auto found = FindGgufFile(directory.path().string());
  ASSERT_TRUE(found.ok() && found->has_value()) << found.status();
  EXPECT_THAT(**found, HasSubstr("m-00001-of-00003.gguf"));
}

TEST(GgufFileTest, RefusesASplitSetThatIsNotWhole) {
  const TempDirectory directory;
  const std::string first = (directory.path() / "m-00001-of-00002.gguf").string();
  directory.Write("m-00001-of-00002.gguf", Part(0, 2, "a"));
  EXPECT_EQ(GgufFile::Open(first).status().code(), absl::StatusCode::kNotFound);
  directory.Write("m-00002-of-00002.gguf", Part(0, 2, "b"));
  EXPECT_THAT(GgufFile::Open(first).status().message(), HasSubstr("it must be part 2 of 2"));
  directory.Write("m-00002-of-00002.gguf", Part(1, 2, "a"));
  EXPECT_THAT(GgufFile::Open(first).status().message(), HasSubstr("in an earlier file"));
  directory.Write("alone.gguf", Part(0, 2, "a"));
  EXPECT_THAT(GgufFile::Open((directory.path() / "alone.gguf").string()).status().message(),
              HasSubstr("named NAME-00001-of-00002.gguf"));
}

// A file of zeros in which a metadata array takes `bytes`; it takes no room on the disk.
void WriteSparsePart(const TempDirectory& directory, uint32_t number, uint32_t count,
                     uint64_t bytes) {
  GgufWriter writer;
  writer.Set("split.no", number);
  writer.Set("split.count", count);
  writer.Raw("zeros", 9, testing::GgufNumber<uint32_t>(0) + testing::GgufNumber(bytes));
  const std::string name = absl::StrFormat("m-%05d-of-%05d.gguf", number + 1, count);
  const std::string header = writer.Header();
  directory.Write(name, header);
  std::filesystem::resize_file(directory.path() / name, header.size() + bytes);
}

// A set of 1,024 files could otherwise ask for that many times the memory of one.
TEST(GgufFileTest, BoundsTheHeadersOfAllFilesTogether) {
  const TempDirectory directory;
  const auto open = [&] {
    return GgufFile::Open((directory.path() / "m-00003-of-00003.gguf").string());
  };
  for (uint32_t i = 0; i < 3; ++i) WriteSparsePart(directory, i, 3, i < 2 ? 130 << 20 : 1000);
  const auto refused = open();
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted) << refused.status();
  EXPECT_THAT(refused.status().message(),
              AllOf(HasSubstr("m-00002-of-00003.gguf: its header has more than "),
                    HasSubstr("allowed: 268435456 bytes for the headers of all files")));
  for (uint32_t i = 0; i < 3; ++i) WriteSparsePart(directory, i, 3, 1000);
  EXPECT_TRUE(open().ok()) << open().status();
}

TEST(GgufFileTest, NamesTheModelsOfAFolderWithSeveral) {
  const TempDirectory directory;
  EXPECT_FALSE(FindGgufFile(directory.path().string())->has_value());
  directory.Write("mmproj-x.gguf", "");
  directory.Write("a.gguf", "");
  EXPECT_TRUE(FindGgufFile(directory.path().string())->has_value());
  directory.Write("b.gguf", "");
  EXPECT_THAT(FindGgufFile(directory.path().string()).status().message(),
              HasSubstr("has 2 GGUF models (a.gguf, b.gguf)"));
}

TEST(GgufFileTest, NoticesAFileThatChangedAfterItWasOpened) {
  const TempDirectory directory;
  directory.Write("m.gguf", Part(0, 1, "a"));
  const std::string path = (directory.path() / "m.gguf").string();
  const auto file = GgufFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::filesystem::resize_file(path, 40);
  const auto values = (*file)->ReadAsFloat(*(*file)->FindTensor("a"));
  EXPECT_EQ(values.status().code(), absl::StatusCode::kDataLoss);
}

// Headers larger than the first part that is read.
TEST(GgufFileTest, ReadsALargeHeader) {
  GgufWriter writer;
  std::vector<std::string> tokens;
  for (int i = 0; i < 200000; ++i) tokens.push_back(absl::StrCat("token ", i));
  writer.Set("tokens", tokens);
  writer.AddFloats("a", {1}, {3});
  const TempDirectory directory;
  directory.Write("m.gguf", writer.File());
  const auto file = GgufFile::Open((directory.path() / "m.gguf").string());
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->Find("tokens")->texts.back(), "token 199999");
  EXPECT_EQ(*(*file)->ReadAsFloat(*(*file)->FindTensor("a")), (std::vector<float>{3}));
}

}  // namespace
}  // namespace annulus
