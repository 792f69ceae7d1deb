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

namespace annulus {

// The bytes of a gzip file, of all its members. What is unpacked is taken from the budget.
absl::StatusOr<std::string> Gunzip(absl::string_view what, absl::string_view bytes,
                                   ReadBudget& budget);

// A zip archive in memory. The sizes that it states are not believed: unpacking ends at the budget.
class ZipArchive {
 public:
  // `bytes` must outlive the archive; `what` names it in messages.
  static absl::StatusOr<std::unique_ptr<ZipArchive>> Open(absl::string_view what,
                                                          absl::string_view bytes);
  ~ZipArchive();
  ZipArchive(const ZipArchive&) = delete;
  ZipArchive& operator=(const ZipArchive&) = delete;

  const std::vector<std::string>& names() const { return names_; }
  std::optional<size_t> Find(const std::string& name) const;

  // The entry of that index in names().
  absl::StatusOr<std::string> Read(size_t index, ReadBudget& budget) const;
  // NOT_FOUND if there is no such entry.
  absl::StatusOr<std::string> Read(const std::string& name, ReadBudget& budget) const;

 private:
  ZipArchive(std::string what, zip* archive);

  const std::string what_;
  zip* const archive_;
  std::vector<std::string> names_;
};

}  // namespace annulus

#endif  // ANNULUS_CLIENT_READ_ARCHIVE_H_
