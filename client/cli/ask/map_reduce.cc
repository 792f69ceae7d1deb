#include "client/cli/ask/map_reduce.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/input/inputs.h"
#include "client/cli/outputs.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/text.h"
#include "client/format/units.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr int kMostRounds = 8;

}  // namespace

int MapReduce::Run(const std::vector<std::string>& docs) {
  int exit_code = FindBudget();
  if (exit_code == 0) exit_code = ReadDocs(docs);
  v1::GenerationSpec* const spec = &options_.spec;
  if (exit_code == 0) FitToModel(session_, model_, std::span(&spec, 1));
  if (exit_code == 0) exit_code = Reduce();
  parts_.Delete();
  return EndWith(exit_code, session_, &provided_);
}

int MapReduce::Reduce() {
  std::vector<Text> texts = texts_;
  std::string question = preset_.part;
  for (int round = 0; round < kMostRounds; ++round) {
    if (parts_.Fits(texts)) {
      return AskAll(texts, round == 0 ? preset_.question : preset_.merge);
    }
    std::vector<Text> parts;
    int exit_code = CutAndStore(texts, &parts);
    std::vector<std::string> answers;
    if (exit_code == 0) exit_code = AskParts(parts, question, &answers);
    if (exit_code != 0) return exit_code;
    if (preset_.merge.empty()) return PrintJoined(answers);
    Text notes{.title = "notes", .text = absl::StrJoin(answers, "\n\n")};
    exit_code = CountTokens(session_, model_.name(), notes.text, &notes.tokens);
    if (exit_code == 0 && notes.tokens <= parts_.budget()) exit_code = parts_.Store(&notes);
    if (exit_code != 0) return exit_code;
    texts = {std::move(notes)};
    question = preset_.merge;
  }
  return session_.Misuse(
      "the merged answers are still longer than the context; lower --max-tokens");
}

int MapReduce::FindBudget() {
  const grpc::Status status = DescribeModel(session_, options_.spec.model(), &model_);
  if (!status.ok()) return session_.CallFailed(status);
  // The answer to the question about the text is at most as long as that to the parts.
  return parts_.SetBudget(model_, SpecFor("").sampling().max_tokens(), /*question_tokens=*/0);
}

int MapReduce::ReadDocs(const std::vector<std::string>& docs) {
  std::vector<Source> sources;
  for (const std::string& doc : docs) {
    const int exit_code = ReadDoc(doc, &sources);
    if (exit_code != 0) return exit_code;
  }
  int exit_code = CheckCount(sources);
  for (const Source& source : sources) {
    if (exit_code != 0) return exit_code;
    exit_code = source.name.empty() ? AddFile(source.read, &texts_)
                                    : Measure(source.name, &texts_.emplace_back());
  }
  if (exit_code != 0) return exit_code;
  return texts_.empty() ? session_.Misuse("none of the documents can be read") : 0;
}

int MapReduce::ReadDoc(const std::string& doc, std::vector<Source>* sources) {
  std::vector<std::string> files = {doc};
  std::error_code error;
  const bool exists = std::filesystem::exists(doc, error);
  if ((!exists && IsPattern(doc)) || std::filesystem::is_directory(doc, error)) {
    absl::StatusOr<FoundFiles> found = FindFiles(doc, options_.choice.files);
    if (!found.ok()) return session_.Misuse(found.status().message());
    if (!found->left_out.empty()) session_.Warn(found->left_out);
    files = std::move(found->files);
  } else if (!exists && doc != kStandardInput) {
    GatheredDocuments gathered;  // a name on the server
    const int exit_code = GatherDocuments(session_, {doc}, options_.choice, &gathered);
    if (exit_code == 0) sources->push_back({doc, {doc, ""}});
    return exit_code;
  }
  for (const std::string& file : files) {
    const bool from_stdin = file == kStandardInput;
    absl::StatusOr<std::string> bytes =
        from_stdin ? absl::StatusOr<std::string>(ReadAll(session_.console().in))
                   : LoadFile(file, ReadLimits().file_bytes);
    if (!bytes.ok()) {
      sources->push_back({"", {file, bytes.status()}});
      continue;
    }
    for (FileText& read : ReadBytes(from_stdin ? "standard input" : file, *std::move(bytes),
                                    Telling(session_, options_.choice.read))) {
      sources->push_back({"", std::move(read)});
    }
  }
  return 0;
}

// Before the first upload: whether all can be read, and whether the server stores so many.
int MapReduce::CheckCount(const std::vector<Source>& sources) {
  int64_t count = 0;
  for (const Source& source : sources) {
    if (!source.read.text.ok() && !options_.choice.skip_unreadable) {
      const int misuse = session_.Misuse(source.read.text.status().message());
      return source.read.incomplete ? kExitPartial : misuse;
    }
    count += source.read.text.ok() ? 1 : 0;
  }
  if (count <= static_cast<int64_t>(kMostDocuments)) return 0;
  v1::GetServerInfoResponse info;
  Call call(session_.connection());
  const grpc::Status status =
      session_.connection().admin().GetServerInfo(call.context(), {}, &info);
  if (!status.ok()) return session_.CallFailed(status);
  const int64_t most = info.limits().max_documents();
  if (count <= most) return 0;
  return session_.Misuse(absl::StrCat("there are ", FormatCount(count),
                                      " documents, but the server stores at most ",
                                      FormatCount(most),
                                      ". Nothing was uploaded. Select some with --include and "
                                      "--exclude, or process them in several runs"));
}

int MapReduce::AddFile(const FileText& read, std::vector<Text>* texts) {
  // A token has at least one byte, so a text of at most as many bytes as tokens fits.
  if (!read.text.ok() || static_cast<int64_t>(read.text->size()) <= parts_.budget()) {
    return Store(read, texts);
  }
  int64_t tokens = 0;
  const int exit_code = CountTokens(session_, model_.name(), *read.text, &tokens);
  if (exit_code != 0) return exit_code;
  if (tokens <= parts_.budget()) return Store(read, texts);
  for (const std::string& remark : read.remarks) session_.Warn(remark);
  texts->push_back({.title = read.title, .text = *read.text, .tokens = tokens});
  return 0;
}

int MapReduce::Store(const FileText& read, std::vector<Text>* texts) {
  const size_t before = provided_.documents.size();
  const int exit_code = ProvideText(session_, read, options_.choice, &provided_);
  if (exit_code != 0 || provided_.documents.size() == before) return exit_code;
  const v1::Document& document = provided_.documents.back();
  texts->push_back({.name = document.name(),
                    .title = read.title,
                    .text = *read.text,
                    .tokens = document.token_count()});
  if (texts->back().title.empty()) texts->back().title = document.name();
  return 0;
}

int MapReduce::Measure(const std::string& name, Text* text) {
  v1::Document document;
  const grpc::Status status = GetDocument(session_.connection(), name, &document);
  if (!status.ok()) return session_.CallFailed(status);
  text->name = name;
  if (text->title.empty()) text->title = name;
  text->tokens = document.token_count();
  return 0;
}

int MapReduce::CutAndStore(const std::vector<Text>& texts, std::vector<Text>* parts) {
  int exit_code = parts_.Cut(texts, parts);
  for (Text& part : *parts) {
    if (exit_code != 0) return exit_code;
    exit_code = parts_.Store(&part);
  }
  return exit_code;
}

v1::GenerationSpec MapReduce::SpecFor(const std::string& question) const {
  v1::GenerationSpec spec = options_.spec;
  if (!spec.sampling().has_max_tokens() && preset_.max_tokens > 0) {
    spec.mutable_sampling()->set_max_tokens(preset_.max_tokens);
  }
  const auto add = [&](const char* role, const std::string& content) {
    v1::Message& message = *spec.mutable_messages()->add_messages();
    message.set_role(role);
    message.set_content(content);
  };
  if (!preset_.system.empty()) add("system", preset_.system);
  add("user", question);
  return spec;
}

int MapReduce::AskParts(const std::vector<Text>& parts, const std::string& question,
                        std::vector<std::string>* answers) {
  std::vector<v1::GenerationSpec> requests;
  std::vector<std::string> titles;
  std::vector<int64_t> tokens;
  const std::vector<size_t> begins = parts_.Group(parts);
  for (size_t i = 0, next = 0; i < parts.size(); ++i) {
    if (next < begins.size() && begins[next] == i) {
      ++next;
      requests.push_back(SpecFor(question));
      requests.back().clear_request_id();  // the id is for the final question
      titles.push_back(OnOneLine(parts[i].title));
      tokens.push_back(0);
    } else {
      absl::StrAppend(&titles.back(), ", ", OnOneLine(parts[i].title));
    }
    requests.back().add_documents(parts[i].name);
    tokens.back() += parts[i].tokens;
  }
  answers->resize(requests.size());
  grpc::Status failure;
  const AskManyOptions many{
      .concurrency = options_.concurrency, .phase = "Parts", .tokens = tokens};
  const grpc::Status status = AskMany(session_, requests, many, [&](Asked asked) {
    failure = asked.generation.status;
    (*answers)[asked.index] = absl::StrCat(titles[asked.index], ":\n", asked.generation.text);
    return failure.ok();
  });
  if (!status.ok()) return session_.CallFailed(status);
  return failure.ok() ? 0 : session_.CallFailed(failure);
}

int MapReduce::AskAll(const std::vector<Text>& texts, const std::string& question) {
  v1::GenerationSpec spec = SpecFor(question);
  for (const Text& text : texts) spec.add_documents(text.name);
  return Answer(session_, spec, options_.answer);
}

int MapReduce::PrintJoined(const std::vector<std::string>& answers) {
  std::string text = absl::StrCat(absl::StrJoin(answers, "\n\n"), "\n");
  if (session_.options().json) {
    JsonWriter json;
    json.BeginObject().Key("text").String(text).Key("parts").Int(
        static_cast<int64_t>(answers.size()));
    text = absl::StrCat(json.EndObject().text(), "\n");
  }
  return WriteOutput(session_, options_.answer.output, text);
}

}  // namespace annulus::client
