// Matrices of the types that kernels read as they are: codes and scales give the values that
// widening the file's blocks gives, bit for bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/gguf/gguf_families.h"
#include "engine/gguf/gguf_file.h"
#include "engine/gguf/gguf_tensors.h"
#include "engine/model/weights/matrix_reader.h"
#include "kernels/base/row_converter.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/temp_directory.h"

namespace annulus {
namespace {

using testing::GgufNumber;
using testing::GgufWriter;
using testing::TempDirectory;

constexpr uint32_t kQ40 = 2, kQ41 = 3, kQ50 = 6, kQ80 = 8;
constexpr int64_t kCols = 96;

struct Matrix {
  const char* stored;  // the file's name for it
  std::vector<int64_t> shape;
  uint32_t type;
  const char* ours;
  DType kept;
};

// Of two heads of 8 rows, and experts of which each is a matrix.
const Matrix kMatrices[] = {
    {"token_embd.weight", {37, kCols}, kQ80, "model.embed_tokens.weight", DType::kQ8_0},
    {"output.weight", {37, kCols}, kQ50, "lm_head.weight", DType::kBF16},
    {"blk.0.attn_q.weight",
     {16, kCols},
     kQ40,
     "model.layers.0.self_attn.q_proj.weight",
     DType::kQ4_0},
    {"blk.0.attn_k.weight",
     {16, kCols},
     kQ41,
     "model.layers.0.self_attn.k_proj.weight",
     DType::kQ4_1},
    {"blk.1.attn_k.weight",
     {16, kCols},
     kQ80,
     "model.layers.1.self_attn.k_proj.weight",
     DType::kQ8_0},
    {"blk.0.ffn_down.weight",
     {5, kCols},
     kQ41,
     "model.layers.0.mlp.down_proj.weight",
     DType::kQ4_1},
    {"blk.0.ffn_gate_exps.weight",
     {3, 5, kCols},
     kQ40,
     "model.layers.0.block_sparse_moe.experts.2.w1.weight",
     DType::kQ4_0},
};

// Random codes, -128 too, and finite scales and minimums.
std::string Blocks(const Matrix& matrix, std::mt19937& random) {
  const GgufType& type = *FindGgufType(matrix.type);
  const size_t numbers = matrix.type == kQ41 ? 2 : 1;
  int64_t blocks = 1;
  for (const int64_t size : matrix.shape) blocks *= size;
  blocks /= type.block;
  std::string bytes;
  for (int64_t block = 0; block < blocks; ++block) {
    std::string one;
    for (size_t i = 0; i < numbers; ++i) {
      one += GgufNumber(static_cast<uint16_t>(random() & 0xbfff));  // no infinity, no NaN
    }
    while (one.size() < type.bytes) one.push_back(static_cast<char>(random()));
    one.back() = static_cast<char>(0x80);
    bytes += one;
  }
  return bytes;
}

class GgufKeptCodes : public ::testing::Test {
 protected:
  void SetUp() override {
    std::mt19937 random(7);
    GgufWriter writer;
    writer.Set("general.architecture", "llama");
    writer.Set("llama.attention.head_count", 2u);
    writer.Set("llama.expert_count", 3u);
    for (const Matrix& matrix : kMatrices) {
      writer.AddTensor(matrix.stored, matrix.shape, matrix.type, Blocks(matrix, random));
    }
    directory_.Write("m.gguf", writer.File());
    auto file = GgufFile::Open((directory_.path() / "m.gguf").string());
    ASSERT_TRUE(file.ok()) << file.status();
    file_ = *std::move(file);
    const auto family = FindGgufFamily(*file_);
    ASSERT_TRUE(family.ok()) << family.status();
    auto kept = GgufTensors::Create(file_, *family, GgufTensors::Codes::kKeep);
    auto widened = GgufTensors::Create(file_, *family, GgufTensors::Codes::kWiden);
    ASSERT_TRUE(kept.ok() && widened.ok()) << kept.status() << widened.status();
    kept_ = *std::move(kept);
    widened_ = *std::move(widened);
  }

  TempDirectory directory_;
  std::shared_ptr<const GgufFile> file_;
  std::unique_ptr<GgufTensors> kept_;
  std::unique_ptr<GgufTensors> widened_;
};

TEST_F(GgufKeptCodes, AreTheValuesOfTheFile) {
  MatrixReader reader(*kept_, 128, 128);
  for (const Matrix& matrix : kMatrices) {
    SCOPED_TRACE(matrix.stored);
    StoredMatrix stored;
    stored.name = matrix.ours;
    stored.rows = matrix.shape[matrix.shape.size() - 2];
    stored.cols = kCols;
    stored.shape = {stored.rows, kCols};
    const auto dtype = reader.Check(stored);
    ASSERT_TRUE(dtype.ok()) << dtype.status();
    EXPECT_EQ(*dtype, matrix.kept);
    const auto wanted = ReadAsFloat(*widened_, matrix.ours);
    ASSERT_TRUE(wanted.ok()) << wanted.status();
    for (const int64_t first : {int64_t{0}, int64_t{3}}) {
      const int64_t count = stored.rows - first;
      const auto rows = reader.Read(stored, first, count);
      ASSERT_TRUE(rows.ok()) << rows.status();
      RowConverter converter(*rows, DType::kF32);
      for (int64_t r = 0; r < count; ++r) {
        std::vector<float> row(kCols);
        ASSERT_TRUE(
            converter.Convert(r, reinterpret_cast<std::byte*>(row.data()), nullptr, nullptr).ok());
        for (int64_t c = 0; c < kCols; ++c) {
          float value = (*wanted)[static_cast<size_t>((first + r) * kCols + c)];
          if (matrix.kept == DType::kBF16) value = ToFloat(ToBFloat16(value));
          ASSERT_EQ(row[static_cast<size_t>(c)], value) << "row " << first + r << " column " << c;
        }
      }
    }
  }
}

TEST_F(GgufKeptCodes, MatricesThatLoseTheirCodesAreCountedByType) {
  using Counts = std::map<std::string, int>;
  EXPECT_EQ(kept_->widened(), (Counts{{"Q5_0", 1}}));
  EXPECT_EQ(widened_->widened(), (Counts{{"Q4_0", 2}, {"Q4_1", 2}, {"Q5_0", 1}, {"Q8_0", 2}}));
}

// The parts that threads read begin and end anywhere.
TEST_F(GgufKeptCodes, AreReadInPartsAsWhole) {
  for (const std::string& name : kept_->Names()) {
    const TensorInfo info = *kept_->Describe(name);
    std::vector<std::byte> whole(info.bytes());
    ASSERT_TRUE(kept_->Read(name, whole).ok());
    const size_t begin = whole.size() / 3, end = whole.size() - whole.size() / 5;
    std::vector<std::byte> part(end - begin);
    ASSERT_TRUE(kept_->ReadRange(name, begin, part).ok());
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin, part.size()), 0) << name;
  }
}

}  // namespace
}  // namespace annulus
