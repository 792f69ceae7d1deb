// What it takes to read and pack a matrix, as memory plans count it, is what the heap gives out.

#include <gtest/gtest.h>

#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/gguf/gguf_tensors.h"
#include "engine/model/experts/expert_cache.h"
#include "engine/model/made/random_tensors.h"
#include "engine/model/model_config.h"
#include "engine/model/weights/matrix_loader.h"
#include "engine/model/weights/weights.h"
#include "kernels/cpu/cpu_backend.h"
#include "kernels/cpu/register.h"
#include "tests/engine/gguf/gguf_writer.h"
#include "tests/support/counting_heap.h"
#include "tests/support/temp_directory.h"
#include "tests/support/test_data.h"

namespace annulus {
namespace {

using testing::HeapBytes;
using testing::TakeHeapBytesMost;

constexpr int64_t kRows = 768;
constexpr int64_t kCols = 2048;
// The heap rounds each of a few blocks up, at most to pages.
constexpr int64_t kRounding = 32 << 10;

// Tensors of zeros.
class Zeros final : public TensorSource {
 public:
  explicit Zeros(std::map<std::string, TensorInfo> tensors) : tensors_(std::move(tensors)) {}

  std::vector<std::string> Names() const override {
    std::vector<std::string> names;
    for (const auto& [name, info] : tensors_) names.push_back(name);
    return names;
  }
  bool Has(absl::string_view name) const override { return tensors_.contains(std::string(name)); }
  absl::StatusOr<TensorInfo> Describe(absl::string_view name) const override {
    const auto found = tensors_.find(std::string(name));
    if (found == tensors_.end()) return absl::NotFoundError(name);
    return found->second;
  }
  absl::Status Read(absl::string_view name, std::span<std::byte> destination) const override {
    return ReadRange(name, 0, destination);
  }
  absl::Status ReadRange(absl::string_view, size_t, std::span<std::byte> to) const override {
    std::memset(to.data(), 0, to.size());
    return absl::OkStatus();
  }
  size_t RangeMemory(absl::string_view, size_t) const override { return 0; }

 private:
  const std::map<std::string, TensorInfo> tensors_;
};

struct Form {
  const char* name;
  std::map<std::string, TensorInfo> tensors;
  StoredMatrix matrix;
};

// A matrix [kRows, kCols] in each form that MatrixReader reads.
std::vector<Form> Forms() {
  const StoredMatrix plain = {"m", {kRows, kCols}, kRows, kCols};
  StoredMatrix every_second = plain;
  every_second.shape = {2 * kRows, kCols};
  every_second.first = 1;
  every_second.step = 2;
  StoredMatrix slice = plain;
  slice.shape = {4, kRows, kCols};
  slice.slice = 2;
  StoredMatrix turned = every_second;
  turned.shape = {4, kCols, 2 * kRows};
  turned.slice = 2;
  turned.transposed = true;
  StoredMatrix heads = plain;
  heads.heads = {.rows = 96, .rotated = 96};
  const DType f32 = DType::kF32, bf16 = DType::kBF16, f16 = DType::kF16, i8 = DType::kI8;
  const DType f8 = DType::kF8E4M3;
  return {
      {"bf16", {{"m", {bf16, plain.shape}}}, plain},
      {"f32", {{"m", {f32, plain.shape}}}, plain},
      {"f16, every second row", {{"m", {f16, every_second.shape}}}, every_second},
      {"bf16, a slice", {{"m", {bf16, slice.shape}}}, slice},
      {"bf16, turned", {{"m", {bf16, turned.shape}}}, turned},
      {"bf16, heads", {{"m", {bf16, heads.shape}}}, heads},
      {"float8, a scale", {{"m", {f8, plain.shape}}, {"m_scale", {f32, {1}}}}, plain},
      {"float8, rows", {{"m", {f8, plain.shape}}, {"m_scale", {bf16, {kRows, 1}}}}, plain},
      {"float8, blocks", {{"m", {f8, plain.shape}}, {"m_scale_inv", {f32, {6, 16}}}}, plain},
      {"int8", {{"m", {i8, plain.shape}}, {"m_scale", {f32, {kRows, 1}}}}, plain},
      {"int4", {{"m", {i8, {kRows, kCols / 2}}}, {"m_scale", {bf16, {kRows, kCols / 32}}}}, plain},
      {"q8_0", {{"m", {i8, plain.shape}}, {"m_scale", {f16, {kRows, kCols / 32}}}}, plain},
      {"q4_1",
       {{"m", {i8, {kRows, kCols / 2}}}, {"m_scale", {f16, {kRows, kCols / 32, 2}}}},
       plain},
      {"MXFP4",
       {{"m_blocks", {i8, {4, 2 * kRows, kCols / 32, 16}}},
        {"m_scales", {i8, {4, 2 * kRows, kCols / 32}}}},
       turned},
  };
}

TEST(ExpertReadersHeap, AMatrixTakesWhatIsCounted) {
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  for (const OpTable* const ops : registry.Available("cpu")) {
    for (const Form& form : Forms()) {
      const Zeros source(form.tensors);
      MatrixReader reader(source, 128, 128);
      const auto own = reader.Check(form.matrix);
      ASSERT_TRUE(own.ok()) << form.name << own.status();
      const ReadingBytes counted = LoadingBytes(form.matrix, reader);
      for (const DType dtype : {*own, DType::kF32, DType::kBF16, DType::kI8, DType::kI4G32}) {
        SCOPED_TRACE(::testing::Message()
                     << ops->name << ", " << form.name << " as " << DTypeName(dtype));
        PackedMatrix target = CreateMatrix(*ops, *backend, kRows, kCols, dtype).value();
        MatrixReader fresh(source, 128, 128);
        const auto taken = [&] {
          const int64_t before = HeapBytes();
          TakeHeapBytesMost();
          const absl::Status loaded = LoadMatrix({&form.matrix, dtype, &target}, fresh, *ops);
          EXPECT_TRUE(loaded.ok()) << loaded;
          return TakeHeapBytesMost() - before;
        };
        const int64_t first = taken();
        EXPECT_LE(first, static_cast<int64_t>(counted.total()) + kRounding);
        EXPECT_GE(first, static_cast<int64_t>(counted.total()) / 2) << "it counts too much";
        ASSERT_TRUE(fresh.Reserve(counted).ok());
        EXPECT_LE(taken(), static_cast<int64_t>(counted.passing) + kRounding);
      }
    }
  }
}

// Steps take no more of the heap than the readers' part, and that only while they read.
TEST(ExpertReadersHeap, ExpertsThatComeTakeWhatIsPlanned) {
  const ModelConfig config =
      LoadModelConfig(testing::TestFile("golden/qwen3_moe").string()).value();
  const std::shared_ptr<const TensorSource> source = MakeRandomTensors(config, 3);
  const auto backend = CreateCpuBackend().value();
  KernelRegistry registry;
  RegisterCpuKernels(registry);
  const OpTable& ops = *registry.Available("cpu").front();
  const ModelWeights all = LoadWeights(config, *source, *backend, ops, std::nullopt).value();
  size_t expert = 0;
  const GatedWeights& one = all.layers[0].experts.each[0];
  for (const auto* each : {&one.gate, &one.up, &one.down}) {
    expert += AlignedMatrix(each->weight.storage.size());
  }
  const auto limit = static_cast<int64_t>(expert) * 2 * config.experts.routing.chosen;
  const ModelWeights weights = LoadWeights(config, *source, *backend, ops, std::nullopt,
                                           {limit, source, std::chrono::minutes(1)})
                                   .value();
  std::vector<int32_t> ends;  // every expert is needed
  for (int32_t e = 0; e <= config.experts.count; ++e) ends.push_back(e);
  const int64_t before = HeapBytes();
  TakeHeapBytesMost();
  for (int round = 0; round < 3; ++round) {
    ExpertCache::Walk walk(*weights.expert_cache, 0, ends);
    for (int32_t e = 0; e < config.experts.count; ++e) {
      const auto held = walk.Hold(e);
      ASSERT_TRUE(held.ok()) << held.status();
    }
  }
  const auto readers = static_cast<size_t>(ExpertReaders(backend->capabilities().threads));
  EXPECT_GT(weights.expert_cache->counts().misses, 0);
  EXPECT_LE(TakeHeapBytesMost() - before,
            static_cast<int64_t>(readers * weights.expert_reader_bytes));
}

// Bytes at `offset` of every tensor, of some lengths.
void CheckRanges(const TensorSource& source, const char* what) {
  for (const std::string& name : source.Names()) {
    const size_t bytes = source.Describe(name)->bytes();
    for (const size_t offset : {size_t{0}, bytes / 3 + 1}) {
      for (const size_t length : {bytes - offset, bytes / 2, size_t{1000}}) {
        if (offset + length > bytes) continue;
        SCOPED_TRACE(::testing::Message()
                     << what << " " << name << ", " << length << " bytes at " << offset);
        std::vector<std::byte> into(length);
        const int64_t before = HeapBytes();
        TakeHeapBytesMost();
        ASSERT_TRUE(source.ReadRange(name, offset, into).ok());
        const int64_t taken = TakeHeapBytesMost() - before;
        const auto counted = static_cast<int64_t>(source.RangeMemory(name, length));
        EXPECT_LE(taken, counted + kRounding);
        EXPECT_LE(counted, 4 * taken + kRounding) << "it counts too much";
      }
    }
  }
}

TEST(ExpertReadersHeap, ARangeOfRandomWeightsTakesWhatIsCounted) {
  ModelConfig config = LoadModelConfig(testing::TestFile("golden/qwen3_moe").string()).value();
  config.vocabulary = 50'000;
  CheckRanges(*MakeRandomTensors(config, 1), "random");
}

TEST(ExpertReadersHeap, ARangeOfAGgufFileTakesWhatIsCounted) {
  testing::GgufWriter writer;
  writer.Set("general.architecture", "llama");
  writer.Set("llama.attention.head_count", 2u);
  writer.Set("llama.expert_count", 2u);
  constexpr int64_t kExperts = 2;
  constexpr int64_t kFewRows = 384;
  // By the number of the type: F32, BF16, Q4_0, Q4_1, Q8_0, Q4_K.
  const std::pair<uint32_t, size_t> types[] = {{0, 4 * 256}, {30, 2 * 256}, {2, 18 * 8},
                                               {3, 20 * 8},  {8, 34 * 8},   {12, 144}};
  int layer = 0;
  for (const auto& [type, bytes_of_256] : types) {
    const std::string prefix = "blk." + std::to_string(layer++) + ".";
    const auto zeros = [&, each = bytes_of_256](int64_t matrices) {
      return std::string(static_cast<size_t>(matrices * kFewRows * kCols / 256) * each, '\0');
    };
    writer.AddTensor(prefix + "ffn_gate_exps.weight", {kExperts, kFewRows, kCols}, type,
                     zeros(kExperts));
    // Its heads are in another order.
    writer.AddTensor(prefix + "attn_q.weight", {kFewRows, kCols}, type, zeros(1));
  }
  const testing::TempDirectory directory;
  directory.Write("m.gguf", writer.File());
  const std::shared_ptr<const GgufFile> file =
      GgufFile::Open((directory.path() / "m.gguf").string()).value();
  const GgufFamily family = *FindGgufFamily(*file);
  for (const auto codes : {GgufTensors::Codes::kKeep, GgufTensors::Codes::kWiden}) {
    const auto tensors = GgufTensors::Create(file, family, codes);
    ASSERT_TRUE(tensors.ok()) << tensors.status();
    CheckRanges(**tensors, codes == GgufTensors::Codes::kKeep ? "kept" : "widened");
  }
}

}  // namespace
}  // namespace annulus
