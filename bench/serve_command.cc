#include <chrono>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "bench/commands.h"
#include "bench/report/progress.h"
#include "bench/report/row.h"
#include "bench/serve/beside.h"
#include "bench/serve/crowd.h"
#include "bench/serve/load.h"
#include "bench/serve/load_report.h"
#include "client/cancellation.h"
#include "client/connection.h"
#include "client/failure.h"
#include "kernels/base/status_macros.h"

namespace annulus::bench {
namespace {

struct ServeOptions {
  client::ConnectionOptions connection;
  double deadline = 0;  // seconds, of each call; 0: none
  LoadOptions load;
  BesideOptions beside{.long_prompt = 0};  // no such prompt: load alone
  CrowdOptions crowd{.prompts = 0};        // likewise
};

// The number of ids of the model to load.
absl::StatusOr<int32_t> Vocabulary(client::Connection& connection, const std::string& model) {
  client::Call call(connection);
  v1::ListModelsResponse models;
  const grpc::Status status = connection.models().ListModels(call.context(), {}, &models);
  if (!status.ok()) {
    return absl::UnavailableError(client::DescribeFailure(status, connection.server()));
  }
  for (const v1::Model& known : models.models()) {
    if (model.empty() || known.name() == model) return known.vocabulary();
  }
  return absl::InvalidArgumentError(absl::StrCat("the server has no model '", model, "'"));
}

absl::Status RunServe(ServeOptions options, BenchContext& context) {
  client::Cancellation cancellation;
  if (options.deadline > 0) {
    options.connection.timeout =
        std::chrono::milliseconds(static_cast<int64_t>(options.deadline * 1000));
  }
  ANNULUS_ASSIGN_OR_RETURN(const auto connection,
                           client::Connection::Open(options.connection, cancellation));
  ANNULUS_ASSIGN_OR_RETURN(options.load.vocabulary, Vocabulary(*connection, options.load.model));
  client::ProgressDisplay display = MakeDisplay(context.err);
  if (options.beside.long_prompt > 0) {
    options.beside.load = options.load;
    ANNULUS_ASSIGN_OR_RETURN(const BesideResult result,
                             RunBeside(options.connection, options.beside,
                                       [&](const std::string& what) { display.Note(what); }));
    display.Clear();
    RowWriter writer(context.rows);
    for (const Row& row : BesideRows(options.beside, result)) writer.Write(row);
    return absl::OkStatus();
  }
  if (options.crowd.prompts > 0) {
    options.crowd.load = options.load;
    ANNULUS_ASSIGN_OR_RETURN(const CrowdResult result,
                             RunCrowd(options.connection, options.crowd,
                                      [&](const std::string& what) { display.Note(what); }));
    display.Clear();
    RowWriter writer(context.rows);
    for (const Row& row : CrowdRows(options.crowd, result)) writer.Write(row);
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(const LoadResult result,
                           RunLoad(*connection, options.load, [&](int64_t sent, int64_t ended) {
                             display.Note(absl::StrCat(sent, " requests sent, ", ended, " ended"));
                           }));
  display.Clear();
  if (result.outcomes.empty()) {
    return absl::InvalidArgumentError(
        "no request arrived in --duration; raise --duration or --rate");
  }
  RowWriter writer(context.rows);
  for (const Row& row : LoadRows(options.load, result)) writer.Write(row);
  return absl::OkStatus();
}

void AddCrowdOptions(CLI::App& command, CrowdOptions& crowd) {
  CLI::Option* const prompts =
      command
          .add_option("--crowd", crowd.prompts,
                      "Send these requests alone, and again while this many long prompts wait that "
                      "were sent at once")
          ->check(CLI::Range(1, 4096))
          ->excludes("--beside-prompt", "--longest-prompt");
  command.add_option("--crowd-prompt", crowd.prompt_tokens, "Tokens of each of those prompts")
      ->check(CLI::Range(1, 1 << 24))
      ->needs(prompts)
      ->capture_default_str();
  command
      .add_option("--crowd-token", crowd.token,
                  "Their bearer token, of another tenant than --token (default: --token)")
      ->type_name("TOKEN")
      ->needs(prompts);
}

}  // namespace

void AddServeCommand(CLI::App& app, BenchContext& context) {
  auto options = std::make_shared<ServeOptions>();
  LoadOptions& load = options->load;
  CLI::App* command = app.add_subcommand(
      "serve",
      "Load a running daemon: requests arrive at random, whether or not others have ended");
  command->footer(
      "Examples:\n"
      "  annulus-bench serve --rate 2 --duration 30 --prompt-tokens 512 --max-tokens 32\n"
      "  annulus-bench serve --rate 0.5 --prompt-tokens 200 --longest-prompt 131072 --deadline 60\n"
      "  annulus-bench serve --beside-prompt 8192 --rate 0.2 --prompt-tokens 200 --max-tokens 1\n"
      "  annulus-bench serve --token SHORT --crowd 200 --crowd-token LONG --prompt-tokens 200\n"
      "  annulus-bench serve --server gpu7:50051 --tls-ca ca.pem --json");
  command->add_option("--server", options->connection.server, "Address of annulusd")
      ->type_name("HOST:PORT")
      ->capture_default_str();
  command->add_option("--token", options->connection.token, "Bearer token")->type_name("TOKEN");
  command
      ->add_option("--tls-ca", options->connection.tls_ca_file,
                   "Use TLS and trust these certificate authorities (PEM)")
      ->type_name("FILE");
  command->add_option("--served-model", load.model, "Name of the model (default: the first)")
      ->type_name("NAME");
  command->add_option("--rate", load.rate, "Requests per second, on average")
      ->check(CLI::Range(0.001, 10000.0))
      ->capture_default_str();
  command->add_option("--duration", load.duration, "Seconds during which requests arrive")
      ->check(CLI::Range(0.01, 86400.0))
      ->capture_default_str();
  command->add_option("--prompt-tokens", load.prompt_tokens, "Tokens of each prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  command
      ->add_option("--longest-prompt", load.longest_prompt,
                   "Spread lengths from --prompt-tokens to this, evenly on a logarithmic scale")
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--deadline", options->deadline,
                   "Seconds that each call may take; those that take longer have failed")
      ->check(CLI::Range(0.001, 86400.0));
  command->add_option("--max-tokens", load.max_tokens, "Tokens of each answer")
      ->check(CLI::Range(1, 1 << 20))
      ->capture_default_str();
  command
      ->add_option(
          "--beside-prompt", options->beside.long_prompt,
          "Read a prompt of this many tokens alone, then another one while a stream is running "
          "and these requests arrive")
      ->check(CLI::Range(1, 1 << 24));
  command
      ->add_option("--stream-tokens", options->beside.stream_tokens, "Most tokens of that stream")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  AddCrowdOptions(*command, options->crowd);
  command->add_flag("--speculation", load.speculation,
                    "Guess tokens ahead, which answers of random weights favour: they loop");
  command->add_option("--seed", load.seed, "Seed of arrivals and prompts")->capture_default_str();
  command->callback([options, &context] {
    context.action = [=, &context] { return RunServe(*options, context); };
  });
}

}  // namespace annulus::bench
