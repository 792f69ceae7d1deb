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

// The blocks of an answer so far. Not thread-safe.
class AnswerBlocks {
 public:
  // Adds a delta. Calls part(block, bytes, begins) for each part of it, with `begins` where a block
  // does.
  template <typename Part>
  void Add(const Delta& delta, const Part& part) {
    const auto add = [&](AnswerBlock next, const std::string& bytes) {
      const bool joins =
          !blocks_.empty() && blocks_.back().kind == next.kind && blocks_.back().call == next.call;
      if (!joins) blocks_.push_back(std::move(next));
      part(blocks_.back(), bytes, !joins);
    };
    if (!delta.reasoning.empty()) add({.kind = AnswerBlock::Kind::kReasoning}, delta.reasoning);
    if (!delta.text.empty()) add({.kind = AnswerBlock::Kind::kText}, delta.text);
    for (const ToolCallDelta& call : delta.calls) {
      add({AnswerBlock::Kind::kCall, call.index, call.id, call.name}, call.arguments);
    }
  }
  // Adds a delta with its bytes.
  void Gather(const Delta& delta) {
    Add(delta, [this](AnswerBlock& block, const std::string& bytes, bool begins) {
      if (begins) bytes_ += sizeof(block) + block.id.size() + block.name.size();
      bytes_ += bytes.size();
      block.bytes += bytes;
    });
  }
  // An answer without any part has an empty text. Returns whether it was added.
  bool AddEmptyText() {
    if (!blocks_.empty()) return false;
    blocks_.emplace_back();
    return true;
  }

  const std::vector<AnswerBlock>& all() const { return blocks_; }
  // The place of the newest block.
  size_t last() const { return blocks_.size() - 1; }
  // What Gather has taken.
  size_t bytes() const { return bytes_; }

 private:
  std::vector<AnswerBlock> blocks_;
  size_t bytes_ = 0;
};

}  // namespace annulus::server

#endif  // ANNULUS_SERVER_HTTP_ANSWER_BLOCKS_H_
