#ifndef ANNULUS_CLIENT_CLI_BATCH_STORE_H_
#define ANNULUS_CLIENT_CLI_BATCH_STORE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The answers of a batch, on disk. While it runs each goes to the end of OUT.part; a whole batch
// takes the place of OUT at once. So OUT is complete whenever it is there, and what an interrupted
// run paid for is found again. One process at a time.
class BatchStore {
 public:
  // Reads what is there of OUT and OUT.part. FAILED_PRECONDITION if another process writes them or
  // if OUT holds what no batch wrote.
  static absl::StatusOr<std::unique_ptr<BatchStore>> Open(const std::string& out);
  ~BatchStore();
  BatchStore(const BatchStore&) = delete;
  BatchStore& operator=(const BatchStore&) = delete;

  bool Has(const std::string& key) const { return answers_.count(key) > 0; }

  // `answer` is a JSON object of one line with the key as "request".
  absl::Status Add(const std::string& key, const std::string& answer);

  // Makes OUT of the answers to `keys`, in this order, and removes OUT.part.
  absl::Status Finish(const std::vector<std::string>& keys);

 private:
  BatchStore(std::string out, int part_fd) : out_(std::move(out)), part_fd_(part_fd) {}
  absl::Status ReadAnswers(const std::string& path, bool whole);

  std::string out_;
  int part_fd_;
  std::map<std::string, std::string> answers_;  // by key
};

// Replaces the file at `path` at once: readers see all of the old or all of the new.
absl::Status WriteAtOnce(const std::string& path, absl::string_view bytes);

}  // namespace annulus

#endif  // ANNULUS_CLIENT_CLI_BATCH_STORE_H_
