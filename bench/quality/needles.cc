#include "bench/quality/needles.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/substitute.h"
#include "bench/demo/prose.h"
#include "bench/model/bench_sink.h"
#include "kernels/base/check.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

constexpr int kAnswerTokens = 32;

// Kinds of facts, in turn. If all were of one kind, a model that gives one answer to every question
// would be right once, and nobody could tell that from finding one of them. $0: a place.
struct Kind {
  absl::string_view cue;
  absl::string_view answer;  // a pattern of Prose
  absl::string_view question;
};
constexpr Kind kKinds[] = {
    {"The keeper of the lighthouse at $0 is ", "{person}",
     "Who is the keeper of the lighthouse at $0?"},
    {"The bridge at $0 was built in ", "{year}", "In which year was the bridge at $0 built?"},
    {"The ferry to $0 is called the ", "{ship}", "What is the ferry to $0 called?"},
    {"The code of the lamp at $0 is ", "{digits}-{word}", "What is the code of the lamp at $0?"},
    {"The fair at $0 is held in ", "{month}", "In which month is the fair at $0 held?"},
    {"The merchants of $0 trade in ", "{cargo}", "What do the merchants of $0 trade in?"},
    {"The road from $0 ends at ", "{place}", "Where does the road from $0 end?"},
    {"The school of $0 was founded by ", "{person}", "Who founded the school of $0?"},
};

// Behind the line or sentence that `at` falls into; the text's end if none ends behind it.
size_t NextCut(absl::string_view text, size_t at) {
  const size_t line = text.find('\n', at);
  const size_t sentence = text.find(". ", at);
  if (line == absl::string_view::npos && sentence == absl::string_view::npos) return text.size();
  return line < sentence ? line + 1 : sentence + 2;
}

absl::StatusOr<std::vector<int32_t>> TextIds(const Engine& engine, absl::string_view text) {
  const auto stream = engine.NewTextStream(CancelFlag::Never());
  std::vector<int32_t> ids;
  ANNULUS_RETURN_IF_ERROR(stream->Append(text, ids));
  ANNULUS_RETURN_IF_ERROR(stream->Finish(ids));
  return ids;
}

// What stands around the text: with `place.at` before it and `place.frame_end` behind it.
absl::StatusOr<RenderedChat> Frame(const Engine& engine, const Needle& needle) {
  const CancelFlag& never = CancelFlag::Never();
  const std::vector<ChatDocument> documents = {{.name = "text.txt", .mark = ""}};
  if (!engine.model().frames_documents) {
    RenderedChat continued;
    ANNULUS_ASSIGN_OR_RETURN(continued.token_ids, TextIds(engine, needle.cue));
    continued.places.emplace_back();
    return continued;
  }
  if (!engine.model().has_chat_template) {
    return engine.FrameText(documents, needle.question, never);
  }
  ChatRequest chat;
  ChatMessage& message = chat.messages.emplace_back();
  message.role = "user";
  message.content = needle.question;
  chat.documents = documents;
  chat.framed = true;
  return engine.ApplyChatTemplate(chat, never, MemoryGrant::Unlimited());
}

// The prompt of one question about the text with these ids.
absl::StatusOr<RequestSpec> Ask(const Engine& engine, std::span<const int32_t> ids,
                                const Needle& needle) {
  ANNULUS_ASSIGN_OR_RETURN(const RenderedChat frame, Frame(engine, needle));
  ANNULUS_CHECK(frame.places.size() == 1) << "one text has one place";
  const auto begin = frame.token_ids.begin();
  const auto at = begin + static_cast<std::ptrdiff_t>(frame.places[0].at);
  RequestSpec request;
  request.prompt.assign(begin, at);
  request.prompt.insert(request.prompt.end(), ids.begin(), ids.end());
  request.shared_prefixes = {
      static_cast<int32_t>(ids.size() + frame.places[0].frame_end)};  // read once for all questions
  request.prompt.insert(request.prompt.end(), at, frame.token_ids.end());
  request.sampling.temperature = 0;
  request.sampling.max_tokens = kAnswerTokens;
  return request;
}

absl::StatusOr<std::string> Answer(Engine& engine, RequestSpec request) {
  const auto sink = std::make_shared<BenchSink>();
  ANNULUS_RETURN_IF_ERROR(engine.Submit(std::move(request), sink).status());
  std::optional<Completion> completion;
  while (!completion) completion = sink->WaitFor(std::chrono::seconds(1));
  ANNULUS_RETURN_IF_ERROR(completion->status);
  return engine.Detokenize(sink->ids(), /*skip_special=*/true, CancelFlag::Never());
}

}  // namespace

std::vector<Needle> MakeNeedles(int count, uint64_t seed) {
  ANNULUS_CHECK(count >= 0 && count <= kMostNeedles);
  Prose prose(seed);
  std::set<std::string> places;
  std::vector<Needle> needles;
  while (std::ssize(needles) < count) {
    const std::string place = prose.Expand("{place}");
    if (!places.insert(place).second) continue;
    const Kind& kind = kKinds[needles.size() % std::size(kKinds)];
    needles.push_back({absl::Substitute(kind.cue, place), prose.Expand(kind.answer),
                       absl::Substitute(kind.question, place)});
  }
  return needles;
}

std::string PlantNeedles(absl::string_view text, std::span<const Needle> needles) {
  std::string planted;
  size_t taken = 0;
  for (size_t i = 0; i < needles.size(); ++i) {
    const auto depth =
        static_cast<size_t>((static_cast<double>(i) + 0.5) / static_cast<double>(needles.size()) *
                            static_cast<double>(text.size()));
    const size_t cut = std::max(taken, NextCut(text, depth));
    absl::StrAppend(&planted, text.substr(taken, cut - taken));
    if (!planted.empty() && planted.back() != '\n') planted.push_back('\n');
    absl::StrAppend(&planted, needles[i].sentence(), "\n");
    taken = cut;
  }
  return absl::StrCat(planted, text.substr(taken));
}

absl::StatusOr<int> CountAnswered(Engine& engine, absl::string_view text,
                                  std::span<const Needle> needles) {
  ANNULUS_ASSIGN_OR_RETURN(const std::vector<int32_t> ids, TextIds(engine, text));
  int right = 0;
  for (const Needle& needle : needles) {
    ANNULUS_ASSIGN_OR_RETURN(RequestSpec request, Ask(engine, ids, needle));
    ANNULUS_ASSIGN_OR_RETURN(const std::string answer, Answer(engine, std::move(request)));
    if (absl::StrContains(answer, needle.answer)) ++right;
  }
  return right;
}

}  // namespace annulus::bench
