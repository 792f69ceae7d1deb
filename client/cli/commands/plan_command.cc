#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/input/inputs.h"
#include "client/cli/input/provide.h"
#include "client/cli/line/document_options.h"
#include "client/cli/line/options.h"
#include "client/format/table.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// Column at which the values begin.
constexpr int kPlanIndent = 13;

struct PlanOptions {
  v1::GenerationSpec spec;
  std::string system;
  std::vector<std::string> documents;  // the last one is the question
  DocumentChoice choice;
};

std::string MemoryText(const v1::PlanResponse& plan) {
  switch (plan.fit()) {
    case v1::PlanResponse::FIT_NOW:
      return absl::StrCat("fits now, on ", plan.ranks_size(),
                          plan.ranks_size() == 1 ? " rank" : " ranks");
    case v1::PlanResponse::FIT_LATER:
      return "fits when running requests have ended";
    case v1::PlanResponse::FIT_NEVER:
      return absl::StrCat("never fits: ", plan.obstacle());
    default:
      return "unknown";
  }
}

std::string FirstTokenText(const v1::PlanResponse& plan) {
  const std::string ahead =
      plan.requests_ahead() == 0
          ? ""
          : absl::StrCat("; ", FormatCount(plan.requests_ahead()),
                         plan.requests_ahead() == 1 ? " request waits" : " requests wait");
  if (!plan.has_time_to_first_token()) {
    return absl::StrCat(plan.fit() == v1::PlanResponse::FIT_NOW
                            ? "not known yet: the server measures it with its first prompt"
                            : "not known: it depends on when there is room",
                        ahead);
  }
  return absl::StrCat("expected after ", FormatDuration(plan.time_to_first_token()),
                      ", of which prefill takes ", FormatDuration(plan.prefill()), ahead);
}

std::string PlanText(const v1::PlanResponse& plan) {
  std::string text = absl::StrCat(
      "prompt       ", FormatCount(plan.prompt_tokens()),
      " tokens: ", FormatCount(plan.cached_tokens()), " in memory",
      plan.host_tokens() > 0
          ? absl::StrCat(", ", FormatCount(plan.host_tokens()), " in host memory")
          : "",
      plan.disk_tokens() > 0 ? absl::StrCat(", ", FormatCount(plan.disk_tokens()), " on disk") : "",
      "\n",  //
      "answer       at most ", FormatCount(plan.max_answer_tokens()), " tokens; the context is ",
      FormatCount(plan.max_context()), "\n",  //
      "memory       ", MemoryText(plan), "\n", "attention    ", plan.policy(),
      plan.has_density() ? absl::StrFormat(", density %.3g", plan.density())
                         : ", density depends on the content",
      "\n");
  if (!plan.choice().empty()) absl::StrAppend(&text, "             ", plan.choice(), "\n");
  if (plan.system_folded()) {
    absl::StrAppend(&text, "template     refuses a system message: it goes in front of the ",
                    "question\n");
  }
  if (plan.fit() != v1::PlanResponse::FIT_NEVER) {
    absl::StrAppend(&text, "first token  ", FirstTokenText(plan), "\n");
  }
  return text;
}

std::string RanksTable(const v1::PlanResponse& plan, int columns) {
  Table table({{"RANK", Table::Align::kRight},
               {"KEYS AND VALUES", Table::Align::kRight},
               {"CACHED", Table::Align::kRight},
               {"TOTAL OF RANK", Table::Align::kRight}});
  for (const v1::PlannedRank& rank : plan.ranks()) {
    table.AddRow({absl::StrCat(rank.rank()), FormatBytes(rank.kv_bytes()),
                  FormatBytes(rank.cached_bytes()), FormatBytes(rank.kv_bytes_total())});
  }
  return table.Render(columns);
}

std::string PlanJson(const v1::PlanResponse& plan) {
  nlohmann::ordered_json members = MessageJson(plan, AbsentField::kNull);
  InsertAfter("obstacle", "ring_degree", plan.ranks_size(), members);
  return JsonLine(members);
}

int RunPlan(Session& session, const PlanOptions& options) {
  std::vector<std::string> documents = options.documents;
  std::string question = std::move(documents.back());
  documents.pop_back();
  std::error_code error;
  if (documents.empty() && std::filesystem::exists(question, error)) {
    return session.Misuse(absl::StrCat("a QUESTION is required after the documents, for example: ",
                                       "annulus plan ", question, " 'Who?'"));
  }
  if (question == kStandardInput) {
    const int bad = ReadText(session, "QUESTION", &question);
    if (bad != 0) return bad;
  }
  if (const int bad = CheckText(session, "QUESTION", question); bad != 0) return bad;
  v1::PlanRequest request;
  v1::GenerationSpec& spec = *request.mutable_spec();
  spec = options.spec;
  if (const int bad = PlaceSystem(session, options.system, spec); bad != 0) return bad;
  PlaceQuestion(question, spec);
  ProvidedDocuments provided;
  const int exit_code =
      ProvideDocuments(session, documents, options.choice, spec.model(), &provided);
  if (exit_code != 0) return exit_code;
  for (const auto& document : provided.documents) spec.add_documents(document.name());
  v1::PlanResponse plan;
  Call call(session.connection());
  const grpc::Status status = session.connection().inference().Plan(call.context(), request, &plan);
  if (!status.ok()) return EndWith(session.CallFailed(status), session, &provided);
  if (session.options().json) {
    session.Print(PlanJson(plan));
  } else {
    session.PrintWrapped(PlanText(plan), kPlanIndent);
    if (plan.ranks_size() > 0) {
      session.Print(absl::StrCat("\n", RanksTable(plan, session.table_columns())));
    }
  }
  return EndWith(session.Finish(), session, &provided);
}

}  // namespace

void AddPlanCommand(CLI::App& app, CommonOptions& common, Action& action, size_t argument_count) {
  CLI::App& plan = *app.add_subcommand(
      "plan", "Show what a question about documents would cost, without asking it");
  auto options = std::make_shared<PlanOptions>();
  AddDocumentsAndQuestion(plan, options->documents, argument_count, "none");
  AddDocumentOptions(plan, options->choice);
  plan.add_option("-s,--system", options->system, "System message")->type_name("TEXT");
  AddGenerationOptions(plan, options->spec);
  AddCommonOptions(plan, common);
  plan.footer(
      "Documents are uploaded as with 'annulus ask', but the model does not run.\n"
      "Examples:\n"
      "  annulus plan report.pdf 'What does it conclude?'\n"
      "  annulus plan 'reports/**/*.pdf' 'What changed?' --max-tokens 500 --json");
  plan.callback([&action, options] {
    action = [options](Session& session) { return RunPlan(session, *options); };
  });
}

}  // namespace annulus::client
