#ifndef ANNULUS_SERVER_CALL_MEMORY_H_
#define ANNULUS_SERVER_CALL_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/api.h"
#include "server/memory_budget.h"

namespace annulus {

// What one call holds of the memory for requests (--max-prompts-memory), part by part, until it
// ends. A part is held before its memory is allocated, so the heap of all calls stays within the
// budget. Not thread-safe.
class CallMemory {
 public:
  enum Part : uint8_t {
    kReceived,  // the request as it came; gRPC keeps it until the call ends
    kDecoded,   // the message, while it lives
    kWork,      // texts and token ids that are being made, and the answer before it is encoded
    kKept,      // what stays until the call ends: the prompt's ids, the encoded answer
  };

  explicit CallMemory(std::shared_ptr<MemoryBudget> budget) : lease_(std::move(budget)) {}

  // Sets what a part takes. RESOURCE_EXHAUSTED, without a change: other calls hold what is missing
  // (with RetryInfo), or the call alone would hold more than the budget.
  absl::Status Hold(Part part, size_t bytes);

  // Work is done: releases its part, and holds what stays of it.
  absl::Status Keep(size_t bytes);

  void Release(Part part) { SetPart(part, 0); }

  size_t held() const { return held_; }

 private:
  bool SetPart(Part part, size_t bytes);

  MemoryLease lease_;
  size_t held_ = 0;
  std::array<size_t, 4> parts_{};
};

// Grants work of a call its part kWork, beside `beside` bytes that are held of it already. The work
// is refused as Hold refuses.
class WorkGrant final : public MemoryGrant {
 public:
  WorkGrant(CallMemory& memory, size_t beside) : memory_(memory), beside_(beside) {}
  absl::Status Allow(size_t bytes) override;

 private:
  CallMemory& memory_;
  const size_t beside_;
  size_t allowed_ = 0;
};

// The status of a call for which the system had no memory.
absl::Status OutOfMemoryError();

}  // namespace annulus

#endif  // ANNULUS_SERVER_CALL_MEMORY_H_
