#ifndef ANNULUS_SERVER_HTTP_FILES_FILE_ROUTES_H_
#define ANNULUS_SERVER_HTTP_FILES_FILE_ROUTES_H_

#include "server/http/routes.h"

namespace annulus::server {

// GET /v1/files: the tenant's documents in the order of their ids, in pages.
absl::StatusOr<HttpAnswer> ListFiles(const HttpWork& work, const std::deque<std::string>& body,
                                     const CancelFlag& cancel);
// GET /v1/files/{id}
absl::StatusOr<HttpAnswer> GetFile(const HttpWork& work, const std::deque<std::string>& body,
                                   const CancelFlag& cancel);
// DELETE /v1/files/{id}
absl::StatusOr<HttpAnswer> DeleteFile(const HttpWork& work, const std::deque<std::string>& body,
                                      const CancelFlag& cancel);

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_FILES_FILE_ROUTES_H_
