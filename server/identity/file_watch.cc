#include "server/identity/file_watch.h"

#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::server {

FileWatch::FileWatch(std::vector<std::string> paths) : paths_(std::move(paths)) {
  std::erase(paths_, "");
  seen_ = last_ = ReadStates();
}

bool FileWatch::Changed() {
  std::string now = ReadStates();
  const bool still = now == last_;
  last_ = std::move(now);
  if (!still || last_ == seen_) return false;
  seen_ = last_;
  return true;
}

std::string FileWatch::ReadStates() const {
  std::string text;
  for (const std::string& path : paths_) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) {
      text += "none;";
      continue;
    }
    absl::StrAppend(&text, status.st_dev, ".", status.st_ino, ".", status.st_size, ".",
                    status.st_mode, ".", status.st_mtim.tv_sec, ".", status.st_mtim.tv_nsec, ".",
                    status.st_ctim.tv_sec, ".", status.st_ctim.tv_nsec, ";");
  }
  return text;
}

}  // namespace annulus::server
