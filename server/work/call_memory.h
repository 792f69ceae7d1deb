#ifndef ANNULUS_SERVER_WORK_CALL_MEMORY_H_
#define ANNULUS_SERVER_WORK_CALL_MEMORY_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>

#include "absl/status/status.h"
#include "engine/api.h"
#include "server/base/memory_budget.h"

namespace annulus::server {

// The share of the memory for requests (--max-prompts-memory) that one call holds, by part, until
// the call ends. A part must be held before its memory is allocated, so that the heap of all calls
// stays within the budget. Not thread-safe.
class CallMemory {
 public:
  enum Part : uint8_t {
    kReceived,  // the request's bytes, which gRPC keeps until the call ends
    kDecoded,   // the decoded message, as long as it lives
    kWork,      // texts and token ids being made, and the answer before it is encoded
    kKept,      // kept until the call ends: the prompt's ids, the encoded answer
  };

  explicit CallMemory(std::shared_ptr<MemoryBudget> budget) : lease_(std::move(budget)) {}

  // Sets the size of a part. On an error nothing changes: RESOURCE_EXHAUSTED, with RetryInfo, if
  // other calls hold the memory; OUT_OF_RANGE if this call alone would need more than the whole
  // budget.
  absl::Status Hold(Part part, size_t bytes);

  // Ends the work: sets kWork to 0 and kKept to `bytes`. Errors as for Hold.
  absl::Status Keep(size_t bytes);

  void Release(Part part) { SetPart(part, 0); }

  size_t held() const { return held_; }

 private:
  bool SetPart(Part part, size_t bytes);

  MemoryLease lease_;
  size_t held_ = 0;
  std::array<size_t, 4> parts_{};
};

// Grants memory for work whose need shows only while it runs. Allow(bytes), the total so far, sets
// the call's part kWork to `beside` + bytes. `beside` is what the call needs in kWork for other
// things. Errors as for CallMemory::Hold.
class WorkGrant final : public MemoryGrant {
 public:
  WorkGrant(CallMemory& memory, size_t beside) : memory_(memory), beside_(beside) {}
  absl::Status Allow(size_t bytes) override;

 private:
  CallMemory& memory_;
  const size_t beside_;
  size_t allowed_ = 0;
};

// The same for work that may outlive its call: holds a share of its own until it is destroyed.
class OwnGrant final : public MemoryGrant {
 public:
  explicit OwnGrant(std::shared_ptr<MemoryBudget> budget) : memory_(std::move(budget)) {}
  absl::Status Allow(size_t bytes) override { return grant_.Allow(bytes); }

 private:
  CallMemory memory_;
  WorkGrant grant_{memory_, /*beside=*/0};
};

// RESOURCE_EXHAUSTED: the system had no memory for the call.
absl::Status OutOfMemoryError();

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_WORK_CALL_MEMORY_H_
