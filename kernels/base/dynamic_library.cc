#include "kernels/base/dynamic_library.h"

#include <dlfcn.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus {

absl::StatusOr<DynamicLibrary> DynamicLibrary::Open(const std::string& file,
                                                    absl::string_view remedy) {
  void* const handle = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = dlerror();
    return absl::FailedPreconditionError(
        absl::StrCat("cannot load ", file, ": ", why == nullptr ? "no reason" : why, "; ", remedy));
  }
  return DynamicLibrary(handle, file, std::string(remedy));
}

absl::StatusOr<void*> DynamicLibrary::FindAddress(const char* name) const {
  void* const address = dlsym(handle_, name);
  if (address != nullptr) return address;
  return absl::FailedPreconditionError(
      absl::StrCat(file_, " has no function ", name, ": wrong version; ", remedy_));
}

}  // namespace annulus
