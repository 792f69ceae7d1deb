#ifndef ANNULUS_ENGINE_TEXT_ANSWER_EVENT_WRITER_H_
#define ANNULUS_ENGINE_TEXT_ANSWER_EVENT_WRITER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "engine/text/answer/answer_event.h"

namespace annulus {

// Appends events to a list: bytes of one kind that follow each other become one event, and calls
// are numbered. Not thread-safe.
class EventWriter {
 public:
  // Events go to `out` until End. It must outlive these calls.
  void Begin(std::vector<AnswerEvent>& out) { out_ = &out; }
  void End() { out_ = nullptr; }

  // `source`: the bytes of the answer that these stand for. No-op if there are none of either.
  void Add(AnswerEvent::Kind kind, absl::string_view bytes, size_t source) {
    if (bytes.empty() && source == 0) return;
    const bool joins = !out_->empty() && out_->back().kind == kind &&
                       out_->back().index == calls_ && out_->back().broken.empty();
    if (!joins) out_->push_back({.kind = kind, .index = calls_});
    absl::StrAppend(&out_->back().bytes, bytes);
    out_->back().source += source;
  }
  // Text that was held back because it might have been a call; `broken`: why it is none, or empty.
  void AddHeld(std::string text, absl::string_view broken) {
    AnswerEvent event{.kind = AnswerEvent::Kind::kText, .source = text.size()};
    event.bytes = std::move(text);
    event.broken = std::string(broken);
    out_->push_back(std::move(event));
  }
  void BeginCall(std::string id, std::string name, size_t source) {
    AnswerEvent event{.kind = AnswerEvent::Kind::kCallBegin, .source = source, .index = calls_};
    event.id = std::move(id);
    event.name = std::move(name);
    out_->push_back(std::move(event));
  }
  // `broken`: why the call is not complete, or empty.
  void EndCall(absl::string_view broken) {
    AnswerEvent event{.kind = AnswerEvent::Kind::kCallEnd, .index = calls_};
    event.broken = std::string(broken);
    out_->push_back(std::move(event));
    ++calls_;
  }

  // Calls that have ended.
  int32_t calls() const { return calls_; }

 private:
  std::vector<AnswerEvent>* out_ = nullptr;
  int32_t calls_ = 0;
};

}  // namespace annulus

#endif  // ANNULUS_ENGINE_TEXT_ANSWER_EVENT_WRITER_H_
