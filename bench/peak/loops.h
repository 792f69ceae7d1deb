#ifndef ANNULUS_BENCH_PEAK_LOOPS_H_
#define ANNULUS_BENCH_PEAK_LOOPS_H_

#include <cstdint>

// The loops that PeakMeter times. Each translation unit is compiled for one instruction set and
// exports only one function, so that none of its code can be linked into code for a lesser machine.

namespace annulus::bench::peak {

// Repeats a body of `operations` operations. Returns the result only so that the compiler cannot
// remove the work.
struct OperationLoop {
  float (*run)(int64_t iterations) = nullptr;
  double operations = 0;  // per iteration
  const char* instructions = "";
};

// Reads `count` floats once, in order; `count` is a multiple of 256, `data` aligned to 64 bytes.
using ReadLoop = float (*)(const float* data, int64_t count);

// Loops that every instruction set has, with its own vectors.
struct VectorLoops {
  OperationLoop multiply_add;  // float32, two operations per element
  OperationLoop exponential;   // exp2 of float32, relative error 3e-6, as in a softmax
  ReadLoop read = nullptr;
};
VectorLoops BaselineLoops();

// Call these only on x86-64, and only if the processor has the instructions named.
VectorLoops Avx2Loops();    // AVX2, FMA
VectorLoops Avx512Loops();  // AVX512F

OperationLoop Avx512Bf16Loop();  // vdpbf16ps: two products of bf16 added to float32
OperationLoop Avx512VnniLoop();  // vpdpbusd: four products of int8 added to int32
OperationLoop AvxVnniLoop();     // the same on 256 bits

// Tile products of 16 x 64 bytes. The process must have been granted tile data (see amx_access.h).
OperationLoop AmxBf16Loop();
OperationLoop AmxInt8Loop();

}  // namespace annulus::bench::peak

#endif  // ANNULUS_BENCH_PEAK_LOOPS_H_
