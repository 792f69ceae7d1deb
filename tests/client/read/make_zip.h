#ifndef ANNULUS_TESTS_CLIENT_READ_MAKE_ZIP_H_
#define ANNULUS_TESTS_CLIENT_READ_MAKE_ZIP_H_

#include <string>
#include <utility>
#include <vector>

namespace annulus::testing {

// A zip archive of these entries: name, bytes.
std::string MakeZip(const std::vector<std::pair<std::string, std::string>>& entries);

// A gzip file.
std::string MakeGzip(const std::string& bytes);

}  // namespace annulus::testing

#endif  // ANNULUS_TESTS_CLIENT_READ_MAKE_ZIP_H_
