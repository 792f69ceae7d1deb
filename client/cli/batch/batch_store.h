#ifndef ANNULUS_CLIENT_CLI_BATCH_BATCH_STORE_H_
#define ANNULUS_CLIENT_CLI_BATCH_BATCH_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

// The answers of a batch on disk. A running batch appends each answer to OUT.part; when it is
// complete, Finish replaces OUT atomically. So OUT, if it exists, is always complete, and a run
// that was interrupted continues with the answers in OUT.part. Only one process at a time can open
// a store.
class BatchStore {
 public:
  // Reads the answers in OUT and OUT.part, if these exist. FAILED_PRECONDITION if another process
  // has the store open, or if OUT has lines that no batch wrote. UNAVAILABLE if OUT.part cannot be
  // written.
  static absl::StatusOr<std::unique_ptr<BatchStore>> Open(const std::string& out);
  ~BatchStore();
  BatchStore(const BatchStore&) = delete;
  BatchStore& operator=(const BatchStore&) = delete;

  bool Has(const std::string& key) const { return answers_.count(key) > 0; }

  // Appends an answer to OUT.part. It must be a JSON object on one line whose "request" is `key`.
  // UNAVAILABLE if writing fails.
  absl::Status Add(const std::string& key, const std::string& answer);

  // Writes the answers to `keys`, in this order, to OUT and empties OUT.part, which the destructor
  // removes. UNAVAILABLE if writing fails.
  absl::Status Finish(const std::vector<std::string>& keys);

 private:
  BatchStore(std::string out, int part_fd) : out_(std::move(out)), part_fd_(part_fd) {}
  absl::Status ReadAnswers(const std::string& path, bool whole);

  std::string out_;
  int part_fd_;
  std::map<std::string, std::string> answers_;  // by key
};

// Replaces the file at `path` atomically: readers see either the old or the new content.
// UNAVAILABLE if writing fails.
absl::Status WriteAtOnce(const std::string& path, absl::string_view bytes);

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_CLI_BATCH_BATCH_STORE_H_
