#ifndef ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_
#define ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// Reads the file that an option names. Follows links. Refuses folders, pipes, sockets and devices,
// because reading these could block or never end. NOT_FOUND if the file does not exist or cannot be
// read; INVALID_ARGUMENT if it is not a regular file or is longer than `max_bytes`. Messages begin
// with the option. `mode`, unless null, receives the mode of the opened file itself.
absl::StatusOr<std::string> ReadPlainFile(absl::string_view option, const std::string& path,
                                          size_t max_bytes, mode_t* mode = nullptr);

// Checks a file that is read if it exists and otherwise written later. OK if `path` is a readable
// regular file, or if it does not exist and its folder is writable; INVALID_ARGUMENT otherwise.
absl::Status CheckFileToWrite(absl::string_view option, const std::string& path);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_
