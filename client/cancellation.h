#ifndef ANNULUS_CLIENT_CANCELLATION_H_
#define ANNULUS_CLIENT_CANCELLATION_H_

#include <grpcpp/client_context.h>

#include <mutex>
#include <set>

namespace annulus {

// Cancels calls in flight from another thread. Thread-safe. Must outlive every Scope.
class Cancellation {
 public:
  // Cancels the calls in flight and all later ones. False if none was in flight or it was called
  // before.
  bool Cancel();

  bool cancelled() const;

  // Forgets the cancellation, so that calls can be made again. Calls that were cancelled stay so.
  void Rearm();

  // Makes one call subject to cancellation while it lives.
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
  std::set<grpc::ClientContext*> calls_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CANCELLATION_H_
