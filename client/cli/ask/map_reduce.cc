#include "client/cli/ask/map_reduce.h"

#include <algorithm>
#include <filesystem>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/ask/text_parts.h"
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

// Tokens of the context reserved for document titles and frames, the chat template and the
// question.
constexpr int64_t kReservedTokens = 512;
// Parts are sized by the text's mean number of bytes per token. This share leaves room for parts
// whose tokens are shorter.
constexpr double kCutShare = 0.8;
// The server refuses documents that exceed the context. Whether one does is estimated from samples;
// this share leaves room for samples whose tokens are longer than the rest's.
constexpr double kStoreShare = 0.9;
constexpr size_t kSampleBytes = 16 << 10;
constexpr int kMostRounds = 8;

}  // namespace

int MapReduce::Run(const std::vector<std::string>& docs) {
  std::vector<v1::Document> there;
  const grpc::Status listed = ListDocuments(session_.connection(), &there);
  if (!listed.ok()) return session_.CallFailed(listed);
  for (const v1::Document& document : there) before_.insert(document.name());
  int exit_code = FindBudget();
  if (exit_code == 0) exit_code = ReadDocs(docs);
  v1::GenerationSpec* const spec = &options_.spec;
  if (exit_code == 0) FitToModel(session_, model_, std::span(&spec, 1));
  if (exit_code == 0) exit_code = Reduce();
  DeleteOwn();
  return EndWith(exit_code, session_, &provided_);
}

int MapReduce::Reduce() {
  std::vector<Text> texts = texts_;
  std::string question = preset_.part;
  for (int round = 0; round < kMostRounds; ++round) {
    if (Fits(texts)) return AskAll(texts, round == 0 ? preset_.question : preset_.merge);
    std::vector<Text> parts;
    int exit_code = Cut(texts, &parts);
    std::vector<std::string> answers;
    if (exit_code == 0) exit_code = AskParts(parts, question, &answers);
    if (exit_code != 0) return exit_code;
    if (preset_.merge.empty()) return PrintJoined(answers);
    texts.clear();
    exit_code = AddFile({"notes", absl::StrJoin(answers, "\n\n")}, &texts);
    if (exit_code != 0) return exit_code;
    if (!texts.back().name.empty()) own_.insert(texts.back().name);
    question = preset_.merge;
  }
  return session_.Misuse(
      "the merged answers are still longer than the context; lower --max-tokens");
}

int MapReduce::FindBudget() {
  const grpc::Status status = DescribeModel(session_, options_.spec.model(), &model_);
  if (!status.ok()) return session_.CallFailed(status);
  const int64_t context = model_.max_context();
  const int64_t answer = SpecFor("").sampling().max_tokens();
  budget_ = context - answer - kReservedTokens;
  if (budget_ >= kReservedTokens) return 0;
  return session_.Misuse(absl::StrCat(
      "the model reads ", FormatCount(context), " tokens, which leaves no room for documents with ",
      FormatCount(answer), " tokens of answer; lower --max-tokens or use 'annulus ask'"));
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
    absl::StatusOr<std::vector<std::string>> found = FindFiles(doc, options_.choice.files);
    if (!found.ok()) return session_.Misuse(found.status().message());
    files = *std::move(found);
  } else if (!exists && doc != kStandardInput) {
    ProvidedDocuments provided;  // a name on the server
    const int exit_code = ProvideDocuments(session_, {doc}, options_.choice, &provided);
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
    for (FileText& read :
         ReadBytes(from_stdin ? "standard input" : file, *std::move(bytes), options_.choice.read)) {
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
  // A token has at least one byte, so a text of at most budget_ bytes fits.
  if (!read.text.ok() || static_cast<int64_t>(read.text->size()) <= budget_) {
    return Store(read, texts);
  }
  int64_t tokens = 0;
  const int exit_code = Estimate(*read.text, &tokens);
  if (exit_code != 0) return exit_code;
  if (static_cast<double>(tokens) < kStoreShare * static_cast<double>(budget_)) {
    return Store(read, texts);
  }
  for (const std::string& remark : read.remarks) session_.Warn(remark);
  texts->push_back({"", read.title, *read.text, std::max(tokens, budget_ + 1)});
  return 0;
}

int MapReduce::Estimate(const std::string& text, int64_t* tokens) {
  const std::vector<absl::string_view> parts = CutText(text, kSampleBytes);
  v1::TokenizeRequest request;
  request.set_model(options_.spec.model());
  request.set_add_special(false);
  request.set_text(
      absl::StrCat(parts.front(), parts[parts.size() / 2], parts.size() > 2 ? parts.back() : ""));
  v1::TokenizeResponse response;
  Call call(session_.connection());
  const grpc::Status status =
      session_.connection().inference().Tokenize(call.context(), request, &response);
  if (!status.ok()) return session_.CallFailed(status);
  *tokens = static_cast<int64_t>(static_cast<double>(text.size()) * response.token_ids_size() /
                                 static_cast<double>(request.text().size()));
  return 0;
}

int MapReduce::Store(const FileText& read, std::vector<Text>* texts) {
  const size_t before = provided_.documents.size();
  const int exit_code = ProvideText(session_, read, options_.choice, &provided_);
  if (exit_code != 0 || provided_.documents.size() == before) return exit_code;
  const v1::Document& document = provided_.documents.back();
  texts->push_back({document.name(), read.title, *read.text, document.token_count()});
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

bool MapReduce::Fits(const std::vector<Text>& texts) const {
  int64_t tokens = 0;
  for (const Text& text : texts) tokens += text.tokens;
  return tokens <= budget_ && texts.size() <= kMostDocuments;
}

int MapReduce::Cut(const std::vector<Text>& texts, std::vector<Text>* parts) {
  for (const Text& text : texts) {
    if (text.tokens <= budget_) {
      parts->push_back(text);
      continue;
    }
    if (text.text.empty()) {
      return session_.Misuse(absl::StrCat(text.name, " has ", FormatCount(text.tokens),
                                          " tokens, more than the context, and is stored only on "
                                          "the server; give its file to split it"));
    }
    const double bytes = static_cast<double>(text.text.size()) * kCutShare *
                         static_cast<double>(budget_) / static_cast<double>(text.tokens);
    const std::vector<absl::string_view> cuts = CutText(text.text, static_cast<size_t>(bytes));
    for (size_t i = 0; i < cuts.size(); ++i) {
      const std::string title = absl::StrCat(text.title, ", part ", i + 1, " of ", cuts.size());
      const int exit_code = Store({title, std::string(cuts[i])}, parts);
      if (exit_code != 0) return exit_code;
      own_.insert(parts->back().name);
    }
  }
  return 0;
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
  // Consecutive parts that fit into one request share it.
  std::vector<v1::GenerationSpec> requests;
  std::vector<std::string> titles;
  int64_t tokens = budget_;
  for (const Text& part : parts) {
    if (requests.empty() || tokens + part.tokens > budget_ ||
        static_cast<size_t>(requests.back().documents_size()) == kMostDocuments) {
      requests.push_back(SpecFor(question));
      requests.back().clear_request_id();  // the id is for the final question
      titles.push_back(OnOneLine(part.title));
      tokens = 0;
    } else {
      absl::StrAppend(&titles.back(), ", ", OnOneLine(part.title));
    }
    tokens += part.tokens;
    requests.back().add_documents(part.name);
  }
  answers->resize(requests.size());
  grpc::Status failure;
  const AskManyOptions many{.concurrency = options_.concurrency, .phase = "Parts"};
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

void MapReduce::DeleteOwn() {
  // Delete the parts, also after an interruption, because nobody else uses them. Ignore failures:
  // the answer is not affected.
  session_.ForgetInterruption();
  for (const std::string& name : own_) {
    if (before_.count(name) == 0) DeleteDocument(session_.connection(), name);
  }
}

}  // namespace annulus::client
