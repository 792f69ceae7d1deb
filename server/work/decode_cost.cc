#include "server/work/decode_cost.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/wire_format_lite.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/status_macros.h"
#include "server/base/errors.h"
#include "server/work/message_layout.h"

namespace annulus::server {
namespace {

using google::protobuf::internal::WireFormatLite;
using google::protobuf::io::CodedInputStream;

constexpr int kDeepest = 100;  // protobuf's own limit
constexpr int kTagTypeBits = 3;

// Heap bytes of an allocation in glibc: one word in front, rounded up to 16 bytes, at least 32, and
// 16 more if the rest of a free block would be too small to use.
constexpr size_t Block(size_t bytes) {
  return std::max<size_t>(32, (bytes + 8 + 15) / 16 * 16) + 16;
}

constexpr size_t kStringObject = Block(32);
constexpr size_t kInlineText = 15;     // longest text that a string stores without an allocation
constexpr size_t kLeastCapacity = 30;  // smallest capacity of a string with an allocation
// Up to this size protobuf allocates a string at once; longer ones grow by doubling.
constexpr size_t kReservedText = 50'000'000;

// Arrays grow by doubling; during a copy the old one takes a third of the memory, so an entry
// counts three times. The first allocation of an array is larger than its entries.
constexpr size_t kPointerEntry = 3 * sizeof(void*);
constexpr size_t kFirstPointers = 64;
constexpr size_t kFirstNumbers = 96;
constexpr size_t kUnknownEntry = 3 * 16;
constexpr size_t kFirstUnknown = 96;
constexpr size_t kUnknownGroup = Block(24);
// Overhead of each map entry: links, its share of the bucket table, and a tree node, since many
// entries may fall into one bucket.
constexpr size_t kMapEntry = 16 + 32 + 80;
constexpr size_t kFirstMapEntry = 160;
// A map entry is decoded separately, and its key is copied twice.
constexpr size_t kMapCopies = 3;

// The message that protobuf formats for a text that is not UTF-8, though the log drops it.
constexpr size_t kComplaint = 1024;
// Large allocations are rounded up to whole pages (4 KiB for 128 KiB or more).
constexpr size_t kLargeBlock = size_t{128} << 10;
constexpr size_t kPageShare = 32;

size_t TextBytes(size_t size) {
  if (size <= kInlineText) return 0;
  if (size > kReservedText) return 3 * size;
  return Block(std::max(size, kLeastCapacity) + 1);
}

// For a text that replaces another: the new block may be twice as large.
size_t ReplacedTextBytes(size_t size) {
  return size <= kInlineText ? 0 : TextBytes(2 * std::max(size, kLeastCapacity));
}

// Remembers which of the first 64 fields of a message have come.
class SeenFields {
 public:
  // Returns true if the field has not come before, or if that is not known.
  bool First(int index) {
    if (index >= 64) return true;
    const uint64_t bit = uint64_t{1} << index;
    const bool first = (bits_ & bit) == 0;
    bits_ |= bit;
    return first;
  }

 private:
  uint64_t bits_ = 0;
};

// Walks the bytes of a message in the order in which the parser reads them, and adds up the cost.
class Walk {
 public:
  explicit Walk(google::protobuf::io::ZeroCopyInputStream& bytes) : in_(&bytes) {}

  // Walks a whole message of `size` bytes. Returns false if the bytes are not well-formed.
  bool Whole(int size, const MessageLayout& layout) {
    cost_ = Block(layout.object_bytes) + kComplaint;
    const CodedInputStream::Limit all = in_.PushLimit(size);
    const bool well_formed = Message(layout, /*fresh=*/true, 0);
    in_.PopLimit(all);
    return well_formed;
  }

  size_t cost() const { return cost_ + (cost_ < kLargeBlock ? 0 : cost_ / kPageShare); }

  // An error for the first field with too many entries.
  absl::Status CheckCounts() const {
    for (const auto& [limit, count] : counts_) {
      if (count.entries <= static_cast<size_t>(limit->most)) continue;
      return FieldError(count.path, absl::StrCat(count.entries, " ", limit->noun,
                                                 " are not allowed: ", limit->allowed));
    }
    return absl::OkStatus();
  }

 private:
  struct Count {
    std::string path;
    size_t entries = 0;
  };

  bool AtEnd() const { return in_.BytesUntilLimit() == 0; }

  // Walks the fields up to the limit. `fresh`: the message object is new, not merged into.
  bool Message(const MessageLayout& layout, bool fresh, int depth) {
    SeenFields seen;
    bool unknown = false;
    while (!AtEnd()) {
      const uint32_t tag = in_.ReadTagNoLastTag();
      const int number = static_cast<int>(tag >> kTagTypeBits);
      if (number == 0) return false;
      const auto type = WireFormatLite::GetTagWireType(tag);
      const FieldLayout* const field = layout.Find(number);
      const bool packed = field != nullptr && field->repeated &&
                          field->kind == FieldLayout::Kind::kNumber &&
                          type == WireFormatLite::WIRETYPE_LENGTH_DELIMITED;
      if (field == nullptr || (type != field->wire_type && !packed)) {
        if (!unknown) cost_ += kFirstUnknown;
        unknown = true;
        if (!Unknown(type, number, depth)) return false;
      } else if (!Known(*field, packed, seen.First(field->index), fresh, depth)) {
        return false;
      }
    }
    return true;
  }

  bool Known(const FieldLayout& field, bool packed, bool first, bool fresh, int depth) {
    path_.push_back(&field.name);
    const bool well_formed = packed ? Packed(field, first) : Value(field, first, fresh, depth);
    path_.pop_back();
    return well_formed;
  }

  bool Value(const FieldLayout& field, bool first, bool fresh, int depth) {
    Count1(field);
    if (field.kind == FieldLayout::Kind::kNumber) {
      if (field.repeated) cost_ += 3 * field.element_bytes + (first ? kFirstNumbers : 0);
      return SkipNumber(field.wire_type);
    }
    uint32_t size = 0;
    if (!ReadSize(&size)) return false;
    switch (field.kind) {
      case FieldLayout::Kind::kText:
        if (field.repeated) {
          cost_ += kPointerEntry + (first ? kFirstPointers : 0) + kStringObject + TextBytes(size);
        } else if (first && fresh) {
          cost_ += kStringObject + TextBytes(size);
        } else {
          cost_ += kStringObject + ReplacedTextBytes(size);
        }
        return in_.Skip(static_cast<int>(size));
      case FieldLayout::Kind::kMap:
        return MapEntry(field, first, size, depth);
      default:
        if (field.repeated) {
          cost_ += kPointerEntry + (first ? kFirstPointers : 0) + Block(field.element_bytes);
        } else if (first) {
          cost_ += Block(field.element_bytes);
        }
        return Inner(*field.message, size, field.repeated || (first && fresh), depth);
    }
  }

  bool Inner(const MessageLayout& layout, uint32_t size, bool fresh, int depth) {
    if (depth >= kDeepest) return false;
    const CodedInputStream::Limit outer = in_.PushLimit(static_cast<int>(size));
    const bool well_formed = Message(layout, fresh, depth + 1);
    in_.PopLimit(outer);
    return well_formed;
  }

  bool MapEntry(const FieldLayout& field, bool first, uint32_t size, int depth) {
    cost_ += kMapEntry + Block(field.element_bytes) + (first ? kFirstMapEntry : 0);
    const size_t before = cost_;
    const bool well_formed = Inner(*field.message, size, /*fresh=*/true, depth);
    cost_ += (kMapCopies - 1) * (cost_ - before) + Block(field.element_bytes);
    return well_formed;
  }

  bool Packed(const FieldLayout& field, bool first) {
    uint32_t size = 0;
    if (!ReadSize(&size)) return false;
    size_t entries = 0;
    if (field.wire_type == WireFormatLite::WIRETYPE_VARINT) {
      if (!SkipVarints(static_cast<int>(size), &entries)) return false;
    } else {
      entries = size / field.element_bytes;
      if (size % field.element_bytes != 0 || !in_.Skip(static_cast<int>(size))) return false;
    }
    if (field.limit != nullptr) Add(field, entries);
    cost_ += 3 * field.element_bytes * entries + (first ? kFirstNumbers : 0);
    return true;
  }

  bool Unknown(WireFormatLite::WireType type, int number, int depth) {
    cost_ += kUnknownEntry;
    if (type == WireFormatLite::WIRETYPE_START_GROUP) return UnknownGroup(number, depth);
    if (type != WireFormatLite::WIRETYPE_LENGTH_DELIMITED) return SkipNumber(type);
    uint32_t size = 0;
    if (!ReadSize(&size)) return false;
    cost_ += kStringObject + TextBytes(size);
    return in_.Skip(static_cast<int>(size));
  }

  bool UnknownGroup(int group, int depth) {
    if (depth >= kDeepest) return false;
    cost_ += kUnknownGroup;
    bool first = true;
    while (!AtEnd()) {
      const uint32_t tag = in_.ReadTagNoLastTag();
      const int number = static_cast<int>(tag >> kTagTypeBits);
      if (number == 0) return false;
      const auto type = WireFormatLite::GetTagWireType(tag);
      if (type == WireFormatLite::WIRETYPE_END_GROUP) return number == group;
      if (first) cost_ += kFirstUnknown;
      first = false;
      if (!Unknown(type, number, depth + 1)) return false;
    }
    return false;
  }

  bool ReadSize(uint32_t* size) {
    return in_.ReadVarint32(size) && *size <= static_cast<uint32_t>(in_.BytesUntilLimit());
  }

  bool SkipNumber(WireFormatLite::WireType type) {
    uint64_t value;
    switch (type) {
      case WireFormatLite::WIRETYPE_VARINT:
        return in_.ReadVarint64(&value);
      case WireFormatLite::WIRETYPE_FIXED64:
        return in_.Skip(8);
      case WireFormatLite::WIRETYPE_FIXED32:
        return in_.Skip(4);
      default:
        return false;
    }
  }

  // Skips `size` bytes of varints and counts them: each ends with a byte below 128.
  bool SkipVarints(int size, size_t* entries) {
    uint8_t last = 0;
    while (size > 0) {
      const void* data = nullptr;
      int available = 0;
      if (!in_.GetDirectBufferPointer(&data, &available)) return false;
      available = std::min(available, size);
      const auto* const bytes = static_cast<const uint8_t*>(data);
      *entries += static_cast<size_t>(
          std::count_if(bytes, bytes + available, [](uint8_t byte) { return byte < 128; }));
      last = bytes[available - 1];
      in_.Skip(available);
      size -= available;
    }
    return last < 128;
  }

  void Count1(const FieldLayout& field) {
    if (field.limit != nullptr) Add(field, 1);
  }

  void Add(const FieldLayout& field, size_t entries) {
    Count& count = counts_[field.limit];
    if (count.path.empty()) {
      count.path = absl::StrJoin(
          path_, ".", [](std::string* out, const std::string* name) { out->append(*name); });
    }
    count.entries += entries;
  }

  CodedInputStream in_;
  size_t cost_ = 0;
  std::vector<const std::string*> path_;  // path of the field being read
  std::map<const CountLimit*, Count> counts_;
};

}  // namespace

absl::StatusOr<size_t> DecodeCost(google::protobuf::io::ZeroCopyInputStream& bytes, size_t size,
                                  const google::protobuf::Message& prototype) {
  Walk walk(bytes);
  if (!walk.Whole(static_cast<int>(size), LayoutOf(*prototype.GetDescriptor()))) {
    return NoSuchMessageError(prototype);
  }
  ANNULUS_RETURN_IF_ERROR(walk.CheckCounts());
  return walk.cost();
}

absl::Status NoSuchMessageError(const google::protobuf::Message& prototype) {
  return FieldError(
      "", absl::StrCat("the message cannot be read as ", prototype.GetDescriptor()->full_name(),
                       ": it is damaged, nested too deeply, or has text that is not "
                       "UTF-8; build the client from this server's proto files"));
}

}  // namespace annulus::server
