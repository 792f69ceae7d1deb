#ifndef ANNULUS_BENCH_PEAK_PEAK_METER_H_
#define ANNULUS_BENCH_PEAK_PEAK_METER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "bench/peak/loops.h"

namespace annulus::bench {

// The kinds of ceilings that fractions refer to. A multiply-add counts as two operations.
enum class PeakKind : uint8_t {
  kF32,         // float32 multiply-add
  kBF16,        // dot products of bf16 added to float32, vector instructions
  kI8,          // dot products of int8 added to int32, vector instructions
  kAmxBF16,     // like kBF16, with tile instructions
  kAmxI8,       // like kI8, with tile instructions
  kExp,         // exp2 of float32, as a softmax needs it
  kMemoryRead,  // bytes read from a buffer far larger than the caches
};

// "f32", "bf16", "int8", "amx_bf16", "amx_int8", "exp", "memory_read".
absl::string_view PeakName(PeakKind kind);
// Inverse of PeakName; INVALID_ARGUMENT lists the known names.
absl::StatusOr<PeakKind> ParsePeak(absl::string_view name);
// "FLOP/s", "OP/s", "exp/s" or "B/s".
absl::string_view PeakUnit(PeakKind kind);

// How thoroughly to measure. A rate is the best of `rounds` medians, each over `slices` slices of
// about `slice_seconds` (for memory: one pass over the buffer). On a shared machine the median
// removes short disturbances, and the best round removes longer ones.
struct PeakEffort {
  int rounds = 5;
  int slices = 9;
  double slice_seconds = 0.004;
};

// For measurements before and after each run: takes about 0.05 s, for memory 0.3 s.
inline constexpr PeakEffort kQuickPeak{.rounds = 2, .slices = 5, .slice_seconds = 0.004};

// Size of the buffer for kMemoryRead: 1 GiB, or an eighth of the memory on small machines.
size_t PeakBufferBytes();

// Host memory to read. Every page has been touched; in huge pages if the system has them.
class ReadBuffer {
 public:
  // RESOURCE_EXHAUSTED if the system refuses.
  static absl::StatusOr<ReadBuffer> Create(size_t bytes);
  ReadBuffer(ReadBuffer&& other) noexcept : data_(other.data_), bytes_(other.bytes_) {
    other.data_ = nullptr;
  }
  ReadBuffer& operator=(ReadBuffer&&) = delete;
  ~ReadBuffer();

  const float* floats() const { return static_cast<const float*>(data_); }
  int64_t count() const { return static_cast<int64_t>(bytes_ / sizeof(float)); }
  size_t bytes() const { return bytes_; }

 private:
  ReadBuffer(void* data, size_t bytes) : data_(data), bytes_(bytes) {}
  void* data_;
  size_t bytes_;
};

// Measures the rates that hand-written loops reach with the best instructions of the processor.
// Kinds that the processor lacks are unavailable; their rate is never reported as zero.
// Thread-safe; measurements run on threads of their own.
class PeakMeter {
 public:
  // `read_bytes` is the size of the buffer for kMemoryRead, at least 1 MiB.
  explicit PeakMeter(size_t read_bytes = PeakBufferBytes());

  // The kinds that can be measured here, in the order of PeakKind.
  std::vector<PeakKind> Available() const;
  bool Has(PeakKind kind) const;
  // Such as "vdpbf16ps zmm". Only for available kinds.
  std::string Instructions(PeakKind kind) const;
  // A message about what the processor has but the system refuses; empty if nothing.
  const std::string& refused() const { return refused_; }

  // Operations (or bytes) per second of `threads` threads together, 1..256. Only for available
  // kinds. RESOURCE_EXHAUSTED if the system refuses the threads or the buffer.
  absl::StatusOr<double> Measure(PeakKind kind, int threads, const PeakEffort& effort) const;

  // For measuring memory between runs of something else: the buffer of kMemoryRead, and the bytes
  // per second of one pass over it. A shared machine's memory is faster and slower for parts of a
  // second.
  absl::StatusOr<ReadBuffer> TakeReadBuffer() const { return ReadBuffer::Create(read_bytes_); }
  absl::StatusOr<double> ReadOnce(const ReadBuffer& buffer, int threads) const;

 private:
  std::optional<peak::OperationLoop> LoopOf(PeakKind kind) const;

  const size_t read_bytes_;
  peak::VectorLoops vectors_;
  std::optional<peak::OperationLoop> bf16_, int8_, amx_bf16_, amx_int8_;
  std::string refused_;
};

}  // namespace annulus::bench

#endif  // ANNULUS_BENCH_PEAK_PEAK_METER_H_
