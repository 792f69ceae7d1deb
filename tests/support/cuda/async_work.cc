#include "tests/support/cuda/async_work.h"

#include <utility>

#include "kernels/base/check.h"

namespace annulus::cuda {

void AsyncProducts::Issue(std::function<void()> product) {
  ANNULUS_CHECK(fenced_) << "a product without a fence after registers were used";
  products_.push_back(std::move(product));
  ++issued_;
}

void AsyncProducts::WaitFor(int pending_groups) {
  fenced_ = false;
  const int done = static_cast<int>(groups_.size()) - pending_groups;
  if (done <= 0) return;
  const size_t end = groups_[done - 1];
  for (size_t i = 0; i < end; ++i) products_[i]();
  products_.erase(products_.begin(), products_.begin() + static_cast<ptrdiff_t>(end));
  groups_.erase(groups_.begin(), groups_.begin() + done);
  for (size_t& group : groups_) group -= end;
}

}  // namespace annulus::cuda
