#include "client/cli/ask/questions.h"

#include <functional>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/ask/answer.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/ask/ask_together.h"
#include "client/cli/ask/evidence_text.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/json_input.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/text.h"

namespace annulus::client {
namespace {

// As many questions as the server runs at a time for one client; more would only wait there.
constexpr int kQuestionsAtOnce = 16;

// Prints answers in the order of their questions, whatever the order in which they end.
class AnswersInOrder {
 public:
  AnswersInOrder(Session& session, const std::vector<std::string>& questions,
                 const AnswerOptions& options)
      : session_(session), questions_(questions), options_(options) {}

  void Take(Asked asked) {
    ended_.emplace(asked.index, std::move(asked.generation));
    for (auto next = ended_.begin(); next != ended_.end() && next->first == next_;
         next = ended_.erase(next)) {
      Print(next->second);
      ++next_;
    }
  }

  // Prints the answers that are held back because an earlier question has not ended.
  void PrintRest() {
    for (const auto& [index, generation] : ended_) {
      next_ = index;
      Print(generation);
    }
    ended_.clear();
  }

  int answered() const { return answered_; }
  const grpc::Status& failure() const { return failure_; }  // the last failure; OK if none

 private:
  void Print(const Generation& generation) {
    session_.progress().Clear();
    const bool ok = generation.status.ok();
    if (ok) ++answered_;
    if (!ok) failure_ = generation.status;
    if (session_.options().json) {
      JsonWriter json;
      json.BeginObject().Key("index").Int(static_cast<int64_t>(next_));
      json.Key("question").String(questions_[next_]).EndObject();
      // Join the two objects: the answer's fields follow the index and the question.
      const std::string head = json.text().substr(0, json.text().size() - 1);
      const std::string answer = AnswerJson(generation, session_.interrupted());
      session_.Print(absl::StrCat(head, ",", answer.substr(1), "\n"));
      return;
    }
    session_.Print(absl::StrCat(next_ > 0 ? "\n" : "", "# ", OnOneLine(questions_[next_]), "\n"));
    if (!ok) {
      session_.Warn(
          absl::StrCat("question ", next_ + 1, " failed: ", generation.status.error_message()));
      return;
    }
    EvidenceNotes notes;
    const std::string text = MarkAll(generation.text, generation.completion->evidence(), notes);
    session_.PrintWrapped(text, /*indent=*/0);
    if (!absl::EndsWith(text, "\n")) session_.Print("\n");
    session_.PrintWrapped(notes.Lines(options_.titles), kNotesIndent);
    if (options_.timings) session_.Remark(TimingsText(*generation.completion), kTimingsIndent);
  }

  Session& session_;
  const std::vector<std::string>& questions_;
  const AnswerOptions& options_;
  std::map<size_t, Generation> ended_;
  size_t next_ = 0;
  int answered_ = 0;
  grpc::Status failure_;
};

// Asks the questions that AskTogether has left, by their whole requests.
grpc::Status AskOneByOne(Session& session, const std::vector<v1::GenerationSpec>& specs,
                         const AskedTogether& together, const std::function<bool(Asked)>& take) {
  const std::vector<size_t>& left = together.left;
  std::vector<v1::GenerationSpec> requests;
  for (const size_t index : left) requests.push_back(specs[index]);
  const AskManyOptions options{.concurrency = kQuestionsAtOnce,
                               .done_before = static_cast<int64_t>(specs.size() - left.size()),
                               .first_alone = left.size() == specs.size(),
                               .served_before = together.served};
  return AskMany(session, requests, options, [&](Asked asked) {
    asked.index = left[asked.index];
    return take(std::move(asked));
  });
}

// Runs `ask`, prints the answers that it takes in the order of the questions, and returns the exit
// code.
int AskAll(Session& session, const std::vector<std::string>& questions,
           const AnswerOptions& options,
           const std::function<grpc::Status(const std::function<bool(Asked)>& take)>& ask) {
  AnswersInOrder answers(session, questions, options);
  const grpc::Status status = ask([&](Asked asked) {
    answers.Take(std::move(asked));
    return session.CanPrint();
  });
  answers.PrintRest();
  if (!session.CanPrint()) return session.Finish();
  if (!status.ok()) return session.CallFailed(status);
  const auto failed = static_cast<int>(questions.size()) - answers.answered();
  if (failed == 0) return session.Finish();
  if (questions.size() == 1) return session.CallFailed(answers.failure(), true);
  session.Warn(absl::StrCat(failed, " of ", questions.size(), " questions failed"));
  return answers.answered() > 0 ? kExitPartial : ExitCode(answers.failure());
}

absl::Status WrongLine(size_t line, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat("line ", line, " of the questions ", what));
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ParseQuestions(absl::string_view text) {
  std::vector<std::string> questions;
  bool json = false;
  size_t number = 0;
  absl::ConsumePrefix(&text, "\xEF\xBB\xBF");  // a byte order mark, as some editors write
  for (const absl::string_view raw : absl::StrSplit(text, '\n')) {
    ++number;
    const absl::string_view line = absl::StripAsciiWhitespace(raw);
    if (line.empty()) continue;
    if (questions.size() == kMostQuestions) {
      return WrongLine(number, absl::StrCat("is one too many: at most ", kMostQuestions,
                                            " are allowed; annulus batch takes any number"));
    }
    if (questions.empty()) json = line.front() == '{';
    if (!json) {
      questions.emplace_back(line);
      continue;
    }
    const auto object = ParseJson(std::string(line));
    const bool good = object.has_value() && object->is_object() && object->size() == 1 &&
                      object->contains("question") && object->at("question").is_string();
    if (!good) {
      return WrongLine(
          number,
          "must be a JSON object such as {\"question\": \"Who?\"}, because the first line is one");
    }
    questions.push_back(object->at("question").get<std::string>());
  }
  if (questions.empty()) {
    return absl::InvalidArgumentError("the file has no questions; write one on each line");
  }
  return questions;
}

int AskQuestions(Session& session, const v1::GenerationSpec& base,
                 const std::vector<std::string>& questions, const AnswerOptions& options) {
  std::vector<v1::GenerationSpec> specs(questions.size(), base);
  for (size_t i = 0; i < questions.size(); ++i) PlaceQuestion(questions[i], specs[i]);
  return AskAll(session, questions, options, [&](const std::function<bool(Asked)>& take) {
    const AskedTogether together = AskTogether(session, base, questions, take);
    if (!together.status.ok() || together.left.empty() || !session.CanPrint()) {
      return together.status;
    }
    return AskOneByOne(session, specs, together, take);
  });
}

int AskSpecs(Session& session, const std::vector<v1::GenerationSpec>& specs,
             const std::vector<std::string>& questions, const AnswerOptions& options) {
  return AskAll(session, questions, options, [&](const std::function<bool(Asked)>& take) {
    return AskMany(session, specs, {.concurrency = kQuestionsAtOnce}, take);
  });
}

}  // namespace annulus::client
