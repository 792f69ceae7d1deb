#include "client/cancellation.h"

namespace annulus::client {

bool Cancellation::Cancel() {
  const std::lock_guard lock(mutex_);
  const bool is_first = !cancelled_;
  cancelled_ = true;
  for (grpc::ClientContext* call : calls_) call->TryCancel();
  return is_first && (stays_ || !calls_.empty());
}

void Cancellation::Stay() {
  const std::lock_guard lock(mutex_);
  stays_ = true;
}

bool Cancellation::cancelled() const {
  const std::lock_guard lock(mutex_);
  return cancelled_;
}

void Cancellation::Rearm() {
  const std::lock_guard lock(mutex_);
  cancelled_ = false;
}

Cancellation::Scope::Scope(Cancellation& cancellation, grpc::ClientContext& context)
    : cancellation_(cancellation), context_(context) {
  const std::lock_guard lock(cancellation_.mutex_);
  cancellation_.calls_.insert(&context_);
  if (cancellation_.cancelled_) context_.TryCancel();
}

Cancellation::Scope::~Scope() {
  const std::lock_guard lock(cancellation_.mutex_);
  cancellation_.calls_.erase(&context_);
}

}  // namespace annulus::client
