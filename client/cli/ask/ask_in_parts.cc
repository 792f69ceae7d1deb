#include "client/cli/ask/ask_in_parts.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/ask/document_parts.h"
#include "client/cli/ask/part_journal.h"
#include "client/cli/ask/passages.h"
#include "client/cli/ask/questions.h"
#include "client/cli/ask/text_parts.h"
#include "client/cli/batch/batch_line.h"
#include "client/cli/input/inputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/text.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// The longest answer to a part, and to the passages unless --max-tokens says otherwise.
constexpr int64_t kPartAnswerTokens = 96;
constexpr int64_t kAnswerTokens = 256;
// Parts asked about at a time. More would not be read sooner.
constexpr int kPartsAtOnce = 2;
// The most passages that the last question is about.
constexpr size_t kMostPassages = 8;
// What has less of the question's words than this share of what the best passage has is not among
// them: a small model answers from what looks alike instead.
constexpr double kAskedShare = 0.7;
// Passages that share less than this share of the best one's words are not named.
constexpr double kNamedShare = 0.6;
constexpr size_t kMostNamed = 5;

// A place in a document.
struct Place {
  std::string document;  // title
  std::string place;     // "page 7"
};

// What was found in the parts that one request was about.
struct Finding {
  Place where;
  std::string answer;   // to the part
  std::string passage;  // text that the answer seems to rest on; empty: only the server has it
  double score = 0;     // Passage::score
  double asked = 0;     // Passage::asked
};

std::string PlacesText(const std::vector<Place>& places) {
  std::vector<std::string> parts;
  for (const Place& place : places) {
    parts.push_back(absl::StrCat(OnOneLine(place.document), ", ", place.place));
  }
  return absl::StrJoin(parts, "; ");
}

void WritePlaces(const std::vector<Place>& places, JsonWriter& json) {
  json.BeginArray();
  for (const Place& place : places) {
    json.BeginObject().Key("document").String(place.document);
    json.Key("place").String(place.place).EndObject();
  }
  json.EndArray();
}

class PartsAsker {
 public:
  PartsAsker(Session& session, const v1::Model& model, const AskInPartsOptions& options,
             const std::vector<std::string>& questions)
      : session_(session),
        model_(model),
        options_(options),
        questions_(questions),
        parts_(session),
        journal_(options.journal) {}

  int Run(GatheredDocuments gathered) {
    int exit_code = Cut(gathered);
    if (exit_code == 0) exit_code = Read(TooLongText(model_, gathered));
    if (exit_code == kExitInterrupted && !groups_.empty()) TellFound();
    if (exit_code == 0) exit_code = Conclude();
    parts_.Delete();
    return exit_code;
  }

 private:
  // Takes the documents' texts, and cuts those that are too long.
  int Cut(GatheredDocuments& gathered) {
    int64_t question_tokens = 0;
    for (const std::string& question : questions_) {
      int64_t tokens = 0;
      const int exit_code = CountTokens(session_, model_.name(), question, &tokens);
      if (exit_code != 0) return exit_code;
      question_tokens = std::max(question_tokens, tokens);
    }
    int64_t system_tokens = 0;
    int exit_code = CountTokens(session_, model_.name(), options_.system, &system_tokens);
    if (exit_code != 0) return exit_code;
    exit_code = parts_.SetBudget(model_, std::max(AnswerTokens(), PartTokens()),
                                 question_tokens + system_tokens);
    if (exit_code != 0) return exit_code;
    for (size_t i = 0; i < gathered.documents.size(); ++i) {
      GatheredDocument& document = gathered.documents[i];
      DocumentText& text = texts_.emplace_back();
      text.document = i;
      text.tokens = document.tokens;
      text.title = document.stored.title();
      text.name = document.stored.name();
      text.sha256 = document.stored.sha256();
      if (document.content.has_value()) {
        document.content->stream->clear();
        document.content->stream->seekg(0);
        text.text = ReadAll(*document.content->stream);
        text.title = document.content->title;
      }
      if (text.title.empty()) text.title = text.name.empty() ? "standard input" : text.name;
    }
    exit_code = parts_.Cut(texts_, &pieces_);
    groups_ = parts_.Group(pieces_);
    answers_.assign(questions_.size(), std::vector<std::optional<std::string>>(groups_.size()));
    return exit_code;
  }

  int64_t PartTokens() const {
    return std::min<int64_t>(kPartAnswerTokens, model_.max_context() / 8);
  }

  int64_t AnswerTokens() const {
    const v1::SamplingParams& sampling = options_.spec.sampling();
    if (sampling.has_max_tokens()) return sampling.max_tokens();
    return std::min<int64_t>(kAnswerTokens, model_.max_context() / 8);
  }

  std::span<DocumentText> PiecesOf(size_t group) {
    const size_t end = group + 1 < groups_.size() ? groups_[group + 1] : pieces_.size();
    return std::span(pieces_).subspan(groups_[group], end - groups_[group]);
  }

  v1::GenerationSpec SpecFor(const std::string& question) const {
    v1::GenerationSpec spec = options_.spec;
    PlaceSystem(session_, options_.system, spec);
    PlaceQuestion(question, spec);
    return spec;
  }

  // The request about a part, without its documents. The likeliest tokens are taken unless the
  // user says otherwise: the answers serve to find places.
  v1::GenerationSpec PartSpec(const std::string& question) const {
    v1::GenerationSpec spec = SpecFor(question);
    spec.clear_request_id();  // the id is for the last question
    v1::SamplingParams& sampling = *spec.mutable_sampling();
    if (!sampling.has_temperature() && !sampling.has_seed()) sampling.set_temperature(0);
    sampling.set_max_tokens(static_cast<int32_t>(PartTokens()));
    sampling.clear_min_tokens();
    sampling.clear_logprobs();
    sampling.clear_prompt_logprobs();
    return spec;
  }

  std::string KeyOf(size_t question, size_t group) {
    std::string texts =
        absl::StrCat(session_.connection().server(), "\n", model_.SerializeAsString(), "\n");
    for (const DocumentText& piece : PiecesOf(group)) {
      absl::StrAppend(&texts, piece.name, "\n", piece.sha256, "\n", piece.title, "\n", piece.text,
                      "\n");
    }
    return RequestKey(texts, PartSpec(questions_[question]));
  }

  // Asks all questions about all parts, except for those that were answered before.
  int Read(const std::string& too_long) {
    std::vector<v1::GenerationSpec> requests;
    std::vector<std::pair<size_t, size_t>> asked;  // question and group of each request
    std::vector<std::string> keys;
    std::vector<int64_t> tokens;
    size_t left = 0;
    for (size_t group = 0; group < groups_.size(); ++group) {
      const size_t before = asked.size();
      for (size_t question = 0; question < questions_.size(); ++question) {
        std::string key = KeyOf(question, group);
        const std::string* const known = journal_.Find(key);
        if (known != nullptr) {
          answers_[question][group] = *known;
          continue;
        }
        asked.emplace_back(question, group);
        keys.push_back(std::move(key));
        tokens.push_back(0);
      }
      if (asked.size() == before) continue;
      ++left;
      // The first question reads the part, the others find it read.
      for (const DocumentText& piece : PiecesOf(group)) tokens[before] += piece.tokens;
    }
    for (const auto& [question, group] : asked) {
      requests.push_back(PartSpec(questions_[question]));
      for (DocumentText& piece : PiecesOf(group)) {
        const int exit_code = parts_.Store(&piece);
        if (exit_code != 0) return exit_code;
        requests.back().add_documents(piece.name);
      }
    }
    int exit_code = Announce(too_long, requests, tokens, left);
    if (exit_code != 0 || requests.empty()) return exit_code;
    grpc::Status failure;
    bool kept = true;
    const AskManyOptions many{.concurrency = kPartsAtOnce, .phase = "Reading", .tokens = tokens};
    const grpc::Status status = AskMany(session_, requests, many, [&](Asked ended) {
      failure = ended.generation.status;
      if (!failure.ok()) return false;
      const auto [question, group] = asked[ended.index];
      answers_[question][group] = ended.generation.text;
      kept = kept && journal_.Add(keys[ended.index], ended.generation.text);
      return true;
    });
    if (!kept) {
      session_.Warn(absl::StrCat("what was found is not kept for a repeat, because ",
                                 journal_.path(), " cannot be written"));
    }
    if (session_.interrupted()) return kExitInterrupted;
    if (!status.ok()) return session_.CallFailed(status);
    return failure.ok() ? 0 : session_.CallFailed(failure);
  }

  int Announce(const std::string& too_long, const std::vector<v1::GenerationSpec>& requests,
               const std::vector<int64_t>& tokens, size_t left) {
    if (session_.options().quiet) return 0;
    std::string time;
    if (!requests.empty()) {
      std::optional<double> seconds;
      const int exit_code = Estimate(requests[0], tokens, &seconds);
      if (exit_code != 0) return exit_code;
      time = seconds.has_value() ? absl::StrCat(", about ", FormatDuration(*seconds))
                                 : ", and how long that takes shows with the first part";
    }
    const size_t known = groups_.size() - left;
    session_.Warn(absl::StrCat(
        too_long, ". Reading in ", FormatCount(static_cast<int64_t>(groups_.size())), " parts",
        known > 0 ? absl::StrCat(" (", FormatCount(static_cast<int64_t>(known)),
                                 " of them were read before)")
                  : "",
        time,
        ". A question that needs two distant parts together is answered less well; --whole refuses "
        "such documents"));
    return 0;
  }

  // Seconds for reading `tokens`, by what the server expects of the first request. Has the server
  // read a little first if it has not measured anything yet.
  int Estimate(const v1::GenerationSpec& first, const std::vector<int64_t>& tokens,
               std::optional<double>* seconds) {
    v1::PlanResponse plan;
    for (const bool again : {false, true}) {
      v1::PlanRequest request;
      *request.mutable_spec() = first;
      Call call(session_.connection());
      const grpc::Status status =
          session_.connection().inference().Plan(call.context(), request, &plan);
      if (!status.ok()) return session_.interrupted() ? kExitInterrupted : 0;
      const std::string& text = PiecesOf(0)[0].text;
      if (plan.has_prefill() || again || text.empty()) break;
      constexpr size_t kTriedBytes = 2000;
      v1::GenerateRequest trial;
      trial.mutable_spec()->set_model(first.model());
      trial.mutable_spec()->set_text(std::string(CutText(text, kTriedBytes)[0]));
      trial.mutable_spec()->mutable_sampling()->set_max_tokens(1);
      v1::GenerateResponse ignored;
      Call trial_call(session_.connection());
      session_.connection().inference().Generate(trial_call.context(), trial, &ignored);
    }
    const int64_t computed = plan.prompt_tokens() - plan.cached_tokens();
    if (!plan.has_prefill() || computed <= 0) return 0;
    int64_t all = 0;
    for (const int64_t part : tokens) all += part;
    *seconds = plan.prefill() * static_cast<double>(all) / static_cast<double>(computed);
    return 0;
  }

  PassageFinder MakeFinder(const std::vector<std::string>& more) const {
    std::vector<absl::string_view> texts;
    for (const DocumentText& text : texts_) texts.push_back(text.text);
    std::vector<std::string> looked_for = questions_;
    looked_for.insert(looked_for.end(), more.begin(), more.end());
    for (const auto& of_question : answers_) {
      for (const auto& answer : of_question) {
        if (answer.has_value()) looked_for.push_back(*answer);
      }
    }
    return PassageFinder(texts, looked_for);
  }

  // What was found for a question, the best first.
  std::vector<Finding> FindingsOf(const PassageFinder& finder, size_t question) {
    std::vector<Finding> findings;
    for (size_t group = 0; group < groups_.size(); ++group) {
      const std::optional<std::string>& answer = answers_[question][group];
      if (!answer.has_value()) continue;
      Finding best;
      for (const DocumentText& piece : PiecesOf(group)) {
        const DocumentText& whole = texts_[piece.document];
        const Passage passage = finder.Find(piece.text, questions_[question], *answer);
        if (!best.where.document.empty() && passage.score <= best.score) continue;
        best = {{whole.title, PlaceAt(whole.text, piece.offset + passage.at)},
                *answer,
                piece.text.substr(passage.offset, passage.size),
                passage.score,
                passage.asked};
      }
      findings.push_back(std::move(best));
    }
    std::stable_sort(findings.begin(), findings.end(),
                     [](const Finding& a, const Finding& b) { return a.score > b.score; });
    return findings;
  }

  // The findings that the last question is about. Those whose text only the server has stay.
  static void KeepNoted(std::vector<Finding>* findings) {
    double most = 0;
    for (const Finding& finding : *findings) most = std::max(most, finding.asked);
    std::erase_if(*findings, [most](const Finding& finding) {
      return !finding.passage.empty() && finding.asked < kAskedShare * most;
    });
    findings->resize(std::min(findings->size(), kMostPassages));
  }

  // The document that the last request is about.
  int StoreNotes(const std::vector<Finding>& findings, DocumentText* notes) {
    notes->title = "passages";
    for (size_t i = findings.size(); i-- > 0;) {
      const Finding& finding = findings[i];
      absl::StrAppend(&notes->text, "[", OnOneLine(finding.where.document), ", ",
                      finding.where.place, "]\n",
                      finding.passage.empty() ? finding.answer : finding.passage, "\n\n");
    }
    return parts_.Store(notes);
  }

  int Conclude() {
    std::vector<v1::GenerationSpec> specs;
    const PassageFinder finder = MakeFinder({});
    std::vector<std::vector<Finding>> findings;
    for (size_t question = 0; question < questions_.size(); ++question) {
      findings.push_back(FindingsOf(finder, question));
      KeepNoted(&findings.back());
      DocumentText notes;
      const int exit_code = StoreNotes(findings.back(), &notes);
      if (exit_code != 0) return exit_code;
      specs.push_back(SpecFor(questions_[question]));
      specs.back().add_documents(notes.name);
    }
    if (options_.is_file_of_questions) {
      return AskSpecs(session_, specs, questions_, options_.answer);
    }
    AnswerOptions answer = options_.answer;
    answer.more_members = [&](const std::string& text, JsonWriter& json) {
      json.Key("parts").Int(static_cast<int64_t>(groups_.size()));
      WritePlaces(PlacesOf(findings[0], text), json.Key("places"));
    };
    std::string text;
    const int exit_code = Answer(session_, specs[0], answer, &text);
    if (exit_code == 0 && !session_.options().json && !session_.options().quiet) {
      session_.Remark(absl::StrCat("from ", PlacesText(PlacesOf(findings[0], text)), "\n"), 5);
    }
    return exit_code;
  }

  // The places of the passages that an answer to the first question rests on, the best first.
  std::vector<Place> PlacesOf(std::vector<Finding> findings, const std::string& answer) {
    const PassageFinder finder = MakeFinder({answer});
    for (Finding& finding : findings) {
      finding.score = finder.Find(finding.passage, questions_[0], answer).score;
    }
    std::stable_sort(findings.begin(), findings.end(),
                     [](const Finding& a, const Finding& b) { return a.score > b.score; });
    std::vector<Place> places;
    for (const Finding& finding : findings) {
      const bool near = finding.score >= kNamedShare * findings[0].score;
      if (near && places.size() < kMostNamed) places.push_back(finding.where);
    }
    return places;
  }

  // Prints what the parts that were read say.
  void TellFound() {
    size_t read = 0;
    for (const auto& answer : answers_[0]) read += answer.has_value() ? 1 : 0;
    const PassageFinder finder = MakeFinder({});
    const bool as_json = session_.options().json;
    JsonWriter json;
    json.BeginObject().Key("parts").Int(static_cast<int64_t>(groups_.size()));
    json.Key("parts_read").Int(static_cast<int64_t>(read)).Key("found").BeginArray();
    std::string text;
    for (size_t question = 0; question < questions_.size(); ++question) {
      if (questions_.size() > 1)
        absl::StrAppend(&text, "# ", OnOneLine(questions_[question]), "\n");
      std::vector<Finding> findings = FindingsOf(finder, question);
      findings.resize(std::min(findings.size(), kMostNamed));
      for (const Finding& finding : findings) {
        absl::StrAppend(&text, PlacesText({finding.where}), ": ",
                        OnOneLine(absl::StripAsciiWhitespace(finding.answer)), "\n");
        json.BeginObject().Key("document").String(finding.where.document);
        json.Key("place").String(finding.where.place);
        json.Key("answer").String(finding.answer).EndObject();
      }
    }
    json.EndArray().EndObject();
    session_.Print(as_json ? absl::StrCat(json.text(), "\n") : text);
    session_.Warn(
        absl::StrCat("interrupted after ", read, " of ", groups_.size(), " parts",
                     read > 0 ? "; this is what they say, the likeliest first" : "",
                     journal_.path().empty() ? "" : ". The same command goes on from there"));
  }

  Session& session_;
  const v1::Model& model_;
  const AskInPartsOptions& options_;
  const std::vector<std::string>& questions_;
  DocumentParts parts_;
  PartJournal journal_;
  std::vector<DocumentText> texts_;                               // the documents
  std::vector<DocumentText> pieces_;                              // parts of them
  std::vector<size_t> groups_;                                    // first piece of each request
  std::vector<std::vector<std::optional<std::string>>> answers_;  // by question and group
};

}  // namespace

int AskInParts(Session& session, const v1::Model& model, const AskInPartsOptions& options,
               GatheredDocuments gathered, const std::vector<std::string>& questions) {
  return PartsAsker(session, model, options, questions).Run(std::move(gathered));
}

}  // namespace annulus::client
