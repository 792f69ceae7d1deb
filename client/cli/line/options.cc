#include "client/cli/line/options.h"

#include <cmath>
#include <fstream>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/line/help.h"
#include "client/format/text.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr double kLongestConnecting = 3600;
// A year: longer timeouts are mistakes and could overflow a clock.
constexpr double kLongestTimeout = 365.0 * 24 * 3600;

std::string ReadTokenFile(const std::string& path) {
  std::ifstream file(path);
  std::string token;
  if (!std::getline(file, token) || absl::StripAsciiWhitespace(token).empty()) {
    throw CLI::ValidationError("--token-file",
                               absl::StrCat("cannot read a token from the first line of ", path));
  }
  return std::string(absl::StripAsciiWhitespace(token));
}

std::string UnescapeStop(const std::string& text) {
  absl::StatusOr<std::string> stop = Unescape(text);
  if (!stop.ok()) throw CLI::ValidationError("--stop", std::string(stop.status().message()));
  if (FindInvalidUtf8(*stop).has_value()) {
    throw CLI::ValidationError("--stop", "the text is not valid UTF-8; convert it first");
  }
  return *std::move(stop);
}

void ParseLogitBias(const std::string& text, v1::SamplingParams& sampling) {
  const std::vector<std::string> parts = absl::StrSplit(text, ':');
  int32_t id = 0;
  float bias = 0;
  if (parts.size() != 2 || !absl::SimpleAtoi(parts[0], &id) || !absl::SimpleAtof(parts[1], &bias)) {
    throw CLI::ValidationError("--logit-bias",
                               absl::StrCat(text, " is not ID:BIAS, for example 42:-1.5"));
  }
  (*sampling.mutable_logit_bias())[id] = bias;
}

// Adds a flag that sets one field of SamplingParams.
template <typename T>
CLI::Option* AddField(CLI::App& command, v1::SamplingParams* sampling, const char* flag,
                      void (v1::SamplingParams::*set)(T), const char* help) {
  return command
      .add_option_function<T>(
          flag, [sampling, set](const T& value) { (sampling->*set)(value); }, help)
      ->type_name("N")
      ->group(kSamplingGroup);
}

void AddAttentionOptions(CLI::App& command, v1::GenerationSpec& spec) {
  command
      .add_option_function<std::string>(
          "--attention",
          [&spec](const std::string& text) { spec.mutable_attention()->set_policy(text); },
          "Which keys are attended: NAME or NAME:parameter=value,.. (dense, window, strided, "
          "adaptive and others; annulusd --help lists them). Default: the server's")
      ->type_name("POLICY")
      ->group(kAttentionGroup);
  command
      .add_option_function<double>(
          "--coverage", [&spec](double share) { spec.mutable_attention()->set_coverage(share); },
          "Attend at least this share of the attention mass, as measured on sampled rows, (0, 1]; "
          "without --attention: policy adaptive")
      ->check(Within(kAboveZero, 1, "above 0, up to 1"))
      ->type_name("SHARE")
      ->group(kAttentionGroup);
}

std::string ReadSchema(const std::string& path) {
  constexpr int64_t kMost = int64_t{1} << 20;  // the server's limit
  absl::StatusOr<std::string> schema = LoadFile(path, kMost);
  if (!schema.ok()) {
    throw CLI::ValidationError("--json-schema", std::string(schema.status().message()));
  }
  if (FindInvalidUtf8(*schema).has_value()) {
    throw CLI::ValidationError("--json-schema", path + " is not valid UTF-8; convert it first");
  }
  return *std::move(schema);
}

void AddFormOptions(CLI::App& command, v1::GenerationSpec& spec) {
  CLI::Option* const schema = command
                                  .add_option_function<std::string>(
                                      "--json-schema",
                                      [&spec](const std::string& path) {
                                        spec.mutable_output()->set_json_schema(ReadSchema(path));
                                      },
                                      "The answer is JSON that satisfies the JSON schema in FILE")
                                  ->type_name("FILE")
                                  ->group(kFormGroup);
  CLI::Option* const regex =
      command
          .add_option_function<std::string>(
              "--regex",
              [&spec](const std::string& text) { spec.mutable_output()->set_regex(text); },
              "The answer matches this regular expression as a whole")
          ->type_name("REGEX")
          ->group(kFormGroup);
  CLI::Option* const choice =
      command
          .add_option_function<std::vector<std::string>>(
              "--choice",
              [&spec](const std::vector<std::string>& texts) {
                auto& choices = *spec.mutable_output()->mutable_choices()->mutable_texts();
                choices.Assign(texts.begin(), texts.end());
              },
              "The answer is this text, or one of several; may be repeated")
          ->allow_extra_args(false)
          ->type_name("TEXT")
          ->group(kFormGroup);
  schema->excludes(regex)->excludes(choice);
  regex->excludes(choice);
}

// `most_name` is `most` in words, for the message.
std::chrono::milliseconds Milliseconds(const char* flag, double seconds, double most,
                                       const char* most_name) {
  if (!(seconds > 0 && seconds <= most)) {
    throw CLI::ValidationError(
        flag, absl::StrCat(seconds, " is not allowed: above 0 seconds, at most ", most_name));
  }
  return std::chrono::milliseconds(std::llround(std::ceil(seconds * 1e3)));
}

}  // namespace

void AddCommonOptions(CLI::App& command, CommonOptions& options) {
  ConnectionOptions& connection = options.connection;
  const auto add = [&](const char* flag, auto& value, const char* help, const char* group) {
    return command.add_option(flag, value, help)->group(group);
  };
  add("--server", connection.server,
      "Address of annulusd, or the variable ANNULUS_SERVER (default 127.0.0.1:50051)", kServerGroup)
      ->type_name("HOST:PORT");
  command
      .add_option_function<double>(
          "--timeout",
          [&connection](double seconds) {
            connection.timeout = Milliseconds("--timeout", seconds, kLongestTimeout, "a year");
          },
          "Timeout of each call in seconds (default: none)")
      ->type_name("SECONDS")
      ->group(kServerGroup);
  command
      .add_option_function<double>(
          "--connect-timeout",
          [&connection](double seconds) {
            connection.connect_timeout =
                Milliseconds("--connect-timeout", seconds, kLongestConnecting, "an hour");
          },
          "Timeout for a new connection in seconds, for each address of the server in turn; at "
          "least 0.1 (default 5)")
      ->type_name("SECONDS")
      ->group(kServerGroup);
  add("--token", connection.token, "Bearer token, or the variable ANNULUS_TOKEN", kServerGroup)
      ->type_name("TOKEN");
  command
      .add_option_function<std::string>(
          "--token-file",
          [&connection](const std::string& path) { connection.token = ReadTokenFile(path); },
          "File whose first line is the bearer token")
      ->type_name("FILE")
      ->group(kServerGroup);
  command.add_flag("--tls", connection.tls, "Use TLS; implied by the other --tls flags")
      ->group(kServerGroup);
  add("--tls-ca", connection.tls_ca_file, "Certificate authorities to trust (PEM)", kServerGroup)
      ->type_name("FILE");
  add("--tls-cert", connection.tls_cert_file, "This client's certificate (PEM)", kServerGroup)
      ->type_name("FILE");
  add("--tls-key", connection.tls_key_file, "This client's private key (PEM)", kServerGroup)
      ->type_name("FILE");
  add("--tls-server-name", connection.tls_server_name,
      "Expected name in the server's certificate (default: the host)", kServerGroup)
      ->type_name("NAME");
  command.add_flag("--json", options.json, "Print one JSON object")->group(kOutputGroup);
  command.add_flag("--quiet", options.quiet, "Print no progress and no warnings")
      ->group(kOutputGroup);
  add("--progress", options.progress,
      "Progress on standard error: auto (a bar on a terminal, else a line every few seconds), "
      "always (a bar) or never",
      kOutputGroup)
      ->type_name("WHEN")
      ->check(CLI::IsMember({"auto", "always", "never"}).description(""));
  add("--profile", options.profile,
      "Profile of ~/.config/annulus/config.yaml, or the variable ANNULUS_PROFILE", kServerGroup)
      ->type_name("NAME");
}

CLI::Validator Within(double least, double most, std::string range) {
  return CLI::Validator(
      [least, most, range = std::move(range)](std::string& text) {
        double value = 0;
        const bool wrong = absl::SimpleAtod(text, &value) && !(value >= least && value <= most);
        return wrong ? absl::StrCat(text, " is not allowed: ", range) : std::string();
      },
      "");
}

void ReadEnvironment(const Environment& environment, CommonOptions& options) {
  if (const auto server = environment("ANNULUS_SERVER")) options.connection.server = *server;
  if (const auto token = environment("ANNULUS_TOKEN")) options.connection.token = *token;
  if (const auto profile = environment("ANNULUS_PROFILE")) options.profile = *profile;
  options.dumb_terminal = environment("TERM") == "dumb";
}

void AddGenerationOptions(CLI::App& command, v1::GenerationSpec& spec) {
  using P = v1::SamplingParams;
  P* const sampling = spec.mutable_sampling();
  const auto strings = [&](const char* flag, std::function<void(const std::string&)> take,
                           const char* help, const char* group) {
    return command
        .add_option_function<std::vector<std::string>>(
            flag,
            [take](const std::vector<std::string>& values) {
              for (const std::string& value : values) take(value);
            },
            help)
        ->allow_extra_args(false)
        ->group(group);
  };
  strings(
      "-m,--model", [&spec](const std::string& name) { spec.set_model(name); },
      "Name of the model (default: the only one)", kServerGroup)
      ->expected(1)
      ->type_name("NAME");
  strings(
      "--request-id", [&spec](const std::string& id) { spec.set_request_id(id); },
      "Idempotency key, also in the server's log: a repeated request attaches to the running one",
      kServerGroup)
      ->expected(1)
      ->type_name("ID");
  command
      .add_option_function<int32_t>(
          "--priority", [&spec](const int32_t& priority) { spec.set_priority(priority); },
          "-2 to 2; above 0: before your other requests, below 0: after them")
      ->check(Within(-2, 2, "-2 to 2"))
      ->type_name("N")
      ->group(kServerGroup);
  command
      .add_flag_function(
          "--digest", [&spec](int64_t /*count*/) { spec.set_digest(true); },
          "Return a hash of the answer's tokens and log probabilities, to compare answers bit by "
          "bit")
      ->group(kServerGroup);
  strings(
      "--speculate",
      [&spec](const std::string& way) {
        spec.set_speculation(way == "off" ? v1::SPECULATION_OFF : v1::SPECULATION_NGRAM);
      },
      "Speculative decoding. ngram: guess tokens from the request's own text, which is faster if "
      "the answer quotes it. Does not change the answer, on GPUs only with the server's "
      "--gpu-kernels ..-invariant (default: the server's --speculate)",
      kServerGroup)
      ->expected(1)
      ->check(CLI::IsMember({"off", "ngram"}))
      ->type_name("off|ngram");
  AddAttentionOptions(command, spec);
  AddFormOptions(command, spec);
  AddField(command, sampling, "-n,--max-tokens", &P::set_max_tokens,
           "Largest number of tokens to generate")
      ->check(Within(1, kAnyNumber, "1 or more"));
  AddField(command, sampling, "--min-tokens", &P::set_min_tokens,
           "Smallest number of tokens to generate")
      ->check(Within(0, kAnyNumber, "0 or more"));
  AddField(command, sampling, "-t,--temperature", &P::set_temperature,
           "0 (always the most likely token) to 2. Default: the model's; 0 for document questions "
           "if it has none")
      ->check(Within(0, 2, "0 to 2"));
  AddField(command, sampling, "--top-p", &P::set_top_p, "Probability mass to draw from, (0, 1]")
      ->check(Within(kAboveZero, 1, "above 0, up to 1"));
  AddField(command, sampling, "--top-k", &P::set_top_k,
           "Number of most likely tokens to draw from; 0: all")
      ->check(Within(0, kAnyNumber, "0 (off) or more"));
  AddField(command, sampling, "--min-p", &P::set_min_p,
           "Minimum probability relative to the most likely token, [0, 1]")
      ->check(Within(0, 1, "0 (off) to 1"));
  AddField(command, sampling, "--frequency-penalty", &P::set_frequency_penalty,
           "Lower a token's logit by this each time it was generated, [-2, 2]")
      ->check(Within(-2, 2, "-2 to 2"));
  AddField(command, sampling, "--presence-penalty", &P::set_presence_penalty,
           "Lower a token's logit by this if it was generated, [-2, 2]")
      ->check(Within(-2, 2, "-2 to 2"));
  AddField(command, sampling, "--repetition-penalty", &P::set_repetition_penalty,
           "Above 1: make tokens of prompt and answer less likely, (0, 10]")
      ->check(Within(kAboveZero, 10, "above 0, up to 10"));
  AddField(command, sampling, "--seed", &P::set_seed,
           "Seed of the random draws, to make them repeatable");
  AddField(command, sampling, "--logprobs", &P::set_logprobs,
           "Show the log probability of each token and this many alternatives, 0 to 20: as a table "
           "on standard error, or in --json")
      ->check(Within(0, 20, "0 to 20"));
  AddField(
      command, sampling, "--prompt-logprobs", &P::set_prompt_logprobs,
      "The same for each token of the prompt except the first; computes the whole prompt, cached "
      "or not")
      ->check(Within(0, 20, "0 to 20"));
  command
      .add_flag_callback(
          "--ignore-eos", [sampling] { sampling->set_ignore_eos(true); },
          "Continue after an end-of-text token")
      ->group(kSamplingGroup);
  strings(
      "--stop", [sampling](const std::string& text) { sampling->add_stop(UnescapeStop(text)); },
      "End before this text (escapes: \\n, \\t and \\\\); may be repeated", kSamplingGroup)
      ->type_name("TEXT");
  command
      .add_option_function<std::vector<int32_t>>(
          "--stop-token-ids",
          [sampling](const std::vector<int32_t>& ids) {
            sampling->mutable_stop_token_ids()->Assign(ids.begin(), ids.end());
          },
          "End at these tokens, separated by commas; may be repeated")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("ID,...")
      ->group(kSamplingGroup);
  strings(
      "--logit-bias", [sampling](const std::string& text) { ParseLogitBias(text, *sampling); },
      "Add BIAS to the logit of token ID; may be repeated", kSamplingGroup)
      ->type_name("ID:BIAS");
}

}  // namespace annulus::client
