#ifndef ANNULUS_CLIENT_READ_ARCHIVE_H_
#define ANNULUS_CLIENT_READ_ARCHIVE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "client/read/limits.h"

struct zip;

namespace annulus::client {

// Unpacks all members of a gzip file and charges the unpacked bytes to the budget. INVALID_ARGUMENT
// if the file is broken, RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit. `what` names the file
// in messages.
absl::StatusOr<std::string> Gunzip(absl::string_view what, absl::string_view bytes,
                                   ReadBudget& budget);

// A zip archive in memory. Does not trust the sizes stated in the archive: reading counts the
// unpacked bytes and stops when the budget is used up.
class ZipArchive {
 public:
  // INVALID_ARGUMENT if the archive is broken. `bytes` must outlive the archive; `what` names it in
  // messages.
  static absl::StatusOr<std::unique_ptr<ZipArchive>> Open(absl::string_view what,
                                                          absl::string_view bytes);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  std::optional<size_t> Find(const std::string& name) const;

  // Unpacks the entry names()[index]. INVALID_ARGUMENT if it is broken or encrypted,
  // RESOURCE_EXHAUSTED or DEADLINE_EXCEEDED at a limit.
  absl::StatusOr<std::string> Read(size_t index, ReadBudget& budget) const;
  // The same for an entry given by name; NOT_FOUND if there is none.
  absl::StatusOr<std::string> Read(const std::string& name, ReadBudget& budget) const;

 private:
  ZipArchive(std::string what, zip* archive);

  const std::string what_;
  zip* const archive_;
  std::vector<std::string> names_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_ARCHIVE_H_
