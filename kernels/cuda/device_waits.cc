#include "kernels/cuda/device_waits.h"

#include <future>
#include <iterator>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "kernels/base/device_error.h"
#include "kernels/base/status_macros.h"

namespace annulus::cuda {
namespace {

using Clock = std::chrono::steady_clock;

// About a decoded step; a pause adds little to longer waits.
constexpr std::chrono::milliseconds kWithoutPause{20};
constexpr std::chrono::microseconds kPause{50};

}  // namespace

absl::Status DeviceWaits::ForStream(StreamHandle stream) {
  return Until("waiting for the GPU", [&] { return StreamIdle(stream); });
}

absl::Status DeviceWaits::ForEvent(EventHandle event) {
  return Until("waiting for an event of the GPU", [&] { return EventReached(event); });
}

absl::Status DeviceWaits::Until(absl::string_view what,
                                absl::FunctionRef<absl::StatusOr<bool>()> ended) {
  const Clock::time_point begin = Clock::now();
  while (!is_lost()) {
    ANNULUS_ASSIGN_OR_RETURN(const bool done, ended());
    if (done) return absl::OkStatus();
    const Clock::duration waited = Clock::now() - begin;
    if (waited >= longest_) return Lose(what);
    if (waited < kWithoutPause) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(kPause);
    }
  }
  return lost();
}

absl::Status DeviceWaits::Call(absl::string_view what, std::function<absl::Status()> call) {
  if (is_lost()) return lost();
  std::packaged_task<absl::Status()> task(std::move(call));
  std::future<absl::Status> result = task.get_future();
  std::thread caller;
  try {
    caller = std::thread(std::move(task));
  } catch (const std::system_error& error) {
    return absl::ResourceExhaustedError(
        absl::StrCat(what, ": the system has no thread left (", error.what(),
                     "); raise the limit of threads, ulimit -u or pids.max"));
  }
  if (result.wait_until(Clock::now() + longest_) != std::future_status::ready) {
    caller.detach();
    return Lose(what);
  }
  caller.join();
  return result.get();
}

std::byte* DeviceWaits::Keep(std::byte* memory, size_t bytes) {
  std::lock_guard lock(blocks_mutex_);
  blocks_[memory] = bytes;
  return memory;
}

// Before the memory is freed: CUDA may give it to another thread at once.
void DeviceWaits::Drop(std::byte* memory) {
  std::lock_guard lock(blocks_mutex_);
  blocks_.erase(memory);
}

bool DeviceWaits::Holds(const void* address) const {
  const auto* const at = static_cast<const std::byte*>(address);
  std::lock_guard lock(blocks_mutex_);
  const auto after = blocks_.upper_bound(at);
  if (after == blocks_.begin()) return false;
  const auto& [begin, bytes] = *std::prev(after);
  return at < begin + bytes;
}

absl::StatusOr<std::byte*> DeviceWaits::AllocateDevice(int ordinal, size_t bytes) {
  const auto memory = std::make_shared<std::byte*>();
  ANNULUS_RETURN_IF_ERROR(Call(absl::StrCat("allocating ", bytes, " bytes"), [=]() -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(*memory, cuda::AllocateDevice(ordinal, bytes));
    return absl::OkStatus();
  }));
  return Keep(*memory, bytes);
}

// A device that is lost by this keeps the memory: nothing is left to say.
void DeviceWaits::FreeDevice(int ordinal, std::byte* memory) {
  if (memory == nullptr) return;
  Drop(memory);
  Call("freeing memory of the GPU", [=] {
    cuda::FreeDevice(ordinal, memory);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::StatusOr<size_t> DeviceWaits::FreeMemory(int ordinal) {
  const auto bytes = std::make_shared<size_t>(0);
  ANNULUS_RETURN_IF_ERROR(Call("asking the GPU for its free memory", [=]() -> absl::Status {
    ANNULUS_ASSIGN_OR_RETURN(*bytes, cuda::FreeMemory(ordinal));
    return absl::OkStatus();
  }));
  return *bytes;
}

absl::StatusOr<std::byte*> DeviceWaits::AllocatePinned(int ordinal, size_t bytes) {
  const auto memory = std::make_shared<std::byte*>();
  ANNULUS_RETURN_IF_ERROR(
      Call(absl::StrCat("pinning ", bytes, " bytes of host memory"), [=]() -> absl::Status {
        ANNULUS_ASSIGN_OR_RETURN(*memory, cuda::AllocatePinned(ordinal, bytes));
        return absl::OkStatus();
      }));
  return Keep(*memory, bytes);
}

void DeviceWaits::FreePinned(int ordinal, std::byte* memory) {
  if (memory == nullptr) return;
  Drop(memory);
  Call("freeing pinned memory", [=] {
    cuda::FreePinned(ordinal, memory);
    return absl::OkStatus();
  }).IgnoreError();
}

absl::Status DeviceWaits::lost() const {
  std::lock_guard lock(mutex_);
  return lost_;
}

// The first wait that did not end says why.
absl::Status DeviceWaits::Lose(absl::string_view what) {
  std::lock_guard lock(mutex_);
  if (lost_.ok()) {
    lost_ = OfDevice(absl::UnavailableError(absl::StrCat(
        what, ": it did not end within ", longest_.count(),
        " ms, so a kernel or the GPU hangs, and this process can no longer use it; restart "
        "annulusd and report this, or raise --exchange-timeout if the work takes that long")));
    is_lost_ = true;
  }
  return lost_;
}

}  // namespace annulus::cuda
