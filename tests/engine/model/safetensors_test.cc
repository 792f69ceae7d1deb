#include "engine/model/files/safetensors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/engine/model/safetensors_writer.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using ::testing::ElementsAre;
using testing::FileWithLength;
using ::testing::HasSubstr;
using testing::SafetensorsFile;
using testing::StoredFloats;

class SafetensorsTest : public ::testing::Test {
 protected:
  auto Open() const { return SafetensorsCheckpoint::Open(directory_.path().string()); }

  // Expects Open to fail so; `part`s are in the message.
  void ExpectRefused(absl::StatusCode code, const std::string& part) const {
    const auto checkpoint = Open();
    EXPECT_EQ(checkpoint.status().code(), code) << checkpoint.status();
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr(part));
  }

  void WriteSingle(const std::string& content) const {
    directory_.Write("model.safetensors", content);
  }
  void WriteIndex(const std::string& weight_map) const {
    directory_.Write(
        "model.safetensors.index.json",
        absl::StrCat("{\"metadata\":{\"total_size\":1},\"weight_map\":", weight_map, "}"));
  }
  std::string Path(const std::string& name) const { return (directory_.path() / name).string(); }

  testing::TempDirectory directory_;
};

TEST_F(SafetensorsTest, ReadsASingleFile) {
  WriteSingle(SafetensorsFile({{"w", {2, 2}, {1, 2, 3, 4}}, {"b", {2}, {5, 6}}}));
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT((*checkpoint)->Names(), ElementsAre("b", "w"));
  EXPECT_TRUE((*checkpoint)->Has("w"));
  EXPECT_FALSE((*checkpoint)->Has("x"));
  const auto info = (*checkpoint)->Describe("w");
  ASSERT_TRUE(info.ok());
  EXPECT_THAT(info->shape, ElementsAre(2, 2));
  EXPECT_EQ(info->elements(), 4);
  EXPECT_EQ(info->bytes(), 16u);
  EXPECT_THAT(ReadAsFloat(**checkpoint, "w").value(), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(ReadAsFloat(**checkpoint, "b").value(), ElementsAre(5, 6));
  EXPECT_EQ(ReadAsFloat(**checkpoint, "x").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(SafetensorsTest, WidensHalfPrecision) {
  WriteSingle(
      FileWithLength("{\"h\":{\"dtype\":\"F16\",\"shape\":[1],\"data_offsets\":[0,2]},"
                     "\"l\":{\"dtype\":\"BF16\",\"shape\":[1],\"data_offsets\":[2,4]}}",
                     std::string("\x00\x3c\xc0\x3f", 4)));
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT(ReadAsFloat(**checkpoint, "h").value(), ElementsAre(1));
  EXPECT_THAT(ReadAsFloat(**checkpoint, "l").value(), ElementsAre(1.5));
}

TEST_F(SafetensorsTest, NamesTypesThatItDoesNotServeWhenAsked) {
  WriteSingle(
      FileWithLength("{\"n\":{\"dtype\":\"I64\",\"shape\":[1],\"data_offsets\":[0,8]},"
                     "\"q\":{\"dtype\":\"F8_E4M3\",\"shape\":[1],\"data_offsets\":[8,9]}}",
                     std::string(9, 'x')));
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  const auto info = (*checkpoint)->Describe("n");
  EXPECT_EQ(info.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("is I64; supported: F32, BF16, F16"));
  EXPECT_EQ(ReadAsFloat(**checkpoint, "q").status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(SafetensorsTest, RefusesFilesTooShortForALength) {
  for (size_t length = 0; length < 8; ++length) {
    WriteSingle(std::string(length, '\1'));
    ExpectRefused(absl::StatusCode::kInvalidArgument, absl::StrCat("has ", length, " bytes"));
  }
}

TEST_F(SafetensorsTest, RefusesEveryWrongHeaderLength) {
  const std::string file = SafetensorsFile({{"w", {1}, {1}}});
  const uint64_t right = file.size() - 8 - 4;
  for (const uint64_t length :
       {uint64_t{0}, right + 1, right - 1, right + 5, uint64_t{100'000'000}, uint64_t{100'000'001},
        uint64_t{1} << 63, ~uint64_t{0}, ~uint64_t{0} - 7}) {
    std::string lying = file;
    std::memcpy(lying.data(), &length, 8);
    WriteSingle(lying);
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kInvalidArgument) << length;
  }
  WriteSingle(file);
  EXPECT_TRUE(Open().ok());
}

TEST_F(SafetensorsTest, HeaderMayHaveUpTo100MillionBytes) {
  for (const uint64_t length : {uint64_t{100'000'000}, uint64_t{100'000'001}}) {
    std::string file(reinterpret_cast<const char*>(&length), 8);
    WriteSingle(file + "{}" + std::string(length - 2, ' '));
    EXPECT_EQ(Open().ok(), length == 100'000'000);
  }
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "the header length is 100000001; allowed: 1 to");
}

TEST_F(SafetensorsTest, RefusesEveryTruncatedFile) {
  const std::string file = SafetensorsFile({{"w", {2}, {1, 2}}, {"v", {1}, {3}}});
  for (size_t length = 0; length < file.size(); ++length) {
    WriteSingle(file.substr(0, length));
    EXPECT_EQ(Open().status().code(), absl::StatusCode::kInvalidArgument) << length;
  }
  WriteSingle(file + "x");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "the tensors end at byte 12 of the data");
}

TEST_F(SafetensorsTest, TruncationAfterOpeningIsDataLoss) {
  WriteSingle(SafetensorsFile({{"w", {1024, 64}, std::vector<float>(65536, 1)}}));
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok());
  EXPECT_TRUE(ReadAsFloat(**checkpoint, "w").ok());
  ASSERT_EQ(truncate(Path("model.safetensors").c_str(), 4096), 0);
  const auto values = ReadAsFloat(**checkpoint, "w");
  EXPECT_EQ(values.status().code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(std::string(values.status().message()), HasSubstr("it was truncated"));
}

TEST_F(SafetensorsTest, RewritingAfterOpeningIsDataLoss) {
  WriteSingle(SafetensorsFile({{"w", {2}, {1, 2}}}));
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok());
  WriteSingle(SafetensorsFile({{"w", {2}, {3, 4}}}));
  std::filesystem::last_write_time(
      Path("model.safetensors"),
      std::filesystem::file_time_type::clock::now() + std::chrono::hours(1));
  EXPECT_EQ(ReadAsFloat(**checkpoint, "w").status().code(), absl::StatusCode::kDataLoss);
}

TEST_F(SafetensorsTest, ReadsShards) {
  directory_.Write("a.safetensors", SafetensorsFile({{"x", {1}, {1}}, {"y", {1}, {2}}}));
  directory_.Write("b.safetensors", SafetensorsFile({{"w", {2}, {3, 4}}}));
  WriteIndex("{\"w\":\"b.safetensors\",\"x\":\"a.safetensors\",\"y\":\"a.safetensors\"}");
  const auto checkpoint = Open();
  ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
  EXPECT_THAT((*checkpoint)->Names(), ElementsAre("w", "x", "y"));
  EXPECT_THAT(ReadAsFloat(**checkpoint, "w").value(), ElementsAre(3, 4));
  EXPECT_THAT(ReadAsFloat(**checkpoint, "y").value(), ElementsAre(2));
}

TEST_F(SafetensorsTest, RefusesMissingShards) {
  WriteIndex("{\"w\":\"b.safetensors\"}");
  ExpectRefused(absl::StatusCode::kNotFound, "b.safetensors: no such file");
  ExpectRefused(absl::StatusCode::kNotFound, "shard of tensor \"w\"");
}

TEST_F(SafetensorsTest, RefusesATensorInTwoShards) {
  directory_.Write("a.safetensors", SafetensorsFile({{"x", {1}, {1}}, {"w", {1}, {2}}}));
  directory_.Write("b.safetensors", SafetensorsFile({{"w", {1}, {3}}}));
  WriteIndex("{\"x\":\"a.safetensors\",\"w\":\"b.safetensors\"}");
  ExpectRefused(absl::StatusCode::kInvalidArgument, "tensor \"w\" is in two files");
}

TEST_F(SafetensorsTest, RefusesATensorThatItsShardLacks) {
  directory_.Write("a.safetensors", SafetensorsFile({{"x", {1}, {1}}}));
  WriteIndex("{\"x\":\"a.safetensors\",\"w\":\"a.safetensors\"}");
  ExpectRefused(absl::StatusCode::kInvalidArgument,
                "\"w\" is in a.safetensors, but that file lacks");
}

TEST_F(SafetensorsTest, RefusesShardNamesThatLeaveTheDirectory) {
  const std::string outside = "outside.safetensors";
  directory_.Write(outside, SafetensorsFile({{"w", {1}, {1}}}));
  std::filesystem::create_directory(directory_.path() / "model");
  const testing::TempDirectory& root = directory_;
  for (const std::string& name :
       {std::string("../outside.safetensors"), Path(outside), std::string("./../x.safetensors"),
        std::string("sub/x.safetensors"), std::string("/etc/x.safetensors"),
        std::string("a\\u0000.safetensors"), std::string(300, 'a') + ".safetensors"}) {
    root.Write("model/model.safetensors.index.json",
               absl::StrCat("{\"weight_map\":{\"w\":\"", name, "\"}}"));
    const auto checkpoint = SafetensorsCheckpoint::Open(Path("model"));
    EXPECT_EQ(checkpoint.status().code(), absl::StatusCode::kInvalidArgument) << name;
    EXPECT_THAT(std::string(checkpoint.status().message()), HasSubstr("a plain name"));
  }
}

TEST_F(SafetensorsTest, RefusesMalformedIndexes) {
  const auto expect = [&](const std::string& index, const std::string& part) {
    directory_.Write("model.safetensors.index.json", index);
    ExpectRefused(absl::StatusCode::kInvalidArgument, part);
  };
  expect("", "not valid JSON");
  expect("[]", "weight_map is missing");
  expect("{}", "weight_map is missing");
  expect("{\"weight_map\":[]}", "weight_map is missing");
  expect("{\"weight_map\":{\"w\":1}}", "the shard 1; allowed: the name of a .safetensors file");
  expect("{\"weight_map\":{\"w\":\"w.bin\"}}", "allowed: the name of a .safetensors file");
  expect("{\"weight_map\":{\"w\":\"a.safetensors\",\"\\u0077\":\"b.safetensors\"}}", "given twice");
  expect("{\"weight_map\":" + std::string(100'000, '['), "nested more than 64 levels");
}

// In the cache of Hugging Face every file is a link to a blob in another folder.
TEST_F(SafetensorsTest, FollowsLinksToRegularFiles) {
  const auto cache = directory_.path();
  std::filesystem::create_directories(cache / "blobs");
  std::filesystem::create_directories(cache / "snapshots" / "main");
  const auto link = [&](const std::string& blob, const std::string& name) {
    std::filesystem::create_symlink("../../blobs/" + blob, cache / "snapshots" / "main" / name);
  };
  directory_.Write("blobs/b1", SafetensorsFile({{"w", {1}, {7}}}));
  directory_.Write("blobs/b2", R"({"weight_map":{"w":"a.safetensors"}})");
  link("b1", "a.safetensors");
  link("b2", "model.safetensors.index.json");
  std::filesystem::create_directory_symlink("snapshots/main", cache / "latest");
  for (const char* directory : {"snapshots/main", "latest"}) {
    const auto checkpoint = SafetensorsCheckpoint::Open(Path(directory));
    ASSERT_TRUE(checkpoint.ok()) << checkpoint.status();
    EXPECT_THAT(ReadAsFloat(**checkpoint, "w").value(), ElementsAre(7));
  }
}

TEST_F(SafetensorsTest, RefusesLinksThatEndInNoRegularFile) {
  const auto file = directory_.path() / "model.safetensors";
  const auto expect = [&](const std::string& target, const std::string& part) {
    std::filesystem::remove(file);
    std::filesystem::create_symlink(target, file);
    ExpectRefused(absl::StatusCode::kFailedPrecondition, part);
  };
  ASSERT_EQ(mkfifo(Path("pipe").c_str(), 0600), 0);
  expect("pipe", "is not a regular file");
  expect("/dev/zero", "is not a regular file");
  expect(".", "is not a regular file");
  expect("model.safetensors", "leads back to itself");
  expect("../gone\n", "is a symbolic link to \"../gone\\n\", which does not exist");
  // As a shard too.
  std::filesystem::remove(file);
  std::filesystem::create_symlink("pipe", directory_.path() / "a.safetensors");
  WriteIndex("{\"w\":\"a.safetensors\"}");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is not a regular file");
}

TEST_F(SafetensorsTest, RefusesPipesAndDirectoriesWithoutBlocking) {
  ASSERT_EQ(mkfifo(Path("model.safetensors").c_str(), 0600), 0);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is not a regular file");
  std::filesystem::remove(directory_.path() / "model.safetensors");
  std::filesystem::create_directory(directory_.path() / "model.safetensors");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "is not a regular file");
}

TEST_F(SafetensorsTest, NamesFormatsThatItDoesNotServe) {
  ExpectRefused(absl::StatusCode::kNotFound, "neither model.safetensors nor");
  directory_.Write("model-q4.gguf", "GGUF");
  ExpectRefused(absl::StatusCode::kUnimplemented, "model-q4.gguf is a GGUF file");
  EXPECT_EQ(SafetensorsCheckpoint::Open(Path("model-q4.gguf")).status().code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(SafetensorsCheckpoint::Open(Path("absent")).status().code(),
            absl::StatusCode::kNotFound);
  std::filesystem::remove(directory_.path() / "model-q4.gguf");
  directory_.Write("pytorch_model.bin", "x");
  ExpectRefused(absl::StatusCode::kUnimplemented, "PyTorch pickle");
  ExpectRefused(absl::StatusCode::kUnimplemented, "safetensors files as F32, BF16, F16");
}

}  // namespace
}  // namespace annulus
