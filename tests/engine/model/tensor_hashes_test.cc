#include "engine/model/files/tensor_hashes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"

namespace annulus {
namespace {

struct Bytes {
  TensorInfo info;
  std::vector<std::byte> data;
};

class MemorySource final : public TensorSource {
 public:
  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors) names.push_back(name);
    return names;
  }
  bool Has(absl::string_view name) const override { return tensors.contains(std::string(name)); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    return tensors.at(std::string(name)).info;
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    return ReadRange(name, 0, destination);
  }
  absl::Status ReadRange(absl::string_view name, size_t offset,
                         std::span<std::byte> destination) const override {
    if (name == unreadable) return absl::DataLossError("truncated");
    const std::vector<std::byte>& data = tensors.at(std::string(name)).data;
    std::copy_n(data.begin() + static_cast<ptrdiff_t>(offset), destination.size(),
                destination.begin());
    return absl::OkStatus();
  }

  std::map<std::string, Bytes> tensors;
  std::string unreadable;
};

// Rows below, at and above the size of a unit, one row, one number, nothing.
MemorySource Source() {
  MemorySource source;
  std::mt19937 random(7);
  int next = 0;
  for (const std::vector<int64_t>& shape : std::vector<std::vector<int64_t>>{
           {9000, 3}, {70, 1024}, {40, 1025}, {3, 50'000}, {12'345}, {5, 300, 16}, {}, {0, 4}}) {
    const TensorInfo info{DType::kF32, shape};
    Bytes tensor{info, std::vector<std::byte>(info.bytes())};
    for (std::byte& byte : tensor.data) byte = static_cast<std::byte>(random());
    source.tensors[absl::StrCat("t", next++)] = std::move(tensor);
  }
  return source;
}

std::string HashAll(const TensorSource& source) {
  HashingSource hashing(source);
  for (const std::string& name : source.Names()) {
    std::vector<std::byte> bytes(source.Describe(name)->bytes());
    EXPECT_TRUE(hashing.Read(name, bytes).ok());
  }
  return hashing.Finish().value();
}

TEST(TensorHashes, AnyChangedByteChangesTheHash) {
  MemorySource source = Source();
  const std::string before = HashAll(source);
  EXPECT_EQ(HashAll(source), before);
  std::set<std::string> seen = {before};
  std::mt19937 random(11);
  for (auto& [name, tensor] : source.tensors) {
    if (tensor.data.empty()) continue;
    for (const size_t at : {size_t{0}, random() % tensor.data.size(), tensor.data.size() - 1}) {
      const std::byte bit{static_cast<unsigned char>(1 << random() % 8)};
      tensor.data[at] ^= bit;
      const std::string changed = HashAll(source);
      EXPECT_NE(changed, before) << name << " at " << at;
      seen.insert(changed);
      tensor.data[at] ^= bit;
    }
  }
  EXPECT_GT(seen.size(), 16u);
}

TEST(TensorHashes, SwappedRowsNamesShapesAndDtypesChangeTheHash) {
  const std::string before = HashAll(Source());
  MemorySource rows = Source();
  std::vector<std::byte>& data = rows.tensors["t1"].data;
  std::swap_ranges(data.begin(), data.begin() + 4096, data.begin() + 4096);
  EXPECT_NE(HashAll(rows), before);
  MemorySource names = Source();
  std::swap(names.tensors["t1"], names.tensors["t2"]);
  EXPECT_NE(HashAll(names), before);
  MemorySource shape = Source();
  shape.tensors["t1"].info.shape = {1024, 70};
  EXPECT_NE(HashAll(shape), before);
  MemorySource dtype = Source();
  dtype.tensors["t1"].info = {DType::kBF16, {70, 2048}};
  EXPECT_NE(HashAll(dtype), before);
}

// Rows in any order, in blocks of any size, some twice, by several threads at once; the rest is
// read at the end.
TEST(TensorHashes, NeitherOrderNorCutsOfReadsMatter) {
  const MemorySource source = Source();
  const std::string expected = HashAll(source);
  for (uint32_t seed = 1; seed <= 20; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    HashingSource hashing(source);
    const auto work = [&](uint32_t own) {
      std::mt19937 random(own);
      for (int turn = 0; turn < 40; ++turn) {
        for (const auto& [name, tensor] : source.tensors) {
          const size_t size = tensor.data.size();
          const size_t offset = size == 0 ? 0 : random() % size;
          std::vector<std::byte> part(size == 0 ? 0 : random() % (size - offset) + 1);
          EXPECT_TRUE(hashing.ReadRange(name, offset, part).ok());
        }
      }
    };
    std::thread other(work, seed);
    work(1000 + seed);
    other.join();
    EXPECT_EQ(hashing.Finish().value(), expected);
  }
}

TEST(TensorHashes, WhatNobodyReadsIsLeftOutAndErrorsAreTheSources) {
  MemorySource source = Source();
  HashingSource hashing(source);
  std::vector<std::byte> part(100);
  ASSERT_TRUE(hashing.ReadRange("t1", 8, part).ok());
  const std::string one = hashing.Finish().value();
  source.tensors["t2"].data[0] ^= std::byte{1};
  HashingSource again(source);
  ASSERT_TRUE(again.ReadRange("t1", 50, part).ok());
  EXPECT_EQ(again.Finish().value(), one);
  source.unreadable = "t1";
  EXPECT_TRUE(absl::IsDataLoss(again.ReadRange("t1", 0, part)));
  HashingSource cut(source);
  source.unreadable = "";
  ASSERT_TRUE(cut.ReadRange("t1", 0, part).ok());
  source.unreadable = "t1";
  EXPECT_TRUE(absl::IsDataLoss(cut.Finish().status()));
}

}  // namespace
}  // namespace annulus
