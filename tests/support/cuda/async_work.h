#ifndef ANNULUS_TESTS_SUPPORT_CUDA_ASYNC_WORK_H_
#define ANNULUS_TESTS_SUPPORT_CUDA_ASYNC_WORK_H_

#include <cstddef>
#include <functional>
#include <vector>

namespace annulus::cuda {

// The asynchronous products of one warp, which happen when it waits for them.
class AsyncProducts {
 public:
  // Registers are ordered before the next products.
  void Fence() { fenced_ = true; }
  // Ends the process where no fence came since the last wait.
  void Issue(std::function<void()> product);
  void Commit() { groups_.push_back(products_.size()); }
  void WaitFor(int pending_groups);

  bool empty() const { return products_.empty(); }
  size_t issued() const { return issued_; }

 private:
  std::vector<std::function<void()>> products_;
  std::vector<size_t> groups_;  // ends of the committed groups in `products_`
  size_t issued_ = 0;
  bool fenced_ = false;
};

}  // namespace annulus::cuda

#endif  // ANNULUS_TESTS_SUPPORT_CUDA_ASYNC_WORK_H_
