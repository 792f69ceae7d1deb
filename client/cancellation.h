#ifndef ANNULUS_CLIENT_CANCELLATION_H_
#define ANNULUS_CLIENT_CANCELLATION_H_

#include <grpcpp/client_context.h>

#include <mutex>
#include <set>

namespace annulus::client {

// Lets one thread cancel the calls that other threads are waiting for. Thread-safe. Must outlive
// every Scope.
class Cancellation {
 public:
  // Cancels all calls in flight, and every call that is made before Rearm(). Returns false if no
  // call was in flight (but see Stay), or if this was already cancelled.
  bool Cancel();

  bool cancelled() const;

  // Resets this object, so that new calls run again. Calls that were cancelled stay cancelled.
  void Rearm();

  // From now on, Cancel() without a call in flight returns true too, if it was not cancelled
  // before. For programs that go on after an interruption.
  void Stay();

  // Registers one call for cancellation during the lifetime of the scope.
  class Scope {
   public:
    // `context` must outlive the scope.
    Scope(Cancellation& cancellation, grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    Cancellation& cancellation_;
    grpc::ClientContext& context_;
  };

 private:
  mutable std::mutex mutex_;
  bool cancelled_ = false;
  bool stays_ = false;
  std::set<grpc::ClientContext*> calls_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CANCELLATION_H_
