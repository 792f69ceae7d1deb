#include "bench/kernels/cpu_clock.h"

#include <time.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "bench/peak/amx_access.h"
#include "bench/peak/loops.h"

namespace annulus::bench {
namespace {

// Far larger than a second-level cache; the third level of a server may hold it, so that reads are
// as fast as the caches of one process allow: see bench/LABS.md.
constexpr int64_t kReadFloats = int64_t{64} << 20;

// Runs `body` on every thread and gives CPU seconds over all of them.
template <class Body>
double TimeThreads(int threads, const Body& body) {
  const double start = ProcessCpuSeconds();
  std::vector<std::thread> others;
  for (int t = 1; t < threads; ++t) others.emplace_back([&body, t] { body(t); });
  body(0);
  for (std::thread& other : others) other.join();
  return ProcessCpuSeconds() - start;
}

absl::StatusOr<peak::OperationLoop> LoopOf(Bound bound) {
#if defined(__x86_64__)
  const bool tiles = bound == Bound::kAmxBF16 || bound == Bound::kAmxI8;
  if (tiles && peak::RequestAmx() == peak::AmxAccess::kGranted) {
    return bound == Bound::kAmxI8 ? peak::AmxInt8Loop() : peak::AmxBf16Loop();
  }
  if (bound == Bound::kI8 && __builtin_cpu_supports("avx512vnni")) return peak::Avx512VnniLoop();
  if (bound == Bound::kBF16 && __builtin_cpu_supports("avx512bf16")) return peak::Avx512Bf16Loop();
  if (bound == Bound::kF32 && __builtin_cpu_supports("avx512f")) {
    return peak::Avx512Loops().multiply_add;
  }
  if (bound == Bound::kF32 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    return peak::Avx2Loops().multiply_add;
  }
#endif
  if (bound == Bound::kF32) return peak::BaselineLoops().multiply_add;
  return absl::FailedPreconditionError("the processor lacks the instructions of this bound");
}

double MeasureRead(int threads) {
#if defined(__x86_64__)
  const peak::ReadLoop read =
      __builtin_cpu_supports("avx512f") ? peak::Avx512Loops().read : peak::BaselineLoops().read;
#else
  const peak::ReadLoop read = peak::BaselineLoops().read;
#endif
  static const std::unique_ptr<float[], void (*)(float*)> buffer(
      [] {
        float* const data =
            static_cast<float*>(std::aligned_alloc(64, kReadFloats * sizeof(float)));
        for (int64_t i = 0; i < kReadFloats; ++i) data[i] = 1;
        return data;
      }(),
      [](float* data) { std::free(data); });
  std::atomic<float> sum = 0;
  const int64_t part = kReadFloats / threads / 256 * 256;
  const double seconds =
      TimeThreads(threads, [&](int t) { sum = read(buffer.get() + t * part, part); });
  return static_cast<double>(part * sizeof(float)) * threads / seconds;
}

}  // namespace

double ProcessCpuSeconds() {
  timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

absl::StatusOr<double> MeasureBound(Bound bound, int threads) {
  if (bound == Bound::kMemoryRead) return MeasureRead(threads);
  const absl::StatusOr<peak::OperationLoop> loop = LoopOf(bound);
  if (!loop.ok()) return loop.status();
  // The number of iterations that take about 30 ms, by doubling.
  std::atomic<float> sum = 0;
  for (int64_t iterations = 1 << 14;; iterations *= 2) {
    const double seconds = TimeThreads(threads, [&](int) { sum = loop->run(iterations); });
    if (seconds > 0.02 * threads) {
      return loop->operations * static_cast<double>(iterations) * threads / seconds;
    }
  }
}

}  // namespace annulus::bench
