#ifndef ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_METER_H_
#define ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_METER_H_

#include <cstddef>
#include <cstdint>

#include "absl/status/status.h"
#include "engine/base/memory_grant.h"
#include "engine/base/work_meter.h"
#include "engine/grammar/machine.h"
#include "kernels/base/status_macros.h"

namespace annulus {

// Counts the steps of one compilation, and asks for its memory before its heap grows: each step may
// take kBytesPerStep, and what takes more asks for that by Take. All of it is freed when the
// compilation ends; what is freed before counts until then, unless Give says so. Not thread-safe.
class CompileMeter {
 public:
  // What a part of a machine can take at the most: a vector doubles while it grows, and the
  // finished machine is copied once without the parts that lead nowhere.
  static constexpr size_t kBytesPerStep = 4 * sizeof(Node);

  // Both must outlive the meter.
  CompileMeter(WorkMeter* work, MemoryGrant* memory) : work_(*work), memory_(*memory) {}

  // Errors of WorkMeter::Step and MemoryGrant::Allow, unchanged. After one the work must end.
  absl::Status Step(int64_t steps = 1) {
    ANNULUS_RETURN_IF_ERROR(work_.Step(steps));
    return Take(static_cast<size_t>(steps) * kBytesPerStep);
  }
  absl::Status Take(size_t bytes) {
    taken_ += bytes;
    if (taken_ <= granted_) return absl::OkStatus();
    granted_ = taken_ + kGrantedAtOnce;
    return memory_.Allow(granted_);
  }
  // What Take asked for has been freed.
  void Give(size_t bytes) { taken_ -= bytes; }

 private:
  static constexpr size_t kGrantedAtOnce = size_t{128} << 10;

  WorkMeter& work_;
  MemoryGrant& memory_;
  size_t taken_ = 0;
  size_t granted_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_GRAMMAR_COMPILER_COMPILE_METER_H_
