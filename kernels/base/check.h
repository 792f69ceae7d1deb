#ifndef ANNULUS_KERNELS_BASE_CHECK_H_
#define ANNULUS_KERNELS_BASE_CHECK_H_

#include <sstream>

// ANNULUS_CHECK(condition) << "message": ends the process if `condition` is false. Only for
// invariants that nothing but our own code can break. Anything that a client, file, peer or device
// can cause is an absl::Status instead.

namespace annulus::internal {

class CheckFailure {
 public:
  CheckFailure(const char* file, int line, const char* condition);
  [[noreturn]] ~CheckFailure();
  std::ostream& stream() { return stream_; }

 private:
  std::ostringstream stream_;
};

// Gives the streamed expression the type void, so that the macro is a single expression.
struct Voidify {
  void operator&(std::ostream&) {}
};

}  // namespace annulus::internal

#define ANNULUS_CHECK(condition)                 \
  (condition) ? static_cast<void>(0)             \
              : ::annulus::internal::Voidify() & \
                    ::annulus::internal::CheckFailure(__FILE__, __LINE__, #condition).stream()

#endif  // ANNULUS_KERNELS_BASE_CHECK_H_
