#ifndef ANNULUS_SERVER_CONFIG_YAML_FILE_H_
#define ANNULUS_SERVER_CONFIG_YAML_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace annulus::server {

struct YamlEntry {
  std::string key;
  std::string value;
  int line = 0;  // from 1
};

// Reads a YAML file that is one flat mapping from names to scalars. Returns the entries in file
// order, including duplicates; none for an empty file. NOT_FOUND if the file cannot be read;
// INVALID_ARGUMENT, with file and line, if it is longer than 1 MiB, not YAML or not flat.
absl::StatusOr<std::vector<YamlEntry>> ReadYamlFile(const std::string& path);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_YAML_FILE_H_
