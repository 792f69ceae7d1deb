#include "engine/gguf/gguf_file.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr char kSuffix[] = ".gguf";
constexpr uint64_t kMostParts = 1024;
constexpr uint64_t kFirstRead = 64 << 10;  // bytes: files of a set but the first have few keys

// NAME and the numbers of "NAME-00001-of-00003.gguf".
struct SplitName {
  std::string stem;
  uint64_t number = 0;
  uint64_t count = 0;

  std::string File(uint64_t part) const {
    return absl::StrFormat("%s-%05d-of-%05d%s", stem, part, count, kSuffix);
  }
};

std::optional<SplitName> ParseSplitName(absl::string_view name) {
  constexpr size_t kTail = sizeof("-00001-of-00003.gguf") - 1;
  if (name.size() <= kTail || !absl::EndsWith(name, kSuffix)) return std::nullopt;
  const absl::string_view tail = name.substr(name.size() - kTail);
  SplitName split{std::string(name.substr(0, name.size() - kTail))};
  const bool numbers = absl::SimpleAtoi(tail.substr(1, 5), &split.number) &&
                       absl::SimpleAtoi(tail.substr(10, 5), &split.count);
  if (!numbers || split.number < 1 || split.number > split.count ||
      split.File(split.number) != name) {
    return std::nullopt;
  }
  return split;
}

uint64_t Whole(const GgufHeader& header, absl::string_view key) {
  const GgufValue* const value = header.Find(key);
  if (value == nullptr) return 0;
  if (value->kind == GgufValue::Kind::kUnsigned) return value->bits;
  if (value->kind == GgufValue::Kind::kSigned && value->integer > 0) return value->bits;
  return 0;
}

std::pair<std::string, std::string> SplitPath(const std::string& path) {
  const std::filesystem::path whole(path);
  const std::string directory = whole.parent_path().string();
  return {directory.empty() ? "." : directory, whole.filename().string()};
}

}  // namespace

bool IsGgufFile(const std::string& path) {
  const auto [directory, name] = SplitPath(path);
  const absl::StatusOr<RegularFile> file = RegularFile::Open(directory, name);
  std::string magic(kGgufMagic.size(), '\0');
  if (!file.ok() || file->size() < magic.size()) return false;
  return file->ReadAt(0, std::as_writable_bytes(std::span(magic))).ok() && magic == kGgufMagic;
}

absl::StatusOr<std::optional<std::string>> FindGgufFile(const std::string& directory) {
  std::vector<std::string> models;
  std::error_code error;
  std::filesystem::directory_iterator entries(directory, error);
  const std::filesystem::directory_iterator end;
  for (; !error && entries != end; entries.increment(error)) {
    const std::string name = entries->path().filename().string();
    if (!absl::EndsWith(name, kSuffix) || absl::StartsWith(name, "mmproj")) continue;
    const std::optional<SplitName> split = ParseSplitName(name);
    if (!split.has_value() || split->number == 1) models.push_back(name);
  }
  if (models.empty()) return std::optional<std::string>();
  std::sort(models.begin(), models.end());
  if (models.size() == 1) return std::optional(absl::StrCat(directory, "/", models.front()));
  const size_t shown = std::min<size_t>(models.size(), 5);
  return absl::InvalidArgumentError(absl::StrCat(
      directory, " has ", models.size(), " GGUF models (",
      absl::StrJoin(models.begin(), models.begin() + static_cast<ptrdiff_t>(shown), ", "),
      shown < models.size() ? ", .." : "", "); give one of them: --model ", directory, "/",
      models.front()));
}

absl::StatusOr<std::unique_ptr<GgufFile::Part>> GgufFile::OpenPart(const std::string& directory,
                                                                   const std::string& name,
                                                                   uint64_t most) {
  ANNULUS_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(directory, name));
  auto part = std::make_unique<Part>(Part{std::move(file), {}, {}});
  // The header's length is known only once it was read: twice as much each time.
  for (uint64_t wanted = kFirstRead;; wanted *= 2) {
    const uint64_t size = std::min({wanted, most, part->file.size()});
    part->bytes.clear();  // so that nothing is copied
    part->bytes.resize(size);
    ANNULUS_RETURN_IF_ERROR(part->file.ReadAt(0, part->bytes));
    absl::StatusOr<GgufHeader> header =
        ParseGgufHeader(part->bytes, part->file.size(), part->file.path());
    if (header.ok()) {
      part->header = *std::move(header);
      return part;
    }
    if (!absl::IsOutOfRange(header.status())) return header.status();
    if (wanted < most) continue;
    return absl::ResourceExhaustedError(absl::StrCat(
        part->file.path(), ": its header has more than ", most, " bytes; allowed: ",
        kMostGgufHeaderBytes, " bytes for the headers of all files of a model together"));
  }
}

absl::Status GgufFile::AddPart(std::unique_ptr<Part> part) {
  for (const GgufTensor& tensor : part->header.tensors) {
    if (locations_.emplace(tensor.name, Location{part.get(), &tensor}).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(part->file.path(), ": tensor ", tensor.name,
                                                   " is in an earlier file of the set too"));
  }
  parts_.push_back(std::move(part));
  return absl::OkStatus();
}

absl::Status GgufFile::OpenSet(const std::string& directory, const std::string& name) {
  ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Part> named,
                           OpenPart(directory, name, kMostGgufHeaderBytes));
  const uint64_t count = Whole(named->header, "split.count");
  if (count <= 1) return AddPart(std::move(named));
  named.reset();
  const std::optional<SplitName> split = ParseSplitName(name);
  if (count > kMostParts || !split.has_value() || split->count != count) {
    return absl::InvalidArgumentError(
        absl::StrCat(path_, " is one of ", count, " files of a split model; allowed: at most ",
                     kMostParts, " of them, in one folder, named NAME-00001-of-",
                     absl::StrFormat("%05d", std::min<uint64_t>(count, 99999)), kSuffix));
  }
  uint64_t left = kMostGgufHeaderBytes;
  for (uint64_t i = 1; i <= count; ++i) {
    ANNULUS_ASSIGN_OR_RETURN(std::unique_ptr<Part> part, OpenPart(directory, split->File(i), left));
    if (Whole(part->header, "split.no") != i - 1 || Whole(part->header, "split.count") != count) {
      return absl::InvalidArgumentError(absl::StrCat(
          part->file.path(), " says that it is part ", Whole(part->header, "split.no") + 1, " of ",
          Whole(part->header, "split.count"), "; by its name it must be part ", i, " of ", count));
    }
    left -= part->bytes.size();
    ANNULUS_RETURN_IF_ERROR(AddPart(std::move(part)));
  }
  const uint64_t said = Whole(parts_[0]->header, "split.tensors.count");
  if (said == 0 || said == locations_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(parts_[0]->file.path(), " counts ", said,
                                                 " tensors in the set; its ", count, " files have ",
                                                 locations_.size()));
}

absl::StatusOr<std::unique_ptr<GgufFile>> GgufFile::Open(const std::string& path) {
  auto file = std::unique_ptr<GgufFile>(new GgufFile);
  file->path_ = path;
  const auto [directory, name] = SplitPath(path);
  ANNULUS_RETURN_IF_ERROR(file->OpenSet(directory, name));
  return file;
}

absl::string_view GgufFile::Text(absl::string_view key) const {
  const GgufValue* const value = Find(key);
  return value != nullptr && value->kind == GgufValue::Kind::kString ? value->text : "";
}

const GgufTensor* GgufFile::FindTensor(absl::string_view name) const {
  const auto found = locations_.find(name);
  return found == locations_.end() ? nullptr : found->second.tensor;
}

std::vector<const GgufTensor*> GgufFile::Tensors() const {
  std::vector<const GgufTensor*> all;
  for (const std::unique_ptr<Part>& part : parts_) {
    for (const GgufTensor& tensor : part->header.tensors) all.push_back(&tensor);
  }
  return all;
}

absl::Status GgufFile::Read(const GgufTensor& tensor, uint64_t offset,
                            std::span<std::byte> destination) const {
  ANNULUS_CHECK(offset <= tensor.bytes && destination.size() <= tensor.bytes - offset)
      << tensor.name;
  const auto found = locations_.find(tensor.name);
  ANNULUS_CHECK(found != locations_.end() && found->second.tensor == &tensor)
      << "tensor " << tensor.name << " of another file";
  return found->second.part->file.ReadAt(tensor.offset + offset, destination);
}

absl::Status GgufFile::CheckServed(const GgufTensor& tensor) const {
  if (tensor.type->served()) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(path_, ": tensor ", tensor.name, " is stored as ",
                                               tensor.type->name,
                                               "; supported: ", ServedGgufTypes()));
}

absl::StatusOr<std::vector<float>> GgufFile::ReadAsFloat(const GgufTensor& tensor) const {
  ANNULUS_RETURN_IF_ERROR(CheckServed(tensor));
  std::vector<std::byte> stored(tensor.bytes);
  ANNULUS_RETURN_IF_ERROR(Read(tensor, 0, stored));
  const auto blocks = static_cast<int64_t>(tensor.bytes / tensor.type->bytes);
  std::vector<float> values(static_cast<size_t>(blocks * tensor.type->block));
  tensor.type->widen(stored.data(), blocks, values.data());
  return values;
}

}  // namespace annulus
