#ifndef ANNULUS_TESTS_SUPPORT_CUDA_FIBER_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_FIBER_H_

#include <boost/context/fiber.hpp>
#include <functional>

namespace annulus::cuda {

// A function with a stack of its own that can be left and entered again. Tells the address
// sanitizer about every change of stacks. Used by one thread.
class Fiber {
 public:
  explicit Fiber(std::function<void()> body);
  // The body must have returned.
  ~Fiber();
  Fiber(const Fiber&) = delete;

  // From outside: runs the body until it calls Leave or returns.
  void Enter();
  // From inside: back to where Enter was called.
  void Leave();

 private:
  boost::context::fiber Run(boost::context::fiber&& caller);

  std::function<void()> body_;
  boost::context::stack_context stack_;
  boost::context::fiber inside_;
  boost::context::fiber outside_;
  void* inside_fake_stack_ = nullptr;
  void* outside_fake_stack_ = nullptr;
  const void* outside_bottom_ = nullptr;
  size_t outside_size_ = 0;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_FIBER_H_
