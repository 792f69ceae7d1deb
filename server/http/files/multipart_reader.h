#ifndef ANNULUS_SERVER_HTTP_FILES_MULTIPART_READER_H_
#define ANNULUS_SERVER_HTTP_FILES_MULTIPART_READER_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace annulus::server {

// What the headers of a part say.
struct FormPart {
  std::string name;
  std::optional<std::string> filename = std::nullopt;
  std::string content_type = {};  // empty: not told
};

// Takes the parts of a form. An error ends the reading.
class FormTaker {
 public:
  virtual ~FormTaker() = default;
  // A part begins.
  virtual absl::Status OnPart(const FormPart& part) = 0;
  // The next bytes of its value, at least one.
  virtual absl::Status OnData(absl::string_view bytes) = 0;
  // The value is complete.
  virtual absl::Status OnPartEnd() = 0;
};

// Reads a body of multipart/form-data (RFC 7578) as it comes, however it is cut. Keeps at most
// kMostHeaderBytes of it beyond what one call gives. Not thread-safe.
class MultipartReader {
 public:
  static constexpr size_t kMostHeaderBytes = size_t{8} << 10;  // of one part
  static constexpr int kMostParts = 32;

  // The boundary in a header Content-Type. INVALID_ARGUMENT if the type is not multipart/form-data
  // or has no boundary of 1 to 70 characters.
  static absl::StatusOr<std::string> BoundaryOf(absl::string_view content_type);

  // `taker` must outlive the reader.
  MultipartReader(absl::string_view boundary, FormTaker& taker);

  // Reads the next bytes. INVALID_ARGUMENT if they are not such a form; errors of the taker. After
  // an error the reader must not be used.
  absl::Status Take(absl::string_view bytes);
  // Call it behind the last byte. INVALID_ARGUMENT if the form has no end.
  absl::Status Finish() const;

 private:
  enum class Stage : uint8_t { kPreamble, kValue, kBehindBoundary, kHeaders, kEpilogue };

  // Each reads from the front of kept_; false: it needs more bytes.
  absl::StatusOr<bool> ReadUpToBoundary();
  absl::StatusOr<bool> ReadBehindBoundary();
  absl::StatusOr<bool> ReadHeaders();
  absl::StatusOr<bool> ReadOn();
  absl::Status Give(size_t size);
  void Drop(size_t size) { begin_ += size; }
  absl::string_view kept() const { return absl::string_view(kept_).substr(begin_); }

  const std::string delimiter_;  // with the line's end before it
  FormTaker& taker_;
  Stage stage_ = Stage::kPreamble;
  std::string kept_;  // what was not read yet, from begin_ on
  size_t begin_ = 0;
  int parts_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_FILES_MULTIPART_READER_H_
