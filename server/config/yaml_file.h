#ifndef ANNULUS_SERVER_CONFIG_YAML_FILE_H_
#define ANNULUS_SERVER_CONFIG_YAML_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus {

struct YamlEntry {
  std::string key;
  std::string value;
  int line = 0;  // from 1
};

// The entries of a YAML file that is one flat mapping from names to scalars, in file order,
// duplicates included. An empty file has none. NOT_FOUND: unreadable; INVALID_ARGUMENT: over 1 MiB,
// not YAML, or not flat, with file and line.
absl::StatusOr<std::vector<YamlEntry>> ReadYamlFile(const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_YAML_FILE_H_
