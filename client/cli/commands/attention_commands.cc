#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/ask/answer.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/provide.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/help.h"
#include "client/cli/line/options.h"
#include "client/cli/outputs.h"
#include "client/documents.h"
#include "client/draw/attention_picture.h"
#include "client/draw/explain_page.h"
#include "client/format/units.h"
#include "client/generation.h"

namespace annulus::client {
namespace {

constexpr char kTerminal[] = "terminal";
constexpr char kSvg[] = "svg";
constexpr char kPng[] = "png";
constexpr int kPictureCells = 128;

struct ShowOptions {
  v1::MapAttentionRequest request;
  std::optional<int> block;
  std::string format;  // empty: chosen by the file's name
  std::string output;  // empty: standard output
};

// The extension in lower case, with its dot; empty if the name has none.
std::string ExtensionOf(const std::string& file) {
  return absl::AsciiStrToLower(std::filesystem::path(file).extension().string());
}

// Misuse if the file's extension does not match the format to write. A name without an extension is
// always allowed.
int CheckExtension(Session& session, const std::string& file,
                   const std::vector<std::string>& allowed, absl::string_view hint) {
  const std::string extension = ExtensionOf(file);
  if (extension.empty() || std::count(allowed.begin(), allowed.end(), extension) > 0) return 0;
  return session.Misuse(absl::StrCat("-o ", file, ": ", extension,
                                     " is not allowed here; the name must end in ",
                                     absl::StrJoin(allowed, " or "), hint));
}

std::string FormatOf(const ShowOptions& options) {
  if (!options.format.empty()) return options.format;
  const std::string extension = ExtensionOf(options.output);
  if (extension == ".svg") return kSvg;
  if (extension == ".png") return kPng;
  return kTerminal;
}

int CheckShowFile(Session& session, const ShowOptions& options) {
  if (session.options().json) {
    return CheckExtension(session, options.output, {".json"}, ", because of --json");
  }
  if (options.format.empty()) {
    return CheckExtension(session, options.output, {".svg", ".png", ".txt"}, "");
  }
  const std::string extension =
      options.format == kTerminal ? ".txt" : absl::StrCat(".", options.format);
  return CheckExtension(session, options.output, {extension},
                        absl::StrCat(", because of --format ", options.format));
}

AttentionPicture PictureOf(const v1::MapAttentionResponse& response, int64_t tokens) {
  AttentionPicture picture;
  picture.title = response.policy();
  picture.tokens = tokens;
  picture.span = int64_t{response.blocks()} * response.block_tokens();
  picture.side = response.side();
  double density = 0;
  int heads = 0;
  for (const v1::AttentionHeadMap& head : response.heads()) {
    AttentionPicture::Square& square = picture.squares.emplace_back();
    square.label = absl::StrCat(head.head_count() == 1
                                    ? absl::StrCat("head ", head.first_head())
                                    : absl::StrCat("heads ", head.first_head(), " to ",
                                                   head.first_head() + head.head_count() - 1),
                                ", density ", FormatShare(head.density()));
    square.cells = head.map();
    density += head.density() * head.head_count();
    heads += head.head_count();
  }
  picture.subtitle = absl::StrCat(
      FormatCount(tokens), " tokens in ", FormatCount(response.blocks()), " blocks of ",
      response.block_tokens(), ", density ", FormatShare(heads == 0 ? 1 : density / heads));
  return picture;
}

// Whether the maps from the server have the size that the response states.
bool IsDrawable(const v1::MapAttentionResponse& response) {
  const size_t cells = static_cast<size_t>(response.side()) * response.side();
  for (const v1::AttentionHeadMap& head : response.heads()) {
    if (head.map().size() != cells) return false;
  }
  return response.side() > 0 && response.heads_size() > 0 && response.blocks() > 0 &&
         response.block_tokens() > 0;
}

std::string MapJson(const v1::MapAttentionResponse& response, int64_t tokens) {
  nlohmann::ordered_json members = MessageJson(response);
  InsertAfter("policy", "tokens", tokens, members);
  return JsonLine(members);
}

int RunShow(Session& session, const ShowOptions& options) {
  if (const int bad = CheckShowFile(session, options); bad != 0) return bad;
  const std::string format = FormatOf(options);
  v1::MapAttentionRequest request = options.request;
  if (options.block.has_value()) {
    if (!request.has_policy()) return session.Misuse("--block needs --policy");
    absl::StrAppend(request.mutable_policy(), absl::StrContains(request.policy(), ':') ? "," : ":",
                    "block=", *options.block);
  }
  if (format == kPng && options.output.empty() && session.console().out_is_terminal) {
    return session.Misuse("a PNG cannot be shown on a terminal; name a file with -o FILE");
  }
  if (!request.has_cells()) {
    request.set_cells(format == kTerminal ? std::clamp(session.console().columns(), 1, 64)
                                          : kPictureCells);
  }
  v1::MapAttentionResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().inference().MapAttention(call.context(), request, &response);
  if (!status.ok()) return session.CallFailed(status);
  if (!IsDrawable(response)) {
    return session.CallFailed({grpc::StatusCode::INTERNAL, "the server sent empty maps"});
  }
  if (session.options().json) {
    return WriteOutput(session, options.output, MapJson(response, request.tokens()));
  }
  const AttentionPicture picture = PictureOf(response, request.tokens());
  if (format == kTerminal) {
    return WriteOutput(session, options.output, DrawText(picture, session.console().columns()));
  }
  if (format == kSvg) return WriteOutput(session, options.output, DrawSvg(picture));
  const auto png = DrawPng(picture);
  if (!png.ok()) {
    return session.CallFailed({grpc::StatusCode::INTERNAL, std::string(png.status().message())});
  }
  return WriteOutput(session, options.output, *png);
}

struct ExplainOptions {
  v1::GenerationSpec spec;
  std::vector<std::string> documents;
  std::string prompt;
  std::string output;
  bool compare = false;
};

// Shows progress only, because the answer goes into the page.
class ProgressOnly : public GenerationObserver {
 public:
  ProgressOnly(Session& session, absl::string_view phase) : session_(session), phase_(phase) {}
  void OnQueued(const v1::Queued&) override {}
  void OnProgress(const v1::PromptProgress& progress) override {
    ProgressSample sample;
    sample.phase = phase_;
    sample.done = progress.processed();
    sample.total = progress.total();
    sample.cached = progress.cached();
    sample.elapsed = progress.elapsed();
    sample.eta = progress.eta();
    session_.progress().Show(sample);
  }
  void OnDelta(const v1::Delta&) override {}

 private:
  Session& session_;
  const std::string phase_;
};

int RunOnce(Session& session, const v1::GenerationSpec& spec, absl::string_view phase,
            Generation* generation) {
  ProgressOnly observer(session, phase);
  *generation = StreamGenerate(session.connection(), spec, observer);
  session.progress().Clear();
  return generation->status.ok() ? 0 : session.CallFailed(generation->status);
}

// The facts that the page shows beside the answer. Leaves out what the server does not tell, since
// the request itself succeeded.
ExplainedRun::Subject Describe(Session& session, const v1::GenerationSpec& spec) {
  ExplainedRun::Subject subject;
  subject.date = absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(), absl::UTCTimeZone());
  v1::GetServerInfoResponse info;
  Call call(session.connection());
  if (session.connection()
          .admin()
          .GetServerInfo(call.context(), v1::GetServerInfoRequest(), &info)
          .ok()) {
    subject.version = absl::StrCat("annulusd ", info.version());
  }
  subject.model = spec.model();
  if (subject.model.empty() && info.models_size() == 1) subject.model = info.models(0);
  for (const std::string& name : spec.documents()) {
    v1::Document document;
    const bool titled =
        GetDocument(session.connection(), name, &document).ok() && !document.title().empty();
    subject.documents.push_back(titled ? document.title() : name);
  }
  return subject;
}

// Writes the page, and the answer to standard output if the page goes to a file.
int WritePage(Session& session, const ExplainOptions& options, const Generation& generation,
              const ExplainedRun& run) {
  const auto page = ExplainPage(run);
  if (!page.ok()) {
    return session.CallFailed({grpc::StatusCode::INTERNAL, std::string(page.status().message())});
  }
  const int exit_code = WriteOutput(session, options.output, *page);
  if (exit_code != 0 || options.output.empty()) return exit_code;
  session.Print(session.options().json
                    ? absl::StrCat(AnswerJson(generation, /*interrupted=*/false), "\n")
                    : absl::StrCat(generation.text, "\n"));
  if (!session.options().quiet) session.Remark(TimingsText(*generation.completion), kTimingsIndent);
  return session.Finish();
}

int RunExplain(Session& session, const ExplainOptions& options) {
  if (session.options().json && options.output.empty()) {
    return session.Misuse("--json needs a file for the page: -o FILE");
  }
  if (const int bad = CheckExtension(session, options.output, {".html", ".htm"}, ""); bad != 0) {
    return bad;
  }
  v1::GenerationSpec spec = options.spec;
  spec.mutable_attention()->set_details(true);
  spec.set_ignore_cache(true);  // reused rows would have no attention to show
  ProvidedDocuments provided;
  int exit_code = CheckText(session, "--prompt", options.prompt);
  if (exit_code == 0)
    exit_code = ProvideDocuments(session, options.documents, {}, spec.model(), &provided);
  if (exit_code != 0) return exit_code;
  FitToModel(session, spec);
  PlaceQuestion(options.prompt, spec);
  for (const auto& document : provided.documents) spec.add_documents(document.name());
  Generation generation;
  exit_code = RunOnce(session, spec, "Reading", &generation);
  if (exit_code != 0) return EndWith(exit_code, session, &provided);
  ExplainedRun run;
  run.subject = Describe(session, spec);
  run.prompt = options.prompt;
  run.answer = {generation.text, *generation.completion};
  if (options.compare) {
    spec.mutable_attention()->Clear();
    spec.mutable_attention()->set_policy("dense");
    spec.clear_request_id();  // the id names the first request
    Generation dense;
    exit_code = RunOnce(session, spec, "Reading densely", &dense);
    if (exit_code != 0) return EndWith(exit_code, session, &provided);
    run.dense = {dense.text, *dense.completion};
  }
  return WritePage(session, options, generation, run);
}

void AddShow(CLI::App& attention, CommonOptions& common, Action& action) {
  CLI::App& show = *attention.add_subcommand("show", "Draw the blocks that a policy attends");
  const auto options = std::make_shared<ShowOptions>();
  v1::MapAttentionRequest& request = options->request;
  const auto number = [&](const char* flag, std::function<void(const int64_t&)> set,
                          const char* help) {
    return show.add_option_function<int64_t>(flag, std::move(set), help)->type_name("N");
  };
  show.add_option_function<std::string>(
          "--policy", [&request](const std::string& text) { request.set_policy(text); },
          "NAME or NAME:parameter=value,..; it must not depend on content (default: the server's)")
      ->type_name("POLICY");
  number(
      "--seq", [&request](const int64_t& n) { request.set_tokens(n); },
      "Length of the sequence in tokens")
      ->required()
      ->check(Within(1, kAnyNumber, "1 or more"));
  show.add_option("--block", options->block, "Tokens in a block, like the policy's parameter block")
      ->check(Within(1, kAnyNumber, "1 or more"))
      ->type_name("N");
  show.add_option_function<int32_t>(
          "--heads", [&request](int32_t n) { request.set_heads(n); },
          "Number of key/value heads (default: the model's)")
      ->check(Within(1, kAnyNumber, "1 or more"))
      ->type_name("N");
  show.add_option_function<int32_t>(
          "--cells", [&request](int32_t n) { request.set_cells(n); },
          "Largest number of cells on each side of the picture (default: 64 in a terminal, else "
          "128)")
      ->check(Within(1, kAnyNumber, "1 or more"))
      ->type_name("N");
  show.add_option("--model", *request.mutable_model(), "Name of the model (default: the only one)")
      ->type_name("NAME");
  show.add_option("--format", options->format,
                  "terminal, svg or png (default: by the name of FILE, which ends in .svg, .png or "
                  ".txt; else terminal)")
      ->type_name("FORMAT")
      ->check(CLI::IsMember({kTerminal, kSvg, kPng}).description(""));
  show.add_option("-o,--output", options->output, "Write to FILE (default: standard output)")
      ->type_name("FILE");
  AddCommonOptions(show, common);
  show.footer(
      "Examples:\n"
      "  annulus attention show --policy strided:stride=8 --seq 16384\n"
      "  annulus attention show --policy dilated_blocks:rates=1/2/4 --heads 3 --seq 65536 -o "
      "a.svg\n"
      "  annulus attention show --policy random --block 128 --seq 100000 --format png > a.png");
  show.callback([&action, options] {
    action = [options](Session& session) { return RunShow(session, *options); };
  });
}

void AddExplain(CLI::App& attention, CommonOptions& common, Action& action) {
  CLI::App& explain = *attention.add_subcommand(
      "explain", "Run a request and write an HTML page about its attention");
  const auto options = std::make_shared<ExplainOptions>();
  AddDocumentFlag(explain, options->documents);
  explain.add_option("--prompt", options->prompt, "What to ask")->required()->type_name("TEXT");
  explain
      .add_option("-o,--output", options->output,
                  "Write the HTML page to FILE.html (default: standard output)")
      ->type_name("FILE");
  explain.add_flag("--compare", options->compare,
                   "Also run the request with dense attention, and compare answers and times");
  AddGenerationOptions(explain, options->spec);
  AddCommonOptions(explain, common);
  explain.footer(
      "Examples:\n"
      "  annulus attention explain --document book.txt --prompt 'Who did it?' --coverage 0.95 \\\n"
      "      -o page.html\n"
      "  annulus attention explain --document book.txt --prompt 'Who did it?' \\\n"
      "      --attention hierarchical --max-tokens 32 --compare > page.html");
  explain.callback([&action, options] {
    action = [options](Session& session) { return RunExplain(session, *options); };
  });
}

}  // namespace

void AddAttentionCommands(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& attention = *app.add_subcommand(
      "attention", "Draw attention policies, and explain their effect on a request");
  attention.require_subcommand(1);
  attention.footer(
      "Examples:\n"
      "  annulus attention show --policy window:window=2048 --seq 16384\n"
      "  annulus attention explain --document a.txt --prompt 'Why?' --coverage 0.9 -o page.html");
  AddShow(attention, common, action);
  AddExplain(attention, common, action);
}

}  // namespace annulus::client
