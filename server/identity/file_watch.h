#ifndef ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_
#define ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_

#include <string>
#include <vector>

namespace annulus {

// Tells when one of some files was replaced or written. Not thread-safe.
class FileWatch {
 public:
  // Empty paths are left out. What the files are now counts as seen.
  explicit FileWatch(std::vector<std::string> paths);

  // Whether a file differs from what was seen, and is as it was at the last call: so one that is
  // being written is not reported before it stands still. Reported once.
  bool Changed();

 private:
  std::string Look() const;

  std::vector<std::string> paths_;
  std::string seen_;
  std::string last_;
};

}  // namespace annulus

#endif  // ANNULUS_SERVER_IDENTITY_FILE_WATCH_H_
