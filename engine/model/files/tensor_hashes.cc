#include "engine/model/files/tensor_hashes.h"

#include <xxhash.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "engine/base/sha256.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus {
namespace {

constexpr size_t kSmallestUnit = 4096;

size_t UnitOf(const TensorInfo& info) {
  const size_t row = info.shape.empty()
                         ? DTypeSize(info.dtype)
                         : static_cast<size_t>(info.shape.back()) * DTypeSize(info.dtype);
  if (row == 0 || row >= kSmallestUnit) return std::max<size_t>(row, 1);
  return (kSmallestUnit + row - 1) / row * row;
}

}  // namespace

// Written by many threads at once: the thread that marks a unit first adds it.
struct HashingSource::Tensor {
  explicit Tensor(TensorInfo tensor_info)
      : info(std::move(tensor_info)),
        bytes(info.bytes()),
        unit(UnitOf(info)),
        units((bytes + unit - 1) / unit),
        seen((units + 63) / 64) {}

  bool Seen(size_t index) const {
    return (seen[index / 64].load(std::memory_order_relaxed) >> (index % 64) & 1) != 0;
  }

  // The unit's bytes.
  void Add(size_t index, const std::byte* data) {
    const uint64_t bit = uint64_t{1} << (index % 64);
    if ((seen[index / 64].fetch_or(bit, std::memory_order_relaxed) & bit) != 0) return;
    const XXH128_hash_t hash = XXH3_128bits_withSeed(data, SizeOf(index), index);
    low.fetch_add(hash.low64, std::memory_order_relaxed);
    high.fetch_add(hash.high64, std::memory_order_relaxed);
  }

  size_t SizeOf(size_t index) const { return std::min(unit, bytes - index * unit); }

  const TensorInfo info;
  const size_t bytes;
  const size_t unit;  // bytes; the last may be shorter
  const size_t units;
  std::vector<std::atomic<uint64_t>> seen;  // a bit for each unit
  std::atomic<uint64_t> low{0};
  std::atomic<uint64_t> high{0};
  std::atomic<bool> read{false};
};

HashingSource::HashingSource(const TensorSource& source) : source_(source) {
  for (const std::string& name : source.Names()) {
    absl::StatusOr<TensorInfo> info = source.Describe(name);
    if (info.ok()) tensors_.emplace(name, std::make_unique<Tensor>(*std::move(info)));
  }
}

HashingSource::~HashingSource() = default;

absl::Status HashingSource::Read(absl::string_view name, std::span<std::byte> destination) const {
  ANNULUS_RETURN_IF_ERROR(source_.Read(name, destination));
  Hash(name, 0, destination);
  return absl::OkStatus();
}

absl::Status HashingSource::ReadRange(absl::string_view name, size_t offset,
                                      std::span<std::byte> destination) const {
  ANNULUS_RETURN_IF_ERROR(source_.ReadRange(name, offset, destination));
  Hash(name, offset, destination);
  return absl::OkStatus();
}

void HashingSource::Hash(absl::string_view name, size_t offset,
                         std::span<const std::byte> bytes) const {
  const auto found = tensors_.find(name);
  ANNULUS_CHECK(found != tensors_.end()) << name << " was read and is not listed";
  Tensor& tensor = *found->second;
  tensor.read.store(true, std::memory_order_relaxed);
  const size_t end = offset + bytes.size();
  for (size_t index = (offset + tensor.unit - 1) / tensor.unit; index < tensor.units; ++index) {
    const size_t begin = index * tensor.unit;
    if (begin + tensor.SizeOf(index) > end) break;
    tensor.Add(index, bytes.data() + (begin - offset));
  }
}

absl::Status HashingSource::ReadMissing(const std::string& name, Tensor& tensor) const {
  constexpr size_t kMostAtOnce = size_t{1} << 20;
  const size_t most = std::max<size_t>(1, kMostAtOnce / tensor.unit);  // units
  std::vector<std::byte> buffer;
  for (size_t first = 0; first < tensor.units;) {
    if (tensor.Seen(first)) {
      ++first;
      continue;
    }
    size_t end = first + 1;
    while (end < tensor.units && end - first < most && !tensor.Seen(end)) ++end;
    const size_t begin = first * tensor.unit;
    buffer.resize(std::min(end * tensor.unit, tensor.bytes) - begin);
    ANNULUS_RETURN_IF_ERROR(source_.ReadRange(name, begin, buffer));
    Hash(name, begin, buffer);
    first = end;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> HashingSource::Finish() {
  std::string lines;
  for (const auto& [name, tensor] : tensors_) {
    if (!tensor->read) continue;
    ANNULUS_RETURN_IF_ERROR(ReadMissing(name, *tensor));
    absl::StrAppend(&lines, name.size(), " ", name, " ", DTypeName(tensor->info.dtype), " ",
                    ShapeToString(tensor->info.shape), " ",
                    absl::Hex(tensor->high.load(), absl::kZeroPad16),
                    absl::Hex(tensor->low.load(), absl::kZeroPad16), "\n");
  }
  return Sha256Of(lines);
}

}  // namespace annulus
