#ifndef ANNULUS_SERVER_HTTP_ANSWER_BLOCKS_H_
#define ANNULUS_SERVER_HTTP_ANSWER_BLOCKS_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "engine/api.h"

namespace annulus::server {

// A part of an answer for APIs that give reasoning, texts and calls as blocks in a row.
struct AnswerBlock {
  enum class Kind : uint8_t { kReasoning, kText, kCall };
  Kind kind = Kind::kText;
  int32_t call = 0;  // of kCall: ToolCallDelta::index
  std::string id = {};
  std::string name = {};
  std::string bytes = {};  // what was gathered: text, or the call's arguments
};

// Cuts the deltas of an answer into blocks. Keeps only which block is the newest. Not thread-safe.
class BlockCutter {
 public:
  // Adds a delta. Calls part(block, bytes, begins) for each part of it, with `begins` where a block
  // does; `block` is without bytes, and has id and name only there.
  template <typename Part>
  void Add(const Delta& delta, const Part& part) {
    const auto add = [&](const AnswerBlock& next, const std::string& bytes) {
      const bool joins = count_ > 0 && !ended_ && kind_ == next.kind && call_ == next.call;
      if (!joins) ++count_;
      ended_ = false;
      kind_ = next.kind;
      call_ = next.call;
      part(next, bytes, !joins);
    };
    if (!delta.reasoning.empty()) add({.kind = AnswerBlock::Kind::kReasoning}, delta.reasoning);
    if (!delta.text.empty()) add({.kind = AnswerBlock::Kind::kText}, delta.text);
    for (const ToolCallDelta& call : delta.calls) {
      add({AnswerBlock::Kind::kCall, call.index, call.id, call.name}, call.arguments);
    }
  }
  // An answer without any part has an empty text. Returns whether it was added.
  bool AddEmptyText() {
    if (count_ > 0) return false;
    count_ = 1;
    return true;
  }

  // Text that comes next begins a block.
  void EndBlock() { ended_ = true; }

  // Whether text would join the newest block, or begin the first, unless EndBlock was called.
  bool in_text() const { return kind_ == AnswerBlock::Kind::kText; }
  // The place of the newest block.
  size_t last() const { return count_ - 1; }

 private:
  size_t count_ = 0;
  AnswerBlock::Kind kind_ = AnswerBlock::Kind::kText;
  int32_t call_ = 0;
  bool ended_ = false;
};

// The blocks of an answer so far, with their bytes. Not thread-safe.
class AnswerBlocks {
 public:
  void Gather(const Delta& delta) {
    cutter_.Add(delta, [this](const AnswerBlock& block, const std::string& bytes, bool begins) {
      if (begins) {
        bytes_ += sizeof(block) + block.id.size() + block.name.size();
        blocks_.push_back(block);
      }
      bytes_ += bytes.size();
      blocks_.back().bytes += bytes;
    });
  }
  // See BlockCutter.
  void AddEmptyText() {
    if (cutter_.AddEmptyText()) blocks_.emplace_back();
  }
  void EndBlock() { cutter_.EndBlock(); }
  bool in_text() const { return cutter_.in_text(); }
  size_t last() const { return cutter_.last(); }

  const std::vector<AnswerBlock>& all() const { return blocks_; }
  // What Gather has taken.
  size_t bytes() const { return bytes_; }

 private:
  BlockCutter cutter_;
  std::vector<AnswerBlock> blocks_;
  size_t bytes_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANSWER_BLOCKS_H_
