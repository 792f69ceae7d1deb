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

namespace annulus {

// The ceilings of a machine that fractions refer to. Multiply-adds count two operations.
enum class PeakKind : uint8_t {
  kF32,         // float32 multiply-add
  kBF16,        // dot products of bf16 added to float32, vector instructions
  kI8,          // dot products of int8 added to int32, vector instructions
  kAmxBF16,     // the same by tile instructions
  kAmxI8,       //
  kExp,         // exp2 of float32, as a softmax needs it
  kMemoryRead,  // bytes read from a buffer far larger than the caches
};

// "f32", "bf16", "int8", "amx_bf16", "amx_int8", "exp", "memory_read".
absl::string_view PeakName(PeakKind kind);
// Inverse of PeakName; INVALID_ARGUMENT lists the known names.
absl::StatusOr<PeakKind> ParsePeak(absl::string_view name);
// "FLOP/s", "OP/s", "exp/s" or "B/s".
absl::string_view PeakUnit(PeakKind kind);

// A rate is the best of `rounds` medians, each of `slices` slices of about `slice_seconds` (one
// pass over the buffer for memory): on a shared machine a median drops what others disturbed for a
// moment, and the best round what they disturbed for longer.
struct PeakEffort {
  int rounds = 5;
  int slices = 9;
  double slice_seconds = 0.004;
};

// For a measurement before and after each run: about 0.05 s, 0.3 s for memory.
inline constexpr PeakEffort kQuickPeak{.rounds = 2, .slices = 5, .slice_seconds = 0.004};

// Bytes of the buffer of kMemoryRead: 1 GiB, on small machines an eighth of the memory.
size_t PeakBufferBytes();

// Host memory to read, every page touched, in huge pages where the system has them.
class ReadBuffer {
 public:
  // RESOURCE_EXHAUSTED where the system refuses.
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

// Measures the rates that hand-written loops reach with the best instructions that the processor
// has; what it lacks is absent, never zero. Thread-safe; measurements run on threads of their own.
class PeakMeter {
 public:
  // `read_bytes`: the buffer of kMemoryRead, at least 1 MiB.
  explicit PeakMeter(size_t read_bytes = PeakBufferBytes());

  // What can be measured here, in the order of PeakKind.
  std::vector<PeakKind> Available() const;
  bool Has(PeakKind kind) const;
  // "vdpbf16ps zmm"; only of available kinds.
  std::string Instructions(PeakKind kind) const;
  // What the processor has and the system refuses, for people; empty: nothing.
  const std::string& refused() const { return refused_; }

  // Operations (or bytes) per second of `threads` threads together, 1..256. Only of available
  // kinds. RESOURCE_EXHAUSTED where the system gives neither the threads nor the buffer.
  absl::StatusOr<double> Measure(PeakKind kind, int threads, const PeakEffort& effort) const;

  // For reads in between of something else: the buffer of kMemoryRead, and the bytes per second of
  // one pass over it. A shared machine's memory is faster and slower for parts of a second.
  absl::StatusOr<ReadBuffer> TakeReadBuffer() const { return ReadBuffer::Create(read_bytes_); }
  absl::StatusOr<double> ReadOnce(const ReadBuffer& buffer, int threads) const;

 private:
  std::optional<peak::OperationLoop> LoopOf(PeakKind kind) const;

  const size_t read_bytes_;
  peak::VectorLoops vectors_;
  std::optional<peak::OperationLoop> bf16_, int8_, amx_bf16_, amx_int8_;
  std::string refused_;
};

}  // namespace annulus

#endif  // ANNULUS_BENCH_PEAK_PEAK_METER_H_
