#ifndef ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_
#define ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_

#include <sys/types.h>

#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus {

// The bytes of a file that an option names. Links are followed. A folder, pipe, socket or device is
// refused at once: reading it could block or never end. NOT_FOUND: no such file, or no right to
// read it. INVALID_ARGUMENT: no regular file, or longer than `max_bytes`. Messages begin with the
// option. `mode`, if given, becomes the mode of the very file that was read.
absl::StatusOr<std::string> ReadPlainFile(absl::string_view option, const std::string& path,
                                          size_t max_bytes, mode_t* mode = nullptr);

// OK if `path` is a regular file that can be read, or if it is not there and a file can be made in
// its folder. Else INVALID_ARGUMENT.
absl::Status CheckFileToWrite(absl::string_view option, const std::string& path);

}  // namespace annulus

#endif  // ANNULUS_SERVER_CONFIG_PLAIN_FILE_H_
