#ifndef ANNULUS_SERVER_DOCUMENTS_TOKEN_LIST_H_
#define ANNULUS_SERVER_DOCUMENTS_TOKEN_LIST_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace annulus::server {

// The token ids of a document, in blocks: they grow without being copied, so at no time does a
// document take much more memory than at its end.
class TokenList {
 public:
  static constexpr size_t kBlockIds = 1024;
  // Heap bytes of a block besides its ids: its place in the list, which grows by doubling.
  static constexpr size_t kBlockOverhead = 2 * sizeof(std::vector<int32_t>);

  size_t size() const { return size_; }
  size_t memory_bytes() const { return MemoryOf(size_, capacity_); }
  // The same after `more` ids are appended.
  size_t memory_bytes_with(size_t more) const { return MemoryOf(size_ + more, capacity_); }

  void Append(std::span<const int32_t> ids) {
    while (!ids.empty()) {
      if (size_ == capacity_) {
        blocks_.emplace_back().reserve(kBlockIds);
        capacity_ += kBlockIds;
      }
      std::vector<int32_t>& last = blocks_.back();
      const size_t count = std::min(ids.size(), capacity_ - size_);
      last.insert(last.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(count));
      ids = ids.subspan(count);
      size_ += count;
    }
  }

  // Frees what the last block has too much. Call it after the last Append.
  void Close() {
    if (!blocks_.empty()) blocks_.back().shrink_to_fit();
    capacity_ = size_;
  }

  void AppendTo(std::vector<int32_t>& ids) const {
    for (const std::vector<int32_t>& block : blocks_) {
      ids.insert(ids.end(), block.begin(), block.end());
    }
  }

 private:
  static size_t MemoryOf(size_t size, size_t capacity) {
    const size_t blocks = (size + kBlockIds - 1) / kBlockIds;
    return (size > capacity ? blocks * kBlockIds : capacity) * sizeof(int32_t) +
           blocks * kBlockOverhead;
  }

  std::vector<std::vector<int32_t>> blocks_;  // all but the last one are full
  size_t size_ = 0;                           // ids
  size_t capacity_ = 0;                       // ids
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_DOCUMENTS_TOKEN_LIST_H_
