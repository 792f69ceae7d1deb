#include <fstream>
#include <map>
#include <memory>
#include <set>
#include <sstream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "client/cli/ask/answer.h"
#include "client/cli/ask/ask_many.h"
#include "client/cli/batch/batch_line.h"
#include "client/cli/batch/batch_store.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/provide.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/help.h"
#include "client/cli/line/options.h"
#include "client/documents.h"
#include "client/failure.h"
#include "client/format/json.h"
#include "client/format/units.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr int64_t kLargestBatch = int64_t{1} << 30;

struct BatchOptions {
  v1::GenerationSpec spec;  // defaults for the lines
  std::string system;
  std::string in;
  std::string out;
  std::string failures;  // default: OUT.failed
  DocumentChoice choice;
  int concurrency = 4;
};

// One run of a batch.
class Batch {
 public:
  Batch(Session& session, const BatchOptions& options) : session_(session), options_(options) {}

  int Run() {
    int exit_code = ReadLines();
    if (exit_code != 0) return exit_code;
    auto store = BatchStore::Open(options_.out);
    if (!store.ok()) return session_.Misuse(store.status().message());
    store_ = *std::move(store);
    exit_code = ProvideAll();
    if (exit_code != 0) return exit_code;
    std::vector<v1::GenerationSpec*> questions;
    for (BatchLine& line : lines_) questions.push_back(&line.spec);
    FitToModel(session_, options_.spec.model(), questions);
    const grpc::Status status = AskOpen();
    if (!written_.ok()) return session_.CannotWrite(written_.message());
    if (status.ok()) written_ = store_->Finish(keys_);
    if (status.ok() && written_.ok()) written_ = WriteFailures();
    if (!written_.ok()) return session_.CannotWrite(written_.message());
    Report(status);
    if (!status.ok()) return session_.CallFailed(status);
    return failures_.empty() ? session_.Finish() : kExitPartial;
  }

 private:
  struct Failure {
    std::string code;
    std::string message;
  };

  // Reads all lines before anything is sent, so that a mistake in the last one costs nothing.
  int ReadLines() {
    absl::StatusOr<std::string> text = options_.in == kStandardInput
                                           ? ReadAll(session_.console().in)
                                           : LoadFile(options_.in, kLargestBatch);
    if (!text.ok()) return session_.Misuse(text.status().message());
    std::map<std::string, int64_t> numbers;  // line number of each id
    int64_t number = 0;
    for (const absl::string_view line : absl::StrSplit(*text, '\n')) {
      ++number;
      if (absl::StripAsciiWhitespace(line).empty()) continue;
      absl::StatusOr<BatchLine> read =
          ParseBatchLine(std::string(line), number, options_.spec, options_.system);
      const std::string where = absl::StrCat(options_.in, ":", number, ": ");
      if (!read.ok()) return session_.Misuse(absl::StrCat(where, read.status().message()));
      const auto [first, is_new] = numbers.emplace(read->id, number);
      if (!is_new) {
        return session_.Misuse(
            absl::StrCat(where, "the id ", read->id, " is that of line ", first->second));
      }
      lines_.push_back(*std::move(read));
    }
    return lines_.empty() ? session_.Misuse(absl::StrCat(options_.in, " holds no requests")) : 0;
  }

  // Uploads every document once. A line with a document that cannot be read fails.
  int ProvideAll() {
    for (size_t i = 0; i < lines_.size(); ++i) {
      BatchLine& line = lines_[i];
      for (const std::string& doc : line.documents) {
        const int exit_code = Provide(doc);
        if (exit_code != 0) return exit_code;
        const Provided& provided = provided_.at(doc);
        for (const std::string& name : provided.names) line.spec.add_documents(name);
        if (!provided.failure.empty()) failures_[i] = {"INVALID_ARGUMENT", provided.failure};
      }
      keys_.push_back(RequestKey(line.id, line.spec));
    }
    return 0;
  }

  struct Provided {
    std::vector<std::string> names;
    std::string failure;
  };

  // Uploads one document. An error in the document becomes the failure of its lines. Returns an
  // exit code that ends the batch if the user interrupts, or if the server cannot be reached or
  // rejects the caller.
  int Provide(const std::string& doc) {
    if (provided_.count(doc) > 0) return 0;
    std::ostringstream said;
    Console console{.in = session_.console().in, .out = session_.console().out, .err = said};
    CommonOptions quiet = session_.options();
    quiet.progress = "never";
    Session aside(session_, console, quiet);
    ProvidedDocuments names;
    const int exit_code =
        ProvideDocuments(aside, {doc}, options_.choice, options_.spec.model(), &names);
    const bool is_for_all = exit_code == kExitInterrupted ||
                            exit_code == 64 + grpc::StatusCode::UNAVAILABLE ||
                            exit_code == 64 + grpc::StatusCode::UNAUTHENTICATED ||
                            exit_code == 64 + grpc::StatusCode::PERMISSION_DENIED;
    std::string message = std::string(absl::StripAsciiWhitespace(said.str()));
    if (is_for_all) {
      session_.Remark(absl::StrCat(message, "\n"), 0);
      return exit_code;
    }
    absl::string_view plain = message;
    absl::ConsumePrefix(&plain, "annulus: ");
    Provided& provided = provided_[doc];
    for (const auto& document : names.documents) provided.names.push_back(document.name());
    if (exit_code != 0) provided.failure = std::string(plain);
    if (exit_code == 0 && !message.empty()) session_.Remark(absl::StrCat(message, "\n"), 0);
    return 0;
  }

  grpc::Status AskOpen() {
    std::vector<v1::GenerationSpec> open;
    std::vector<size_t> indices;
    std::set<std::string> asked;
    for (size_t i = 0; i < lines_.size(); ++i) {
      if (store_->Has(keys_[i])) {
        ++from_before_;
        failures_.erase(i);
      } else if (failures_.count(i) == 0 && asked.insert(keys_[i]).second) {
        open.push_back(lines_[i].spec);
        indices.push_back(i);
      }
    }
    const AskManyOptions many{.concurrency = options_.concurrency, .done_before = from_before_};
    return AskMany(session_, open, many,
                   [&](Asked asked) { return Take(indices[asked.index], asked.generation); });
  }

  bool Take(size_t index, const Generation& generation) {
    const BatchLine& line = lines_[index];
    if (!generation.status.ok()) {
      failures_[index] = {std::string(CodeName(generation.status.error_code())),
                          generation.status.error_message()};
      return true;
    }
    JsonWriter json;
    json.BeginObject().Key("id").String(line.id).Key("request").String(keys_[index]).EndObject();
    // Join the two objects: the answer's fields follow the id and the key.
    const std::string answer = AnswerJson(generation, /*interrupted=*/false);
    const std::string head = json.text().substr(0, json.text().size() - 1);
    written_ = store_->Add(keys_[index], absl::StrCat(head, ",", answer.substr(1)));
    ++answered_;
    return written_.ok();
  }

  std::string FailuresFile() const {
    return options_.failures.empty() ? absl::StrCat(options_.out, ".failed") : options_.failures;
  }

  // Writes the file of failures. Without failures, removes the file of an earlier run.
  absl::Status WriteFailures() {
    std::string text;
    for (const auto& [index, failure] : failures_) {
      JsonWriter json;
      json.BeginObject().Key("id").String(lines_[index].id);
      json.Key("line").Int(lines_[index].number);
      json.Key("code").String(failure.code).Key("message").String(failure.message).EndObject();
      absl::StrAppend(&text, json.text(), "\n");
    }
    if (!failures_.empty()) return WriteAtOnce(FailuresFile(), text);
    std::remove(FailuresFile().c_str());
    return absl::OkStatus();
  }

  void Report(const grpc::Status& status) {
    const auto all = static_cast<int64_t>(lines_.size());
    const auto failed = static_cast<int64_t>(failures_.size());
    if (session_.options().json && status.ok()) {
      JsonWriter json;
      json.BeginObject().Key("requests").Int(all).Key("answered").Int(answered_);
      json.Key("from_before").Int(from_before_).Key("failed").Int(failed).EndObject();
      session_.Print(absl::StrCat(json.text(), "\n"));
    } else if (!status.ok()) {
      session_.Warn(absl::StrCat("stopped with ", FormatCount(answered_ + from_before_), " of ",
                                 FormatCount(all), " answered; repeat the command to resume"));
    } else if (failed > 0) {
      session_.Warn(absl::StrCat(FormatCount(failed), " of ", FormatCount(all), " failed: ",
                                 FailuresFile(), " says why; repeat the command to retry them"));
    } else if (!session_.options().quiet) {
      session_.Remark(absl::StrCat(FormatCount(answered_), " answered",
                                   from_before_ > 0 ? absl::StrCat(", ", FormatCount(from_before_),
                                                                   " were answered before")
                                                    : "",
                                   "\n"),
                      0);
    }
  }

  Session& session_;
  const BatchOptions& options_;
  std::vector<BatchLine> lines_;
  std::vector<std::string> keys_;  // RequestKey of each line
  std::map<std::string, Provided> provided_;
  std::map<size_t, Failure> failures_;  // by index into lines_
  std::unique_ptr<BatchStore> store_;
  int64_t from_before_ = 0;
  int64_t answered_ = 0;
  absl::Status written_;
};

}  // namespace

void AddBatchCommand(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& batch = *app.add_subcommand("batch", "Run many requests from a file");
  const auto options = std::make_shared<BatchOptions>();
  batch
      .add_option("IN.jsonl", options->in,
                  "File of requests, one JSON object a line: \"question\" (or \"prompt\", or "
                  "\"messages\"), and optionally \"id\", \"documents\", \"system\", \"model\", "
                  "\"attention\", \"coverage\" and sampling fields such as \"max_tokens\"; - for "
                  "standard input")
      ->required();
  batch
      .add_option("OUT.jsonl", options->out,
                  "File for the answers, in the order of IN; written when all are complete. "
                  "Resumes: skips requests already answered in OUT.jsonl or OUT.jsonl.part")
      ->required();
  batch
      .add_option("--concurrency", options->concurrency,
                  "Number of requests in parallel, 1 to 256 (default 4)")
      ->check(CLI::Range(1, 256).description(""))
      ->type_name("N");
  batch
      .add_option("--failures", options->failures,
                  "File for requests that failed (default: OUT.jsonl.failed)")
      ->type_name("FILE");
  AddDocumentOptions(batch, options->choice);
  batch
      .add_option("-s,--system", options->system,
                  "System message for questions without their own \"system\"")
      ->type_name("TEXT");
  AddGenerationOptions(batch, options->spec);
  AddCommonOptions(batch, common);
  batch.footer(
      "Repeat the command to resume a stopped run. Exit code 3: some requests failed.\n"
      "Examples:\n"
      "  echo '{\"id\": 1, \"documents\": [\"a.pdf\"], \"question\": \"Who signed?\"}' > in.jsonl\n"
      "  annulus batch in.jsonl out.jsonl --concurrency 8 --temperature 0");
  batch.callback([&action, options] {
    action = [options](Session& session) { return Batch(session, *options).Run(); };
  });
}

}  // namespace annulus::client
