#ifndef ANNULUS_BENCH_GPU_OP_INPUTS_H_
#define ANNULUS_BENCH_GPU_OP_INPUTS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/gpu/op_times.h"
#include "kernels/backend.h"
#include "kernels/registry.h"

namespace annulus::bench {

// Keys, values and queries of one layer, all over the device's memory.
struct Sequence {
  KvPageShape shape;
  std::vector<KvPageView> pages;
  std::vector<int32_t> positions;  // of the query rows
  DeviceBuffer slab;
  DeviceBuffer query;  // [rows, heads * head_dim]
  DeviceBuffer o;
  DeviceBuffer lse;
};

// Lists of 64-token blocks for every 64 rows: the diagonal and others drawn at random.
struct Lists {
  std::vector<int32_t> rows;
  std::vector<int32_t> offsets{0};
  std::vector<int32_t> pages;
  double density = 0;  // share of the causal blocks

  BlockLists view() const { return {false, 1, rows, offsets, pages}; }
};
Lists DrawLists(int32_t tokens, double density);

// The same normal numbers in every call.
std::vector<float> Normal(size_t count, float deviation = 1);

// Products of some rows with weights of one shape, which they take in turn.
class TurnedProducts {
 public:
  // `weights` must outlive this; at least one.
  TurnedProducts(const std::vector<PackedMatrix>& weights, DeviceBuffer input, DeviceBuffer output,
                 int64_t rows);

  DeviceBuffer& output() { return output_; }
  absl::Status Multiply(Stream& stream, const OpTable& ops);

 private:
  const std::vector<PackedMatrix>& weights_;
  DeviceBuffer input_;
  DeviceBuffer output_;
  LinearParams params_;
  size_t next_ = 0;
};

// Makes what ops read, of random numbers, in the shapes of the options. Not thread-safe. What it
// was made of must outlive it.
class OpInputs {
 public:
  OpInputs(Backend& backend, const OpTable& ops, const OpTimesOptions& options, Stream& stream)
      : backend_(backend), ops_(ops), options_(options), stream_(stream) {}

  // So many normal numbers; some millions are drawn, and repeat.
  absl::StatusOr<DeviceBuffer> UploadNormal(size_t count);
  // `tokens` of keys and values; the last `rows` of them attend.
  absl::StatusOr<Sequence> MakeSequence(int32_t tokens, int32_t rows, DType dtype);
  AttentionItem ItemOf(Sequence& sequence, const BlockLists& lists) const;
  // Enqueues attention of an item of the sequence, by any table that can read its pages.
  absl::Status Attend(const OpTable& ops, Stream& stream, const Sequence& sequence,
                      const AttentionItem& item) const;
  // So many bytes of the same matrix that no cache holds what the next product reads.
  absl::StatusOr<std::vector<PackedMatrix>> MakeWeights(DType dtype, int64_t in, int64_t out);
  absl::StatusOr<TurnedProducts> MakeProducts(const std::vector<PackedMatrix>& weights,
                                              int64_t rows);

 private:
  absl::Status FillPages(int32_t tokens, Sequence& sequence);

  Backend& backend_;
  const OpTable& ops_;
  const OpTimesOptions& options_;
  Stream& stream_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_GPU_OP_INPUTS_H_
