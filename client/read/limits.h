#ifndef ANNULUS_CLIENT_READ_LIMITS_H_
#define ANNULUS_CLIENT_READ_LIMITS_H_

#include <chrono>
#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace annulus::client {

// Bounds for reading one file, so that a hostile file cannot exhaust memory or time. The defaults
// are far above any real document.
struct ReadLimits {
  int64_t file_bytes = int64_t{512} << 20;      // as stored
  int64_t unpacked_bytes = int64_t{256} << 20;  // unpacked from its archives, and text of its PDFs
  int64_t xml_tags = int64_t{8} << 20;          // "<" and "=" in an XML part, about 64 bytes each
  int xml_depth = 256;                          // nested elements
  int64_t html_bytes = int64_t{64} << 20;       // size of one page
  int64_t html_memory = int64_t{1} << 30;       // bytes of a page's tree
  int entries = 10000;                          // files in archives, including nested ones
  int nesting = 3;                              // archives inside one another
  std::chrono::milliseconds time = std::chrono::minutes(2);
  int64_t child_memory = int64_t{2} << 30;  // address space of a converter such as pdftotext, bytes
  std::string pdf_program = "pdftotext";    // searched in PATH
  std::string pdf_images_program = "pdfimages";  // likewise
  std::string pdf_unpack_program = "qpdf";       // likewise
  std::string pdf_repair_program = "fix-qdf";    // likewise
  std::string pdf_ocr_program = "ocrmypdf";      // likewise
  std::chrono::milliseconds ocr_time = std::chrono::minutes(60);
  int64_t ocr_memory = int64_t{8} << 30;  // address space of each of its processes
};

// The part of the limits that is left while one file is read. Not thread-safe.
class ReadBudget {
 public:
  explicit ReadBudget(const ReadLimits& limits)
      : limits_(limits),
        deadline_(std::chrono::steady_clock::now() + limits.time),
        bytes_left_(limits.unpacked_bytes),
        entries_left_(limits.entries) {}

  const ReadLimits& limits() const { return limits_; }
  std::chrono::steady_clock::time_point deadline() const { return deadline_; }
  // Moves the deadline, by time that does not count.
  void AddTime(std::chrono::steady_clock::duration time) { deadline_ += time; }
  bool TimeIsUp() const { return std::chrono::steady_clock::now() >= deadline_; }
  int64_t bytes_left() const { return bytes_left_; }

  // RESOURCE_EXHAUSTED if fewer bytes are left. `what` names the file in the message.
  absl::Status TakeBytes(absl::string_view what, int64_t bytes);
  absl::Status TakeEntry(absl::string_view what);
  // DEADLINE_EXCEEDED if the time is up.
  absl::Status CheckTime(absl::string_view what) const;

 private:
  const ReadLimits limits_;
  std::chrono::steady_clock::time_point deadline_;
  int64_t bytes_left_;
  int entries_left_;
};

}  // namespace annulus::client

#endif  // ANNULUS_CLIENT_READ_LIMITS_H_
