#include "client/read/archive.h"

#include <zip.h>
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"

namespace annulus::client {
namespace {

constexpr size_t kUnpackBytes = 256 << 10;  // at a time

absl::Status BrokenArchive(absl::string_view what, absl::string_view reason) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, " cannot be unpacked: ", reason, "; it may be cut off or broken"));
}

}  // namespace

absl::StatusOr<std::string> Gunzip(absl::string_view what, absl::string_view bytes,
                                   ReadBudget& budget) {
  z_stream stream{};
  constexpr int kGzipOnly = 16 + MAX_WBITS;
  if (inflateInit2(&stream, kGzipOnly) != Z_OK) return absl::InternalError("zlib cannot start");
  const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, &inflateEnd);
  std::string text, chunk(kUnpackBytes, '\0');
  while (true) {
    if (stream.avail_in == 0) {
      const size_t part = std::min<size_t>(bytes.size(), std::numeric_limits<uInt>::max());
      stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
      stream.avail_in = static_cast<uInt>(part);
      bytes.remove_prefix(part);
    }
    stream.next_out = reinterpret_cast<Bytef*>(chunk.data());
    stream.avail_out = static_cast<uInt>(chunk.size());
    const int result = inflate(&stream, Z_NO_FLUSH);
    const size_t size = chunk.size() - stream.avail_out;
    if (absl::Status left = budget.TakeBytes(what, static_cast<int64_t>(size)); !left.ok()) {
      return left;
    }
    if (absl::Status time = budget.CheckTime(what); !time.ok()) return time;
    text.append(chunk, 0, size);
    if (result == Z_STREAM_END) {
      // Another member may follow, or zeros that pad the file.
      while (stream.avail_in > 0 && *stream.next_in == 0) ++stream.next_in, --stream.avail_in;
      if (stream.avail_in == 0 && bytes.empty()) return text;
      if (inflateReset(&stream) != Z_OK) return BrokenArchive(what, "zlib cannot start again");
    } else if (result != Z_OK) {
      return BrokenArchive(what, stream.msg == nullptr ? "its end is missing" : stream.msg);
    }
  }
}

ZipArchive::ZipArchive(std::string what, zip* archive)
    : what_(std::move(what)), archive_(archive) {}

ZipArchive::~ZipArchive() { zip_discard(archive_); }

absl::StatusOr<std::unique_ptr<ZipArchive>> ZipArchive::Open(absl::string_view what,
                                                             absl::string_view bytes) {
  zip_error_t error;
  zip_error_init(&error);
  const std::unique_ptr<zip_error_t, void (*)(zip_error_t*)> closer(&error, &zip_error_fini);
  zip_source_t* const source =
      zip_source_buffer_create(bytes.data(), bytes.size(), /*freep=*/0, &error);
  if (source == nullptr) return BrokenArchive(what, zip_error_strerror(&error));
  zip_t* const archive = zip_open_from_source(source, ZIP_RDONLY, &error);
  if (archive == nullptr) {
    zip_source_free(source);
    return BrokenArchive(what, zip_error_strerror(&error));
  }
  std::unique_ptr<ZipArchive> result(new ZipArchive(std::string(what), archive));
  const zip_int64_t count = zip_get_num_entries(archive, 0);
  for (zip_int64_t i = 0; i < count; ++i) {
    const char* name = zip_get_name(archive, static_cast<zip_uint64_t>(i), ZIP_FL_ENC_GUESS);
    result->names_.emplace_back(name == nullptr ? "" : name);
  }
  return result;
}

std::optional<size_t> ZipArchive::Find(const std::string& name) const {
  const auto found = std::find(names_.begin(), names_.end(), name);
  if (found == names_.end()) return std::nullopt;
  return static_cast<size_t>(found - names_.begin());
}

absl::StatusOr<std::string> ZipArchive::Read(size_t index, ReadBudget& budget) const {
  if (absl::Status taken = budget.TakeEntry(what_); !taken.ok()) return taken;
  zip_file_t* const file = zip_fopen_index(archive_, index, 0);
  if (file == nullptr) {
    const int code = zip_error_code_zip(zip_get_error(archive_));
    if (code == ZIP_ER_NOPASSWD || code == ZIP_ER_WRONGPASSWD || code == ZIP_ER_ENCRNOTSUPP) {
      return absl::InvalidArgumentError(
          absl::StrCat(what_, " is encrypted; save it without a password first"));
    }
    return BrokenArchive(what_, zip_strerror(archive_));
  }
  const std::unique_ptr<zip_file_t, int (*)(zip_file_t*)> closer(file, &zip_fclose);
  std::string text, chunk(kUnpackBytes, '\0');
  while (true) {
    const zip_int64_t size = zip_fread(file, chunk.data(), chunk.size());
    if (size < 0) return BrokenArchive(what_, zip_file_strerror(file));
    if (size == 0) return text;
    if (absl::Status left = budget.TakeBytes(what_, size); !left.ok()) return left;
    if (absl::Status time = budget.CheckTime(what_); !time.ok()) return time;
    text.append(chunk, 0, static_cast<size_t>(size));
  }
}

absl::StatusOr<std::string> ZipArchive::Read(const std::string& name, ReadBudget& budget) const {
  const std::optional<size_t> index = Find(name);
  if (index.has_value()) return Read(*index, budget);
  return absl::NotFoundError(absl::StrCat(what_, " lacks its part ", name, "; it may be broken"));
}

}  // namespace annulus::client
