#ifndef ANNULUS_KERNELS_BASE_DYNAMIC_LIBRARY_H_
#define ANNULUS_KERNELS_BASE_DYNAMIC_LIBRARY_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// A shared library that is opened at run time, so that the program can start without it. It is
// never closed, because such libraries leave threads and handlers behind. Immutable.
class DynamicLibrary {
 public:
  // Opens `file`. FAILED_PRECONDITION if it cannot be loaded, with its name, the reason and
  // `remedy`, which says what to do.
  static absl::StatusOr<DynamicLibrary> Open(const std::string& file, absl::string_view remedy);

  // Sets `function` to the library's function of that name. FAILED_PRECONDITION, with the name, if
  // the library is too old to have it.
  template <class Function>
  absl::Status Find(const char* name, Function*& function) const {
    absl::StatusOr<void*> address = FindAddress(name);
    if (!address.ok()) return address.status();
    function = reinterpret_cast<Function*>(*address);
    return absl::OkStatus();
  }

 private:
  DynamicLibrary(void* handle, std::string file, std::string remedy)
      : handle_(handle), file_(std::move(file)), remedy_(std::move(remedy)) {}
  absl::StatusOr<void*> FindAddress(const char* name) const;

  void* handle_;
  std::string file_;
  std::string remedy_;
};

}  // namespace annulus

#endif  // ANNULUS_KERNELS_BASE_DYNAMIC_LIBRARY_H_
