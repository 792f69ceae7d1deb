#include <chrono>
#include <cmath>
#include <map>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "client/cli/chat/message_json.h"
#include "client/cli/commands/commands.h"
#include "client/cli/line/options.h"
#include "client/failure.h"
#include "client/format/table.h"
#include "client/format/units.h"

namespace annulus::client {
namespace {

// Columns at which the values begin.
constexpr int kModelIndent = 16;
constexpr int kStatusIndent = 10;

// "serving" for SERVER_STATE_SERVING.
std::string StateName(v1::ServerState state) {
  return EnumText(*v1::ServerState_descriptor(), state);
}

// Leaves out the lists of default_sampling, which a model does not have.
nlohmann::ordered_json ModelsJson(const v1::ListModelsResponse& response) {
  nlohmann::ordered_json json = MessageJson(response);
  for (nlohmann::ordered_json& model : json["models"]) {
    if (!model.contains("default_sampling")) continue;
    for (const char* list : {"stop", "stop_token_ids", "logit_bias"}) {
      model["default_sampling"].erase(list);
    }
  }
  return json;
}

// A line with the sampling defaults that have an effect; empty if the server reports none.
std::string DescribeSampling(const v1::Model& model) {
  if (!model.has_default_sampling()) return "";
  const v1::SamplingParams& sampling = model.default_sampling();
  std::string text = sampling.temperature() == 0
                         ? "  sampling      greedy"
                         : absl::StrCat("  sampling      temperature ", sampling.temperature());
  if (sampling.top_p() != 1) absl::StrAppend(&text, ", top_p ", sampling.top_p());
  if (sampling.top_k() != 0) absl::StrAppend(&text, ", top_k ", sampling.top_k());
  if (sampling.min_p() != 0) absl::StrAppend(&text, ", min_p ", sampling.min_p());
  if (sampling.repetition_penalty() != 1) {
    absl::StrAppend(&text, ", repetition_penalty ", sampling.repetition_penalty());
  }
  return absl::StrCat(text, ", unless a request sets its own\n");
}

std::string DescribeModel(const v1::Model& model) {
  return absl::StrCat(
      model.name(), "\n  ", model.description(), "\n",                                  //
      "  architecture  ", model.architecture(), ", ", FormatCount(model.parameters()),  //
      " parameters, ", model.layers(), " layers of width ", model.hidden_size(), "\n",  //
      "  vocabulary    ", FormatCount(model.vocabulary()), " tokens\n",                 //
      "  context       ", FormatCount(model.max_context()), " tokens\n",                //
      "  dtypes        weights ", model.weights_dtype(), ", keys and values ", model.kv_dtype(),
      " (", FormatBytes(model.kv_bytes_per_token()), " for each token)\n",  //
      "  kernels       ", model.kernels(), "\n",                            //
      DescribeSampling(model),                                              //
      "  chat          ", model.has_chat_template() ? "yes" : "no template: plain text only", "\n");
}

int RunModels(Session& session) {
  v1::ListModelsResponse response;
  Call call(session.connection());
  const grpc::Status status =
      session.connection().models().ListModels(call.context(), v1::ListModelsRequest(), &response);
  if (!status.ok()) return session.CallFailed(status);
  if (session.options().json) {
    session.Print(JsonLine(ModelsJson(response)));
  } else {
    for (const v1::Model& model : response.models()) {
      session.PrintWrapped(DescribeModel(model), kModelIndent);
    }
  }
  return session.Finish();
}

// Kinds in alphabetical order, so that equal loads print equally.
std::set<std::string> MemoryKinds(const v1::GetLoadResponse& load) {
  std::set<std::string> kinds;
  for (const v1::RankLoad& rank : load.ranks()) {
    for (const auto& [kind, bytes] : rank.memory_bytes()) kinds.insert(kind);
  }
  return kinds;
}

int64_t BytesOf(const v1::RankLoad& rank, const std::string& kind) {
  const auto found = rank.memory_bytes().find(kind);
  return found == rank.memory_bytes().end() ? 0 : found->second;
}

// Parts by name, so that equal loads print equally.
std::map<std::string, int64_t> Foreseen(const v1::ProcessMemory& memory) {
  return {memory.foreseen_bytes().begin(), memory.foreseen_bytes().end()};
}

// Compares the memory of the process with the plan. Leaves out parts of 0 bytes.
std::string DescribeMemory(const v1::GetLoadResponse& load) {
  if (!load.has_memory()) return "";
  const v1::ProcessMemory& memory = load.memory();
  int64_t sum = 0;
  std::vector<std::string> parts;
  for (const auto& [part, bytes] : Foreseen(memory)) {
    sum += bytes;
    if (bytes > 0) parts.push_back(absl::StrCat(part, " ", FormatBytes(bytes)));
  }
  return absl::StrCat("memory    ", FormatBytes(memory.resident_bytes()), " resident, ",
                      FormatBytes(memory.resident_most_bytes()), " peak; predicted ",
                      FormatBytes(sum), ": ", absl::StrJoin(parts, ", "), "\n");
}

// Every member is there, whatever the server tells, and every rank has all kinds of memory.
nlohmann::ordered_json StatusJson(v1::GetServerInfoResponse info, v1::GetLoadResponse load) {
  info.mutable_limits();
  load.mutable_memory();
  load.mutable_exchange();
  for (const std::string& kind : MemoryKinds(load)) {
    for (v1::RankLoad& rank : *load.mutable_ranks()) (*rank.mutable_memory_bytes())[kind] += 0;
  }
  nlohmann::ordered_json json;
  json["server"] = MessageJson(info);
  json["load"] = MessageJson(load);
  return json;
}

// "attention of 1, 64 rows at 3.1, 34 GFLOP/s a rank, alone 5.2, 66; a call costs as much as 80
// keys"
std::string DescribeAttention(const v1::ExchangeRates& exchange) {
  std::vector<std::string> rows, flops, alone;
  for (const v1::AttentionRate& rate : exchange.attention()) {
    rows.push_back(absl::StrCat(rate.rows()));
    flops.push_back(absl::StrFormat("%.3g", rate.flops() / 1e9));
    alone.push_back(absl::StrFormat("%.3g", rate.alone_flops() / 1e9));
  }
  return absl::StrFormat(
      "attention of %s rows at %s GFLOP/s a rank, alone %s; a call costs as much as %.0f keys",
      absl::StrJoin(rows, ", "), absl::StrJoin(flops, ", "), absl::StrJoin(alone, ", "),
      exchange.call_keys());
}

// The rates by which the server chooses ring modes. Empty while the model is being loaded; rates
// that the server does not need are not shown.
std::string DescribeExchange(const v1::ExchangeRates& exchange) {
  if (exchange.source().empty()) return "";  // not known while the model is being loaded
  if (absl::StartsWith(exchange.source(), "not needed")) {
    return absl::StrCat("ring      rates ", exchange.source(), "\n");
  }
  return absl::StrFormat(
      "ring      %s, message %.3g us, each further part %.3g ns, %s; %s\n",
      DescribeAttention(exchange), exchange.message_seconds() * 1e6, exchange.part_seconds() * 1e9,
      exchange.link_bytes_per_second() > 0
          ? absl::StrFormat("link %.3g GB/s", exchange.link_bytes_per_second() / 1e9)
          : "nothing copied",
      exchange.source());
}

// Empty for a single rank, which sends nothing.
std::string DescribeTransport(const v1::GetLoadResponse& load) {
  if (load.ring_transport().empty() || load.ranks_size() < 2) return "";
  return absl::StrCat("transport ", load.ring_transport(), "\n");
}

std::string DescribeDevice(const v1::RankLoad& rank) {
  if (!rank.has_node()) return rank.device();
  return absl::StrCat(rank.device(), ", node ", rank.node());
}

// The device of all ranks; empty if they differ, or if there are no ranks.
std::string SharedDevice(const v1::GetLoadResponse& load) {
  std::string device;
  for (const v1::RankLoad& rank : load.ranks()) {
    const std::string own = DescribeDevice(rank);
    if (!device.empty() && own != device) return "";
    device = own;
  }
  return device;
}

// The kinds of memory in the table of ranks. Unless `verbose`, only the few that show how much room
// there is, so that the table fits 80 columns.
std::set<std::string> ShownKinds(const v1::GetLoadResponse& load, bool verbose) {
  std::set<std::string> kinds = MemoryKinds(load);
  if (verbose) return kinds;
  std::erase_if(kinds, [](const std::string& kind) {
    return kind != "kv_cached" && kind != "kv_free" && kind != "weights";
  });
  return kinds;
}

std::string RankTable(const v1::GetLoadResponse& load, bool verbose, int columns_at_most) {
  using Align = Table::Align;
  const std::set<std::string> kinds = ShownKinds(load, verbose);
  const bool with_device = verbose || SharedDevice(load).empty();
  std::vector<Table::Column> columns = {{"RANK", Align::kRight}};
  if (with_device) columns.push_back({"DEVICE"});
  columns.insert(columns.end(), {{"STATE"}, {"KV IN USE", Align::kRight}});
  for (const std::string& kind : kinds) {
    columns.push_back(
        {absl::AsciiStrToUpper(absl::StrReplaceAll(kind, {{"_", " "}})), Align::kRight});
  }
  columns.push_back({"ALL MEMORY", Align::kRight});
  Table table(columns);
  for (const v1::RankLoad& rank : load.ranks()) {
    std::vector<std::string> cells = {absl::StrCat(rank.rank())};
    if (with_device) cells.push_back(DescribeDevice(rank));
    cells.push_back(rank.up() ? "up" : "DOWN");
    cells.push_back(absl::StrCat(FormatBytes(rank.kv_bytes_used()), " of ",
                                 FormatBytes(rank.kv_bytes_total())));
    for (const std::string& kind : kinds) cells.push_back(FormatBytes(BytesOf(rank, kind)));
    int64_t sum = 0;
    for (const auto& [kind, bytes] : rank.memory_bytes()) sum += bytes;
    cells.push_back(FormatBytes(sum));
    table.AddRow(std::move(cells));
  }
  return table.Render(columns_at_most);
}

// Empty if all ranks are in the server's own process.
std::string DescribeWorkers(const v1::GetLoadResponse& load) {
  if (load.workers().empty()) return "";
  return absl::StrCat("workers   ", load.workers_size(), ", epoch ", load.epoch(), "\n");
}

// Likewise.
std::string WorkerTable(const v1::GetLoadResponse& load, int columns_at_most) {
  if (load.workers().empty()) return "";
  using Align = Table::Align;
  Table table({{"WORKER"},
               {"PEER"},
               {"RANKS", Align::kRight},
               {"STATE"},
               {"LAST BEAT", Align::kRight},
               {"WAITED", Align::kRight}});
  for (const v1::WorkerLoad& worker : load.workers()) {
    std::vector<int> ranks(worker.ranks());
    std::iota(ranks.begin(), ranks.end(), worker.first_rank());
    table.AddRow({worker.name(), worker.peer(), FormatNumbers(ranks), worker.up() ? "up" : "LOST",
                  FormatDuration(worker.silent_seconds()) + " ago",
                  FormatDuration(worker.exposed_seconds())});
  }
  return absl::StrCat("\n", table.Render(columns_at_most));
}

// How many of all pages are in use, reserved, cached and free. Older servers report only the first.
std::string DescribePages(const v1::GetLoadResponse& load) {
  std::string text = absl::StrFormat("%.1f%% of all pages in use", load.kv_usage() * 100);
  int64_t all = 0;
  for (const v1::RankLoad& rank : load.ranks()) all += rank.kv_bytes_total();
  const std::set<std::string> kinds = MemoryKinds(load);
  for (const auto& [kind, name] :
       {std::pair("kv_reserved", "reserved"), std::pair("kv_cached", "cached"),
        std::pair("kv_free", "free")}) {
    if (all == 0 || !kinds.contains(kind)) continue;
    int64_t bytes = 0;
    for (const v1::RankLoad& rank : load.ranks()) bytes += BytesOf(rank, kind);
    absl::StrAppendFormat(&text, ", %.1f%% %s", 100.0 * bytes / all, name);
  }
  return text;
}

std::string DescribeHealth(const v1::GetServerInfoResponse& info, const v1::GetLoadResponse& load) {
  const bool serves = info.state() == v1::SERVER_STATE_SERVING;
  if (info.state() == v1::SERVER_STATE_LOADING || (!info.awaited().empty() && !serves)) {
    return absl::StrCat("not serving: ",
                        info.awaited().empty() ? "the model is being loaded" : info.awaited());
  }
  if (info.state() == v1::SERVER_STATE_UNHEALTHY && load.ranks_size() == 0) {
    return "BAD, no device to compute on: the log of annulusd says why";
  }
  return absl::StrCat(load.healthy() ? "good" : "BAD", ", last step ",
                      FormatDuration(load.seconds_since_step()), " ago",
                      info.awaited().empty() ? "" : "; the ring goes on without ", info.awaited());
}

struct StatusOptions {
  bool clear = false;  // clear the screen before printing
  bool verbose = false;
};

// "device    AMD EPYC, 4 ranks"; empty if the ranks differ, since the table then has a column for
// it.
std::string DescribeSharedDevice(const v1::GetLoadResponse& load) {
  const std::string device = SharedDevice(load);
  if (device.empty()) return "";
  return absl::StrCat("device    ", device, ", ", load.ranks_size(),
                      load.ranks_size() == 1 ? " rank\n" : " ranks\n");
}

// What every caller may see.
std::string DescribeInfo(const v1::GetServerInfoResponse& info, absl::string_view server) {
  return absl::StrCat("server    annulusd ", info.version(), " at ", server, ", ",
                      StateName(info.state()), ", up ", FormatDuration(info.uptime()), "\n",  //
                      "models    ",
                      info.models().empty() ? "none yet" : absl::StrJoin(info.models(), ", "),  //
                      "\nattention ", info.attention(), " for requests that name no policy\n");
}

// Everything except the table of ranks.
std::string DescribeServer(const v1::GetServerInfoResponse& info, const v1::GetLoadResponse& load,
                           absl::string_view server, bool verbose) {
  return absl::StrCat(DescribeInfo(info, server),  //
                      "requests  ", load.running(), " running (at most ",
                      info.limits().max_running(), "), ",                                        //
                      load.waiting(), " waiting (at most ", info.limits().max_waiting(), ")\n",  //
                      "health    ", DescribeHealth(info, load), "\n",                            //
                      verbose ? "" : DescribeSharedDevice(load),                                 //
                      "KV        ", DescribePages(load), "\n", DescribeMemory(load),
                      verbose ? DescribeExchange(load.exchange()) : "",
                      verbose ? DescribeTransport(load) : "", DescribeWorkers(load), "\n");
}

// Clears a terminal, so that a watched status stays in place.
void ClearScreen(Session& session) {
  if (session.console().out_is_terminal && !session.options().dumb_terminal) {
    session.console().out << "\x1b[H\x1b[2J";
  }
}

int RunStatus(Session& session, const StatusOptions& options) {
  v1::GetServerInfoResponse info;
  v1::GetLoadResponse load;
  Call info_call(session.connection());
  grpc::Status status = session.connection().admin().GetServerInfo(
      info_call.context(), v1::GetServerInfoRequest(), &info);
  if (!status.ok()) return session.CallFailed(status);
  Call load_call(session.connection());
  status = session.connection().admin().GetLoad(load_call.context(), v1::GetLoadRequest(), &load);
  // Callers without the role metrics or admin see the server, but not its load.
  const bool hidden = status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
  if (!status.ok() && !hidden) return session.CallFailed(status);
  if (session.options().json) {
    nlohmann::ordered_json json = StatusJson(info, load);
    if (hidden) json["load"] = nullptr;
    session.Print(JsonLine(json));
    return session.Finish();
  }
  if (options.clear) ClearScreen(session);
  if (hidden) {
    session.PrintWrapped(
        absl::StrCat(DescribeInfo(info, session.connection().server()),
                     "load      not shown: it takes the role metrics or admin, which this caller "
                     "does not have\n"),
        kStatusIndent);
    return session.Finish();
  }
  session.PrintWrapped(DescribeServer(info, load, session.connection().server(), options.verbose),
                       kStatusIndent);
  session.Print(RankTable(load, options.verbose, session.table_columns()));
  session.Print(WorkerTable(load, session.table_columns()));
  return session.Finish();
}

// Repeats the status until an interruption, even while the server cannot be reached.
int WatchStatus(Session& session, const StatusOptions& options, double seconds) {
  constexpr std::chrono::milliseconds kTick{50};
  for (;;) {
    const int columns = session.table_columns();
    const int exit_code = RunStatus(session, options);
    if (session.interrupted() || exit_code == kExitInterrupted) return kExitInterrupted;
    if (!session.console().out.good()) return exit_code;
    const auto next =
        std::chrono::steady_clock::now() + std::chrono::milliseconds(std::llround(seconds * 1e3));
    // Redraw at once if the window was resized.
    while (std::chrono::steady_clock::now() < next && session.table_columns() == columns) {
      std::this_thread::sleep_for(kTick);
      if (session.interrupted()) return kExitInterrupted;
    }
    if (!session.console().out_is_terminal && !session.options().json) session.Print("\n");
  }
}

}  // namespace

void AddInfoCommands(CLI::App& app, CommonOptions& common, Action& action) {
  CLI::App& models = *app.add_subcommand("models", "List the models of the server");
  AddCommonOptions(models, common);
  models.footer("Examples:\n  annulus models\n  annulus models --json");
  models.callback([&action] { action = &RunModels; });

  CLI::App& status =
      *app.add_subcommand("status", "Show the server's state, load and the memory of every rank");
  AddCommonOptions(status, common);
  const auto watch = std::make_shared<bool>(false);
  const auto verbose = std::make_shared<bool>(false);
  const auto seconds = std::make_shared<double>(2);
  status.add_flag("--verbose", *verbose,
                  "Show all kinds of memory, and the measured rates for choosing ring modes");
  status.add_flag("--watch", *watch, "Refresh until Ctrl-C");
  status
      .add_option("--interval", *seconds,
                  "With --watch: interval of 0.1 to 3600 seconds (default 2)")
      ->check(CLI::Range(0.1, 3600.0).description(""))
      ->type_name("SECONDS");
  status.footer(
      "Examples:\n"
      "  annulus status\n"
      "  annulus status --watch\n"
      "  annulus status --server gpu7:50051 --tls-ca ca.pem --json");
  status.callback([&action, watch, verbose, seconds] {
    action = [watch, verbose, seconds](Session& session) {
      const StatusOptions options{.clear = *watch, .verbose = *verbose};
      return *watch ? WatchStatus(session, options, *seconds) : RunStatus(session, options);
    };
  });
}

}  // namespace annulus::client
