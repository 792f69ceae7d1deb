#include "server/net/allowance.h"

#include <algorithm>
#include <chrono>

namespace annulus::server {

void Allowance::Refill(SteadyTime now) {
  if (started_) Add(std::chrono::duration<double>(now - filled_).count() * per_second_);
  started_ = true;
  filled_ = now;
}

bool Allowance::Take(double amount, SteadyTime now) {
  Refill(now);
  if (left_ < amount) return false;
  left_ -= amount;
  return true;
}

double Allowance::Add(double amount) {
  const double added = std::min(amount, burst_ - left_);
  left_ += added;
  return amount - added;
}

bool Allowance::full(SteadyTime now) {
  Refill(now);
  return left_ >= burst_;
}

}  // namespace annulus::server
