// A document of any bytes, as `annulus ask` reads it; but for PDF, which another program reads.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "client/read/read.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  annulus::client::ReadLimits limits;
  limits.unpacked_bytes = int64_t{4} << 20;
  limits.html_memory = int64_t{256} << 20;
  limits.pdf_program = "";
  const std::string bytes(reinterpret_cast<const char*>(data), size);
  for (const annulus::client::FileText& file :
       annulus::client::ReadBytes("document", bytes, {}, limits)) {
    if (file.text.ok() && file.text->size() > static_cast<size_t>(limits.unpacked_bytes)) abort();
  }
  return 0;
}
