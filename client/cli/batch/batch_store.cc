#include "client/cli/batch/batch_store.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "client/cli/input/json_input.h"

namespace annulus::client {
namespace {

absl::Status WriteFailed(const std::string& path) {
  return absl::UnavailableError(absl::StrCat(path, ": ", std::strerror(errno)));
}

absl::Status WriteAll(int fd, const std::string& path, absl::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(fd, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) return WriteFailed(path);
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return absl::OkStatus();
}

// The value of "request" in an answer; empty if the line is not an answer.
std::string KeyOf(const std::string& line) {
  const auto json = ParseJson(line);
  if (!json.has_value() || !json->is_object()) return "";
  const auto key = json->find("request");
  return key != json->end() && key->is_string() ? key->get<std::string>() : "";
}

}  // namespace

absl::Status WriteAtOnce(const std::string& path, absl::string_view bytes) {
  const std::string temporary = absl::StrCat(path, ".", getpid(), ".tmp");
  const int fd =
      open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0666);
  if (fd < 0) return WriteFailed(path);
  absl::Status written = WriteAll(fd, path, bytes);
  if (written.ok() && fsync(fd) != 0) written = WriteFailed(path);
  close(fd);
  if (written.ok() && rename(temporary.c_str(), path.c_str()) != 0) written = WriteFailed(path);
  if (!written.ok()) unlink(temporary.c_str());
  return written;
}

absl::StatusOr<std::unique_ptr<BatchStore>> BatchStore::Open(const std::string& out) {
  const std::string part = absl::StrCat(out, ".part");
  const int fd = open(part.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd < 0) return WriteFailed(part);
  std::unique_ptr<BatchStore> store(new BatchStore(out, fd));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0) {
    return absl::FailedPreconditionError(absl::StrCat("another annulus batch is writing ", out,
                                                      "; wait for it or name another OUT"));
  }
  absl::Status read = store->ReadAnswers(out, /*whole=*/true);
  if (read.ok()) read = store->ReadAnswers(part, /*whole=*/false);
  if (!read.ok()) return read;
  return store;
}

BatchStore::~BatchStore() {
  // Remove the file if it has no answers for a next run.
  if (flock(part_fd_, LOCK_EX | LOCK_NB) == 0 && lseek(part_fd_, 0, SEEK_END) == 0) {
    unlink(absl::StrCat(out_, ".part").c_str());
  }
  close(part_fd_);
}

absl::Status BatchStore::ReadAnswers(const std::string& path, bool whole) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  int64_t good_bytes = 0;
  for (int64_t number = 1; std::getline(file, line); ++number) {
    const bool torn = file.eof();  // without a newline: the process was stopped while writing
    const std::string key = torn && !whole ? "" : KeyOf(line);
    if (key.empty() && whole) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, " exists and line ", number,
                       " was not written by annulus batch; name another OUT"));
    }
    if (key.empty()) break;
    good_bytes += static_cast<int64_t>(line.size()) + 1;
    answers_[key] = line;
  }
  if (!whole && ftruncate(part_fd_, good_bytes) != 0) return WriteFailed(path);
  return absl::OkStatus();
}

absl::Status BatchStore::Add(const std::string& key, const std::string& answer) {
  answers_[key] = answer;
  return WriteAll(part_fd_, absl::StrCat(out_, ".part"), absl::StrCat(answer, "\n"));
}

absl::Status BatchStore::Finish(const std::vector<std::string>& keys) {
  std::string all;
  for (const std::string& key : keys) {
    const auto found = answers_.find(key);
    if (found != answers_.end()) absl::StrAppend(&all, found->second, "\n");
  }
  const absl::Status written = WriteAtOnce(out_, all);
  // The destructor removes the empty file.
  if (written.ok() && ftruncate(part_fd_, 0) != 0) return WriteFailed(out_);
  return written;
}

}  // namespace annulus::client
