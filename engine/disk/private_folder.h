#ifndef ANNULUS_ENGINE_DISK_PRIVATE_FOLDER_H_
#define ANNULUS_ENGINE_DISK_PRIVATE_FOLDER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace annulus {

// A folder of mode 0700 that only this process uses. A file lock ensures that; it ends with the
// process, even if that is killed. Const calls are thread-safe.
class PrivateFolder {
 public:
  // Creates the folder if only its last part is missing. FAILED_PRECONDITION, with advice, if
  // another process uses it, another user owns it, or others than its owner may access it.
  static absl::StatusOr<std::unique_ptr<PrivateFolder>> Open(const std::string& path);
  ~PrivateFolder();
  PrivateFolder(const PrivateFolder&) = delete;
  PrivateFolder& operator=(const PrivateFolder&) = delete;

  // Calls `visit` for the name of everything in the folder except files that a kill left
  // half-written: it removes those, and returns how many.
  absl::StatusOr<int64_t> Visit(const std::function<void(const std::string& name)>& visit) const;

  bool Remove(const std::string& name) const;
  int descriptor() const { return descriptor_; }
  const std::string& path() const { return path_; }

  // Names of files that are being written begin with this.
  static constexpr char kUnfinished[] = "unfinished-";

 private:
  PrivateFolder(std::string path, int descriptor)
      : path_(std::move(path)), descriptor_(descriptor) {}

  const std::string path_;
  const int descriptor_;
  int lock_ = -1;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_DISK_PRIVATE_FOLDER_H_
