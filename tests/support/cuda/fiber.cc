#include "tests/support/cuda/fiber.h"

#include <boost/context/protected_fixedsize_stack.hpp>
#include <mutex>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace annulus::cuda {
namespace {

#if defined(__SANITIZE_ADDRESS__)
constexpr size_t kStackBytes = size_t{256} << 10;
void StartSwitch(void** fake, const void* bottom, size_t size) {
  __sanitizer_start_switch_fiber(fake, bottom, size);
}
void FinishSwitch(void* fake, const void** bottom, size_t* size) {
  __sanitizer_finish_switch_fiber(fake, bottom, size);
}
// The frames that a fiber ended in never returned.
void ForgetFrames(const boost::context::stack_context& stack) {
  __asan_unpoison_memory_region(static_cast<char*>(stack.sp) - stack.size, stack.size);
}
#else
constexpr size_t kStackBytes = size_t{64} << 10;
void StartSwitch(void**, const void*, size_t) {}
void FinishSwitch(void*, const void**, size_t*) {}
void ForgetFrames(const boost::context::stack_context&) {}
#endif

// Stacks of all threads, kept for the next fibers: a launch of a small kernel would take most of
// its time to get memory for hundreds of stacks and to touch it first. Below each lies a page that
// cannot be touched. Thread-safe.
class Stacks {
 public:
  static Stacks& Get() {
    static Stacks stacks;
    return stacks;
  }

  ~Stacks() {
    for (boost::context::stack_context& stack : unused_) source_.deallocate(stack);
  }

  boost::context::stack_context Take() {
    std::lock_guard lock(mutex_);
    if (unused_.empty()) return source_.allocate();
    const boost::context::stack_context stack = unused_.back();
    unused_.pop_back();
    return stack;
  }

  void GiveBack(const boost::context::stack_context& stack) {
    ForgetFrames(stack);
    std::lock_guard lock(mutex_);
    unused_.push_back(stack);
  }

 private:
  std::mutex mutex_;
  boost::context::protected_fixedsize_stack source_ ABSL_GUARDED_BY(mutex_){kStackBytes};
  std::vector<boost::context::stack_context> unused_ ABSL_GUARDED_BY(mutex_);
};

// The memory belongs to Fiber, which needs its bounds.
struct Borrowed {
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)), stack_(Stacks::Get().Take()) {
  inside_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_), Borrowed(),
      [this](boost::context::fiber&& caller) { return Run(std::move(caller)); });
}

Fiber::~Fiber() { Stacks::Get().GiveBack(stack_); }

boost::context::fiber Fiber::Run(boost::context::fiber&& caller) {
  outside_ = std::move(caller);
  FinishSwitch(nullptr, &outside_bottom_, &outside_size_);
  body_();
  StartSwitch(nullptr, outside_bottom_, outside_size_);
  return std::move(outside_);
}

void Fiber::Enter() {
  StartSwitch(&outside_fake_stack_, static_cast<char*>(stack_.sp) - stack_.size, stack_.size);
  inside_ = std::move(inside_).resume();
  FinishSwitch(outside_fake_stack_, nullptr, nullptr);
}

void Fiber::Leave() {
  StartSwitch(&inside_fake_stack_, outside_bottom_, outside_size_);
  outside_ = std::move(outside_).resume();
  FinishSwitch(inside_fake_stack_, &outside_bottom_, &outside_size_);
}

}  // namespace annulus::cuda
