#ifndef ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_
#define ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_

#include <string>
#include <vector>

namespace annulus::server {

// Detects that one of several files was replaced or written. Not thread-safe.
class FileWatch {
 public:
  // Ignores empty paths. The current state of the files counts as seen.
  explicit FileWatch(std::vector<std::string> paths);

  // Returns true if a file differs from its seen state and has not changed since the last call, so
  // that a file which is still being written is not reported. The state then counts as seen: each
  // change is reported once.
  bool Changed();

 private:
  std::string ReadStates() const;

  std::vector<std::string> paths_;
  std::string seen_;
  std::string last_;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_
