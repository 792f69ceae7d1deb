#include "tests/support/cuda/fiber.h"

#include <boost/context/fixedsize_stack.hpp>
#include <utility>

#if defined(__SANITIZE_ADDRESS__)
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
#else
constexpr size_t kStackBytes = size_t{64} << 10;
void StartSwitch(void**, const void*, size_t) {}
void FinishSwitch(void*, const void**, size_t*) {}
#endif

// The memory belongs to Fiber, which needs its bounds.
struct Borrowed {
  boost::context::stack_context allocate() { return {}; }
  void deallocate(boost::context::stack_context&) {}
};

}  // namespace

Fiber::Fiber(std::function<void()> body)
    : body_(std::move(body)), stack_(boost::context::fixedsize_stack(kStackBytes).allocate()) {
  inside_ = boost::context::fiber(
      std::allocator_arg, boost::context::preallocated(stack_.sp, stack_.size, stack_), Borrowed(),
      [this](boost::context::fiber&& caller) { return Run(std::move(caller)); });
}

Fiber::~Fiber() { boost::context::fixedsize_stack(kStackBytes).deallocate(stack_); }

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
