#include "bench/peak/peak_meter.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <cstring>
#include <functional>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "bench/peak/amx_access.h"
#include "bench/report/statistics.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

using Clock = std::chrono::steady_clock;

struct KindNames {
  PeakKind kind;
  const char* name;
  const char* unit;
};

constexpr std::array<KindNames, 7> kKinds = {{
    {PeakKind::kF32, "f32", "FLOP/s"},
    {PeakKind::kBF16, "bf16", "FLOP/s"},
    {PeakKind::kI8, "int8", "OP/s"},
    {PeakKind::kAmxBF16, "amx_bf16", "FLOP/s"},
    {PeakKind::kAmxI8, "amx_int8", "OP/s"},
    {PeakKind::kExp, "exp", "exp/s"},
    {PeakKind::kMemoryRead, "memory_read", "B/s"},
}};

const KindNames& NamesOf(PeakKind kind) { return kKinds[static_cast<size_t>(kind)]; }

double SecondsSince(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Runs `body(thread)` on every thread `slices` times, all starting each slice together. Seconds of
// each slice, from its common start to the end of the last thread.
absl::StatusOr<std::vector<double>> TimeSlices(int threads, int slices,
                                               const std::function<void(int)>& body) {
  std::vector<double> seconds;
  Clock::time_point start = Clock::now();
  bool first = true;
  // Runs on one thread while the others wait: the end of a slice and the start of the next.
  auto turn = [&]() noexcept {
    if (!first) seconds.push_back(SecondsSince(start));
    first = false;
    start = Clock::now();
  };
  seconds.reserve(static_cast<size_t>(slices) + 1);
  std::barrier barrier(threads, turn);
  std::atomic<bool> refused{false};
  const auto work = [&](int thread) {
    barrier.arrive_and_wait();
    for (int s = 0; s < slices && !refused.load(); ++s) {
      body(thread);
      barrier.arrive_and_wait();
    }
  };
  std::vector<std::thread> workers;
  absl::Status status;
  try {
    for (int thread = 1; thread < threads; ++thread) workers.emplace_back(work, thread);
  } catch (const std::system_error& error) {
    status = absl::ResourceExhaustedError(
        absl::StrCat("cannot start ", threads - 1, " threads: ", error.what()));
    refused.store(true);
    for (int missing = static_cast<int>(workers.size()) + 1; missing < threads; ++missing) {
      barrier.arrive_and_drop();
    }
  }
  work(0);
  for (std::thread& worker : workers) worker.join();
  ANNULUS_RETURN_IF_ERROR(status);
  return seconds;
}

std::atomic<float> result_sink;  // whatever a loop returned: the work cannot be left out

// Iterations of `loop` that take about `seconds` on one thread that is up to speed.
int64_t Calibrate(const peak::OperationLoop& loop, double seconds) {
  int64_t iterations = 1000;
  for (;;) {
    const Clock::time_point start = Clock::now();
    result_sink.store(loop.run(iterations), std::memory_order_relaxed);
    const double taken = SecondsSince(start);
    if (taken >= seconds / 2) {
      return std::max<int64_t>(
          1, static_cast<int64_t>(static_cast<double>(iterations) * seconds / taken));
    }
    iterations *= 2;
  }
}

// Best of the rounds' medians. `work`: operations or bytes of one slice, all threads together.
absl::StatusOr<double> BestOfMedians(int threads, const PeakEffort& effort, double work,
                                     const std::function<void(int)>& body) {
  double best = 0;
  for (int round = 0; round < effort.rounds; ++round) {
    ANNULUS_ASSIGN_OR_RETURN(std::vector<double> seconds, TimeSlices(threads, effort.slices, body));
    best = std::max(best, work / Median(std::move(seconds)));
  }
  return best;
}

absl::StatusOr<double> MeasureRead(peak::ReadLoop read, const ReadBuffer& buffer, int threads,
                                   const PeakEffort& effort) {
  constexpr int64_t kStep = 1024;  // whole iterations of every loop
  const int64_t share = buffer.count() / threads / kStep * kStep;
  const double bytes = static_cast<double>(share) * threads * sizeof(float);
  return BestOfMedians(threads, effort, bytes, [&](int thread) {
    result_sink.store(read(buffer.floats() + thread * share, share), std::memory_order_relaxed);
  });
}

}  // namespace

absl::string_view PeakName(PeakKind kind) { return NamesOf(kind).name; }
absl::string_view PeakUnit(PeakKind kind) { return NamesOf(kind).unit; }

absl::StatusOr<PeakKind> ParsePeak(absl::string_view name) {
  std::string known;
  for (const KindNames& names : kKinds) {
    if (name == names.name) return names.kind;
    absl::StrAppend(&known, known.empty() ? "" : ", ", names.name);
  }
  return absl::InvalidArgumentError(
      absl::StrCat("unknown ceiling '", name, "'; allowed are ", known));
}

absl::StatusOr<ReadBuffer> ReadBuffer::Create(size_t bytes) {
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return absl::ResourceExhaustedError(
        absl::StrCat("no memory for the ", bytes, " bytes to read for the memory bandwidth"));
  }
  madvise(data, bytes, MADV_HUGEPAGE);
  std::memset(data, 1, bytes);
  return ReadBuffer(data, bytes);
}

ReadBuffer::~ReadBuffer() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

size_t PeakBufferBytes() {
  constexpr size_t kMost = size_t{1} << 30;
  constexpr size_t kStep = size_t{1} << 21;
  const size_t memory = static_cast<size_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                        static_cast<size_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  return std::clamp(memory / 8 / kStep * kStep, kStep, kMost);
}

PeakMeter::PeakMeter(size_t read_bytes) : read_bytes_(read_bytes), vectors_(peak::BaselineLoops()) {
#if defined(ANNULUS_PEAK_X86)
  // __builtin_cpu_supports also asks whether the system saves the wide registers.
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    vectors_ = peak::Avx2Loops();
  }
  if (__builtin_cpu_supports("avx512f")) vectors_ = peak::Avx512Loops();
  if (__builtin_cpu_supports("avx512bf16")) bf16_ = peak::Avx512Bf16Loop();
  if (__builtin_cpu_supports("avx512vnni")) {
    int8_ = peak::Avx512VnniLoop();
  } else if (__builtin_cpu_supports("avxvnni")) {
    int8_ = peak::AvxVnniLoop();
  }
  const peak::AmxAccess amx = peak::RequestAmx();
  if (amx == peak::AmxAccess::kRefused) {
    refused_ = "the processor has AMX, the system does not let this process use it";
  }
  if (amx == peak::AmxAccess::kGranted) {
    if (__builtin_cpu_supports("amx-bf16")) amx_bf16_ = peak::AmxBf16Loop();
    if (__builtin_cpu_supports("amx-int8")) amx_int8_ = peak::AmxInt8Loop();
  }
#endif
}

std::optional<peak::OperationLoop> PeakMeter::LoopOf(PeakKind kind) const {
  switch (kind) {
    case PeakKind::kF32:
      return vectors_.multiply_add;
    case PeakKind::kBF16:
      return bf16_;
    case PeakKind::kI8:
      return int8_;
    case PeakKind::kAmxBF16:
      return amx_bf16_;
    case PeakKind::kAmxI8:
      return amx_int8_;
    case PeakKind::kExp:
      return vectors_.exponential;
    case PeakKind::kMemoryRead:
      break;
  }
  return std::nullopt;
}

bool PeakMeter::Has(PeakKind kind) const {
  return kind == PeakKind::kMemoryRead || LoopOf(kind).has_value();
}

std::vector<PeakKind> PeakMeter::Available() const {
  std::vector<PeakKind> kinds;
  for (const KindNames& names : kKinds) {
    if (Has(names.kind)) kinds.push_back(names.kind);
  }
  return kinds;
}

std::string PeakMeter::Instructions(PeakKind kind) const {
  if (kind == PeakKind::kMemoryRead) {
    return absl::StrCat("one pass over ", read_bytes_ >> 20, " MiB");
  }
  const auto loop = LoopOf(kind);
  ANNULUS_CHECK(loop.has_value()) << PeakName(kind) << " is not available here";
  return loop->instructions;
}

absl::StatusOr<double> PeakMeter::Measure(PeakKind kind, int threads,
                                          const PeakEffort& effort) const {
  ANNULUS_CHECK(threads >= 1 && threads <= 256) << threads;
  if (kind == PeakKind::kMemoryRead) {
    ANNULUS_ASSIGN_OR_RETURN(const ReadBuffer buffer, TakeReadBuffer());
    return MeasureRead(vectors_.read, buffer, threads, effort);
  }
  const auto loop = LoopOf(kind);
  ANNULUS_CHECK(loop.has_value()) << PeakName(kind) << " is not available here";
  const int64_t iterations = Calibrate(*loop, effort.slice_seconds);
  const double work = loop->operations * static_cast<double>(iterations) * threads;
  return BestOfMedians(threads, effort, work, [&](int) {
    result_sink.store(loop->run(iterations), std::memory_order_relaxed);
  });
}

absl::StatusOr<double> PeakMeter::ReadOnce(const ReadBuffer& buffer, int threads) const {
  return MeasureRead(vectors_.read, buffer, threads, {.rounds = 1, .slices = 1});
}

}  // namespace annulus::bench
