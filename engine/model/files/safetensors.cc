#include "engine/model/files/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "engine/base/json_parser.h"
#include "engine/model/files/model_directory.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

static_assert(std::endian::native == std::endian::little,
              "the format stores little-endian numbers");

constexpr char kSingleFile[] = "model.safetensors";
constexpr char kIndexFile[] = "model.safetensors.index.json";
constexpr uint64_t kLengthBytes = 8;
constexpr size_t kMostShards = 1024;

// Tensor name -> shard file name, as the index says.
using WeightMap = std::map<std::string, std::string>;

absl::StatusOr<WeightMap> ParseIndex(absl::string_view json, absl::string_view file_name) {
  ANNULUS_ASSIGN_OR_RETURN(const nlohmann::json index, ParseJsonTree(json, file_name));
  if (!index.is_object() || !index.contains("weight_map") || !index.at("weight_map").is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat(file_name,
                     ": weight_map is missing; allowed: an object that gives the shard "
                     "of each tensor"));
  }
  WeightMap map;
  for (const auto& [tensor, shard] : index.at("weight_map").items()) {
    if (!shard.is_string() || !absl::EndsWith(shard.get<std::string>(), ".safetensors")) {
      return absl::InvalidArgumentError(
          absl::StrCat(file_name, ": weight_map gives tensor \"", QuoteForMessage(tensor),
                       "\" the shard ", QuoteForMessage(shard.dump(-1, ' ', true)),
                       "; allowed: the name of a .safetensors file in the same directory"));
    }
    map.emplace(tensor, shard.get<std::string>());
  }
  return map;
}

// `tensors` are in ascending order of name.
bool Holds(const std::vector<StoredTensor>& tensors, absl::string_view name) {
  const auto found = std::lower_bound(tensors.begin(), tensors.end(), name,
                                      [](const StoredTensor& tensor, absl::string_view wanted) {
                                        return absl::string_view(tensor.name) < wanted;
                                      });
  return found != tensors.end() && found->name == name;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> SafetensorsCheckpoint::Open(
    const std::string& directory) {
  ANNULUS_RETURN_IF_ERROR(CheckModelDirectory(directory));
  std::unique_ptr<SafetensorsCheckpoint> checkpoint(new SafetensorsCheckpoint());
  absl::StatusOr<std::unique_ptr<Shard>> single = OpenShard(directory, kSingleFile);
  if (single.ok()) {
    checkpoint->shards_.push_back(*std::move(single));
  } else if (!absl::IsNotFound(single.status())) {
    return single.status();
  } else {
    absl::StatusOr<std::string> index = ReadSmallFile(directory, kIndexFile, kMostHeaderBytes);
    if (absl::IsNotFound(index.status())) return ExplainMissingWeights(directory);
    ANNULUS_RETURN_IF_ERROR(index.status());
    ANNULUS_RETURN_IF_ERROR(checkpoint->OpenIndexed(directory, *index));
  }
  ANNULUS_RETURN_IF_ERROR(checkpoint->MergeNames());
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint>> SafetensorsCheckpoint::OpenFile(
    const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string directory = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  std::unique_ptr<SafetensorsCheckpoint> checkpoint(new SafetensorsCheckpoint());
  ANNULUS_ASSIGN_OR_RETURN(
      auto shard, OpenShard(directory, slash == std::string::npos ? path : path.substr(slash + 1)));
  checkpoint->shards_.push_back(std::move(shard));
  ANNULUS_RETURN_IF_ERROR(checkpoint->MergeNames());
  return checkpoint;
}

absl::StatusOr<std::unique_ptr<SafetensorsCheckpoint::Shard>> SafetensorsCheckpoint::OpenShard(
    const std::string& directory, const std::string& name) {
  ANNULUS_ASSIGN_OR_RETURN(RegularFile file, RegularFile::Open(directory, name));
  if (file.size() < kLengthBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(file.path(), " has ", file.size(),
                     " bytes; a safetensors file begins with an 8-byte header length"));
  }
  uint64_t header_bytes = 0;
  ANNULUS_RETURN_IF_ERROR(
      file.ReadAt(0, std::as_writable_bytes(std::span<uint64_t>(&header_bytes, 1))));
  const uint64_t most = std::min(kMostHeaderBytes, file.size() - kLengthBytes);
  if (header_bytes == 0 || header_bytes > most) {
    return absl::InvalidArgumentError(absl::StrCat(
        file.path(), ": the header length is ", header_bytes, "; allowed: 1 to ", most,
        " (the file has ", file.size(), " bytes, a header at most ", kMostHeaderBytes, ")"));
  }
  std::string header(header_bytes, '\0');
  ANNULUS_RETURN_IF_ERROR(file.ReadAt(kLengthBytes, std::as_writable_bytes(std::span(header))));
  const uint64_t data_offset = kLengthBytes + header_bytes;
  ANNULUS_ASSIGN_OR_RETURN(std::vector<StoredTensor> tensors,
                           ParseSafetensorsHeader(header, file.size() - data_offset, file.path()));
  return std::unique_ptr<Shard>(new Shard{std::move(file), data_offset, std::move(tensors)});
}

absl::Status SafetensorsCheckpoint::OpenIndexed(const std::string& directory,
                                                absl::string_view index_json) {
  const std::string index_path = absl::StrCat(directory, "/", kIndexFile);
  ANNULUS_ASSIGN_OR_RETURN(const WeightMap map, ParseIndex(index_json, index_path));
  std::map<std::string, const Shard*> by_name;
  for (const auto& [tensor, shard_name] : map) {
    const Shard*& shard = by_name[shard_name];
    if (shard == nullptr) {
      if (shards_.size() == kMostShards) {
        return absl::InvalidArgumentError(
            absl::StrCat(index_path, ": weight_map names more than ", kMostShards, " shards"));
      }
      absl::StatusOr<std::unique_ptr<Shard>> opened = OpenShard(directory, shard_name);
      if (!opened.ok()) {
        return absl::Status(opened.status().code(),
                            absl::StrCat("shard of tensor \"", QuoteForMessage(tensor), "\" in ",
                                         kIndexFile, ": ", opened.status().message()));
      }
      shard = shards_.emplace_back(*std::move(opened)).get();
    }
    if (!Holds(shard->tensors, tensor)) {
      return absl::InvalidArgumentError(absl::StrCat(index_path, ": weight_map says that tensor \"",
                                                     QuoteForMessage(tensor), "\" is in ",
                                                     shard_name, ", but that file lacks it"));
    }
  }
  return absl::OkStatus();
}

absl::Status SafetensorsCheckpoint::MergeNames() {
  for (const auto& shard : shards_) {
    for (const StoredTensor& tensor : shard->tensors) entries_.push_back({shard.get(), &tensor});
  }
  std::sort(entries_.begin(), entries_.end(),
            [](const Entry& a, const Entry& b) { return a.tensor->name < b.tensor->name; });
  for (size_t i = 1; i < entries_.size(); ++i) {
    if (entries_[i].tensor->name != entries_[i - 1].tensor->name) continue;
    return absl::InvalidArgumentError(
        absl::StrCat("tensor \"", QuoteForMessage(entries_[i].tensor->name), "\" is in two files: ",
                     entries_[i - 1].shard->file.path(), " and ", entries_[i].shard->file.path()));
  }
  return absl::OkStatus();
}

const SafetensorsCheckpoint::Entry* SafetensorsCheckpoint::Find(absl::string_view name) const {
  const auto found = std::lower_bound(entries_.begin(), entries_.end(), name,
                                      [](const Entry& entry, absl::string_view wanted) {
                                        return absl::string_view(entry.tensor->name) < wanted;
                                      });
  return found != entries_.end() && found->tensor->name == name ? &*found : nullptr;
}

std::vector<std::string> SafetensorsCheckpoint::Names() const {
  std::vector<std::string> names;
  names.reserve(entries_.size());
  for (const Entry& entry : entries_) names.push_back(entry.tensor->name);
  return names;
}

absl::StatusOr<TensorInfo> SafetensorsCheckpoint::Describe(absl::string_view name) const {
  const Entry* entry = Find(name);
  if (entry == nullptr) {
    return absl::NotFoundError(absl::StrCat("no tensor \"", QuoteForMessage(name), "\""));
  }
  if (!entry->tensor->type->dtype) {
    return absl::FailedPreconditionError(
        absl::StrCat(entry->shard->file.path(), ": tensor \"", QuoteForMessage(name), "\" is ",
                     entry->tensor->type->name, "; supported: F32, BF16, F16, F8_E4M3, F8_E5M2"));
  }
  return TensorInfo{*entry->tensor->type->dtype, entry->tensor->shape};
}

absl::Status SafetensorsCheckpoint::Read(absl::string_view name,
                                         std::span<std::byte> destination) const {
  ANNULUS_ASSIGN_OR_RETURN(const TensorInfo info, Describe(name));
  ANNULUS_CHECK(destination.size() == info.bytes()) << "tensor " << name;
  const Entry& entry = *Find(name);
  return entry.shard->file.ReadAt(entry.shard->data_offset + entry.tensor->begin, destination);
}

absl::Status SafetensorsCheckpoint::ReadRange(absl::string_view name, size_t offset,
                                              std::span<std::byte> destination) const {
  const Entry* entry = Find(name);
  ANNULUS_CHECK(entry != nullptr) << "tensor " << name;
  const uint64_t bytes = entry->tensor->end - entry->tensor->begin;
  ANNULUS_CHECK(offset <= bytes && destination.size() <= bytes - offset) << "tensor " << name;
  return entry->shard->file.ReadAt(entry->shard->data_offset + entry->tensor->begin + offset,
                                   destination);
}

}  // namespace annulus
