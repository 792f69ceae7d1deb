#include "server/config/load_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cctype>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "server/config/options.h"
#include "tests/support/temp_directory.h"

namespace annulus::server {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

class LoadConfigTest : public ::testing::Test {
 protected:
  std::string WriteFile(const std::string& content) {
    directory_.Write("config.yaml", content);
    return directory_.path() / "config.yaml";
  }

  static ServerConfig Load(const std::vector<std::string>& arguments,
                           const Environment& environment = {}) {
    const auto loaded = LoadConfig(arguments, environment);
    EXPECT_TRUE(loaded.ok()) << loaded.status();
    return loaded.ok() ? loaded->config : ServerConfig();
  }

  static std::string Error(const std::vector<std::string>& arguments,
                           const Environment& environment = {}) {
    const auto loaded = LoadConfig(arguments, environment);
    EXPECT_FALSE(loaded.ok());
    return std::string(loaded.status().message());
  }

 private:
  const testing::TempDirectory directory_;
};

TEST_F(LoadConfigTest, DefaultsAreTheDocumentedOnes) {
  const ServerConfig config = Load({});
  EXPECT_EQ(config.engine.model, "builtin:recall");
  EXPECT_EQ(config.served_model_name, "recall");
  EXPECT_EQ(config.listen, "127.0.0.1:50051");
  EXPECT_EQ(config.metrics, "127.0.0.1:9464");
  EXPECT_EQ(config.device, DeviceChoice::kAuto);
  EXPECT_EQ(config.engine.ranks, 1);
  EXPECT_EQ(config.engine.threads, 0);
  EXPECT_EQ(config.engine.kv_memory_bytes, 0u);
  EXPECT_FALSE(config.engine.kv_dtype.has_value());
  EXPECT_FALSE(config.engine.weights_dtype.has_value());
  EXPECT_EQ(config.engine.page_tokens, 64);
  EXPECT_EQ(config.engine.ring_mode, RingMode::kAuto);
  EXPECT_EQ(config.engine.ring_transport, RingTransport::kAuto);
  EXPECT_EQ(AssignmentText(config.engine.attention), "dense");
  EXPECT_EQ(config.max_message_bytes, size_t{16} << 20);
  EXPECT_EQ(config.grace_time, std::chrono::seconds(30));
  EXPECT_EQ(config.attach.window, std::chrono::minutes(10));
}

// A text other than the default for every option, so that all three sources can be told apart.
std::string OtherValue(const Option& option) {
  const std::string name = option.name;
  if (name == "model" || name == "served-model-name" || name == "out") return "abc";
  if (name == "cpu-isa") return "avx2";
  if (name == "gpu-kernels") return "sm90-invariant";
  if (name == "attention") return "window:window=77";
  if (name == "activations") return "int8";
  if (name == "device") return "cuda";
  if (name == "weights-dtype" || name == "kv-dtype") return "bf16";
  if (name == "page-tokens") return "128";
  if (name == "ring-mode") return "pass-q";
  if (name == "kv-verify") return "all";
  if (name == "admission") return "expected";
  if (name == "ring-transport") return "staged";
  if (name == "speculate") return "ngram";
  if (name == "tool-format") return "hermes";
  if (name == "log-format") return "json";
  if (name == "log-level") return "debug";
  if (name == "insecure" || name == "metrics-tls" || name == "allow-public-wire") return "on";
  if (name == "numa" || name == "device-graphs" || name == "reasoning" || name == "http-page")
    return "off";
  if (name == "huge-pages") return "transparent";
  if (name == "http-origins") return "https://a.example";
  if (name == "http-heartbeat" || name == "http-linger" || name == "worker-silence") return "7s";
  if (name == "listen" || name == "metrics" || name == "http" || name == "otlp-endpoint" ||
      name == "workers-listen" || name == "join")
    return "127.0.0.1:1234";
  if (name == "admin-listen") return "unix:/run/a.sock";
  if (name.find("tls") == 0 || name == "auth-token-file" || name == "admin-token-file" ||
      name == "tokens-file" || name == "ring-profile")
    return "file.pem";
  if (name.find("time") != std::string::npos || name == "stall-budget" || name == "attach-window")
    return "7s";
  if (name == "kv-memory" || name == "memory" || name.find("-size") != std::string::npos ||
      name == "max-documents-memory" || name == "max-prompts-memory" ||
      name == "max-replay-memory") {
    return "77MiB";
  }
  return "17";
}

// Describes every field, so that two configurations can be compared.
std::string Describe(const ServerConfig& c) {
  std::ostringstream out;
  const EngineOptions& e = c.engine;
  out << e.model << '|' << e.ranks << '|' << e.threads << '|' << e.kv_memory_bytes << '|'
      << e.expert_memory_bytes << '|' << (e.kv_dtype ? "set" : "auto") << '|'
      << (e.weights_dtype ? "set" : "auto") << '|' << e.max_context << '|' << e.page_tokens << '|'
      << e.chunk_tokens << '|' << e.tokens_per_rank << '|' << static_cast<int>(e.admission) << '|'
      << e.max_running << '|' << e.max_waiting << '|' << static_cast<int>(e.ring_mode) << '|'
      << static_cast<int>(e.ring_transport) << '|' << e.device_graphs << '|'
      << (e.speculation ? static_cast<int>(*e.speculation) : -1) << '|'
      << AssignmentText(e.attention) << '|' << e.tool_format << '|' << e.reasoning << '|'
      << e.attention_gates << '|' << e.attention_profile << '|' << e.kernels << '|'
      << ActivationsName(e.activations) << '|' << c.convert_out << '|' << c.planned_memory_bytes
      << '|' << e.profile << '|' << e.kv_host_bytes << '|' << e.kv_disk << '|' << e.kv_disk_bytes
      << '|' << static_cast<int>(e.kv_verify) << '|' << e.max_pinned << '|'
      << e.max_pinned_by_tenant << '|' << (e.stall_budget ? e.stall_budget->count() : -1) << '|'
      << e.exchange_timeout.count() << '|' << e.slow_reader_timeout.count() << '|'
      << static_cast<int>(c.device) << '|' << c.numa << '|' << static_cast<int>(c.huge_pages) << '|'
      << c.served_model_name << '|' << c.listen << '|' << c.admin_listen << '|' << c.max_connections
      << '|' << c.http << '|' << c.http_heartbeat.count() << '|' << c.attach.linger.count() << '|'
      << c.otlp_endpoint << '|' << (c.http_origins.empty() ? "" : c.http_origins.front()) << '|'
      << c.http_page << '|' << c.keepalive_time.count() << '|' << c.metrics << '|' << c.metrics_tls
      << '|' << c.tls_certificate << '|' << c.tls_key << '|' << c.tls_client_ca << '|' << c.insecure
      << '|' << c.auth_token_file << '|' << c.admin_token_file << '|' << c.tokens_file << '|'
      << c.grace_time.count() << '|' << c.upload_timeout.count() << '|'
      << c.documents.max_document_bytes << '|' << c.documents.max_memory << '|'
      << c.max_prompts_memory << '|' << c.attach.window.count() << '|' << c.attach.memory << '|'
      << c.documents.max_documents << '|' << c.documents.folder << '|' << c.documents.folder_bytes
      << '|' << c.max_message_bytes << '|' << static_cast<int>(c.log_level) << '|'
      << static_cast<int>(c.log_format) << '|' << c.workers_listen << '|' << c.join << '|'
      << c.local_ranks << '|' << c.worker_name << '|' << c.allow_public_wire << '|'
      << c.worker_silence.count() << '|' << c.replacement_timeout.count() << '|'
      << c.tolerated_ranks;
  return out.str();
}

// TLS needs both files, so each of the two travels with the other; --out goes with --convert
// and --memory with --plan.
std::vector<std::string> Companion(const Option& option) {
  const std::string name = option.name;
  if (name == "tls-key") return {"--tls-certificate", "x"};
  if (name == "tls-certificate") return {"--tls-key", "x"};
  if (name == "tls-client-ca" || name == "metrics-tls") {
    return {"--tls-certificate", "x", "--tls-key", "x"};
  }
  if (name == "out") return {"--convert"};
  if (name == "memory") return {"--plan"};
  if (name == "workers-listen") return {"--ranks", "2"};
  if (name == "worker-silence" || name == "replacement-timeout") {
    return {"--workers-listen", "127.0.0.1:7000", "--ranks", "2"};
  }
  if (name == "tolerate") return {"--workers-listen", "127.0.0.1:7000", "--ranks", "32"};
  if (name == "local-ranks" || name == "worker-name" || name == "allow-public-wire") {
    return {"--join", "127.0.0.1:7000"};
  }
  return {};
}

// Whoever makes an engine without the daemon gets the same one.
TEST_F(LoadConfigTest, DefaultsOfTheEngineAreThoseOfItsFields) {
  const ServerConfig config = Load({});
  ServerConfig fields = config;
  fields.engine = EngineOptions();
  EXPECT_EQ(Describe(fields), Describe(config));
}

TEST_F(LoadConfigTest, TheSocketForAdministratorsHasAPath) {
  EXPECT_EQ(Load({}).admin_listen, "auto");
  EXPECT_EQ(Load({"--admin-listen", "off"}).admin_listen, "");
  EXPECT_EQ(Load({"--admin-listen", "unix:/run/a.sock"}).admin_listen, "/run/a.sock");
  for (const std::string& bad : {std::string("/run/a.sock"), std::string("unix:a.sock"),
                                 std::string("127.0.0.1:1"), "unix:/" + std::string(107, 'x')}) {
    EXPECT_THAT(Error({"--admin-listen", bad}), HasSubstr("unix:/PATH")) << bad;
  }
}

TEST_F(LoadConfigTest, EveryOptionIsReadFromEverySource) {
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.name);
    const std::string value = OtherValue(option);
    const std::vector<std::string> companion = Companion(option);
    auto with = [&](std::vector<std::string> arguments) {
      arguments.insert(arguments.end(), companion.begin(), companion.end());
      return arguments;
    };
    const std::string flag = std::string("--") + option.name;
    const std::string expected = Describe(Load(with({flag, value})));
    EXPECT_NE(expected, Describe(Load({})));
    EXPECT_EQ(Describe(Load(with({flag + "=" + value}))), expected);
    EXPECT_EQ(Describe(Load(with({}), {{VariableName(option), value}})), expected);
    const std::string file = WriteFile(YamlKey(option) + ": " + value + "\n");
    EXPECT_EQ(Describe(Load(with({"--config", file}))), expected);
    EXPECT_EQ(Describe(Load(with({}), {{"ANNULUS_CONFIG", file}})), expected);
  }
}

// What --print-config prints with these arguments.
std::string Printed(std::vector<std::string> arguments) {
  arguments.push_back("--print-config");
  const auto loaded = LoadConfig(arguments, {});
  EXPECT_TRUE(loaded.ok()) << loaded.status();
  return loaded.ok() ? ConfigText(loaded->texts) : "";
}

TEST_F(LoadConfigTest, ThePrintedFileExplainsEveryOptionAndChangesNone) {
  const std::string text = Printed({});
  EXPECT_EQ(Describe(Load({"--config", WriteFile(text)})), Describe(Load({})));
  // The defaults that it shows are the defaults.
  std::string uncommented;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    EXPECT_LE(line.size(), 98u) << line;
    const bool shown = line.size() > 1 && line[0] == '#' && line[1] != '#' && line[1] != ' ';
    absl::StrAppend(&uncommented, shown ? line.substr(1) : line, "\n");
  }
  EXPECT_EQ(Describe(Load({"--config", WriteFile(uncommented)})), Describe(Load({})));
  for (const Option& option : Options()) {
    EXPECT_THAT(uncommented, HasSubstr(absl::StrCat("\n", YamlKey(option), ": ")));
  }
}

TEST_F(LoadConfigTest, APrintedFileIsReadBack) {
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.name);
    const std::string name = option.name;
    if (name == "out" || name == "memory") continue;  // for --convert and --plan alone
    std::vector<std::string> arguments = Companion(option);
    arguments.insert(arguments.begin(), {std::string("--") + option.name, OtherValue(option)});
    EXPECT_EQ(Describe(Load({"--config", WriteFile(Printed(arguments))})),
              Describe(Load(arguments)));
  }
  for (const char* odd : {"null", "~", "a: b", "# c", "\"", "\\n", "'", "x:", "- d", "\xc3\xa9",
                          "tab\there", "@e", "%f", "{g}", "&h", "yes"}) {
    const std::string read = Load({"--config", WriteFile(Printed({"--model", odd}))}).engine.model;
    EXPECT_EQ(read, Load({"--model", odd}).engine.model) << odd;
  }
}

TEST_F(LoadConfigTest, FlagBeatsVariableBeatsFile) {
  const std::string file = WriteFile("ranks: 2\nmax_running: 5\nmax_waiting: 6\n");
  const Environment environment = {{"ANNULUS_RANKS", "3"}, {"ANNULUS_MAX_RUNNING", "7"}};
  const ServerConfig config = Load({"--ranks", "4", "--config", file}, environment);
  EXPECT_EQ(config.engine.ranks, 4);
  EXPECT_EQ(config.engine.max_running, 7);
  EXPECT_EQ(config.engine.max_waiting, 6);
}

TEST_F(LoadConfigTest, FlagForTheFileBeatsItsVariable) {
  const std::string file = WriteFile("ranks: 2\n");
  EXPECT_EQ(Load({"--config", file}, {{"ANNULUS_CONFIG", "/nonexistent"}}).engine.ranks, 2);
}

TEST_F(LoadConfigTest, UnknownNamesAreAnsweredWithTheNearest) {
  EXPECT_THAT(Error({"--rank", "4"}), AllOf(HasSubstr("--rank\""), HasSubstr("\"--ranks\"")));
  EXPECT_THAT(Error({"--kv-memroy=1GiB"}), HasSubstr("\"--kv-memory\""));
  // The option's name before it was told apart from the profiles of the command line.
  EXPECT_THAT(Error({"--profile", "f"}), HasSubstr("\"--ring-profile\""));
  EXPECT_THAT(Error({"--config", WriteFile("profile: f\n")}), HasSubstr("\"ring_profile\""));
  EXPECT_THAT(Error({}, {{"ANNULUS_RANK", "4"}}),
              AllOf(HasSubstr("ANNULUS_RANK\""), HasSubstr("\"ANNULUS_RANKS\"")));
  const std::string file = WriteFile("# comment\nmodel: builtin:recall\nmax_contxt: 4\n");
  EXPECT_THAT(Error({"--config", file}),
              AllOf(HasSubstr(".yaml:3:"), HasSubstr("max_contxt"), HasSubstr("\"max_context\"")));
}

TEST_F(LoadConfigTest, BadValuesNameTheirSource) {
  EXPECT_THAT(Error({"--ranks", "0"}), AllOf(HasSubstr("--ranks: \"0\""), HasSubstr("1 to 64")));
  EXPECT_THAT(Error({}, {{"ANNULUS_DEVICE", "gpu"}}),
              AllOf(HasSubstr("ANNULUS_DEVICE: \"gpu\""), HasSubstr("auto, cpu, cuda")));
  const std::string file = WriteFile("kv_memory: lots\n");
  EXPECT_THAT(Error({"--config", file}), AllOf(HasSubstr(".yaml:1: kv_memory: \"lots\""),
                                               HasSubstr("4GiB"), HasSubstr("auto")));
  EXPECT_THAT(Error({"--ring-mode", "pass-k"}), HasSubstr("nearest is pass-kv"));
  EXPECT_THAT(Error({"--kv-dtype", "f64"}), HasSubstr("bf16"));
  EXPECT_EQ(Error({"--ranks"}), "--ranks needs a value: --ranks N");
  EXPECT_THAT(Error({"serve"}), HasSubstr("unexpected argument"));
}

TEST_F(LoadConfigTest, BadPoliciesAreToldWhatIsAllowed) {
  EXPECT_THAT(Error({"--attention", "windw"}),
              AllOf(HasSubstr("--attention"), HasSubstr("did you mean window?")));
  EXPECT_THAT(Error({"--attention", "window:widow=3"}), HasSubstr("did you mean window?"));
  EXPECT_THAT(Error({"--attention", "window:window=0"}), HasSubstr("'0' is not allowed: 1 to "));
  EXPECT_THAT(Error({}, {{"ANNULUS_ATTENTION", "window:window=-1"}}),
              AllOf(HasSubstr("ANNULUS_ATTENTION"), HasSubstr("'-1' is not allowed: 1 to ")));
  const std::string file = WriteFile("attention: strided:stride=0\n");
  EXPECT_THAT(Error({"--config", file}),
              AllOf(HasSubstr(":1: attention"), HasSubstr("'0' is not allowed: 1 to ")));
}

TEST_F(LoadConfigTest, ABadVariableIsAnErrorEvenWhereAFlagWins) {
  EXPECT_THAT(Error({"--ranks", "2"}, {{"ANNULUS_RANKS", "x"}}), HasSubstr("ANNULUS_RANKS"));
}

TEST_F(LoadConfigTest, VariablesOfOthersArePassedOver) {
  Load({}, {{"ANNULUS_SERVER", "127.0.0.1:1"},
            {"ANNULUS_TOKEN", "secret"},
            {"ANNULUS_PROFILE", "long"},
            {"ANNULUS_SERVICE_HOST", "10.0.0.1"},
            {"ANNULUS_SERVICE_PORT_GRPC", "50051"},
            {"ANNULUS_PORT", "tcp://10.0.0.1:50051"},
            {"ANNULUS_PORT_50051_TCP_ADDR", "10.0.0.1"}});
}

TEST_F(LoadConfigTest, MalformedFilesAreRefusedWithTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"- a\n- b\n", "ranks: 4"},
      {"ranks: [1, 2]\n", ".yaml:1: ranks"},
      {"model: x\nranks:\n", ".yaml:2: ranks"},
      {"ranks: 2\nranks: 3\n", ".yaml:2: ranks is given twice"},
      {"ranks: {1\n", "not valid YAML"},
      {std::string(100000, '['), "not valid YAML"},
      {"a: &a [*a]\n", ".yaml:1"},
  };
  for (const auto& [content, expected] : cases) {
    EXPECT_THAT(Error({"--config", WriteFile(content)}), HasSubstr(expected));
  }
  EXPECT_THAT(Error({"--config", WriteFile(std::string((1 << 20) + 1, '#'))}), HasSubstr("1 MiB"));
  EXPECT_THAT(Error({"--config", "/nonexistent/annulus.yaml"}), HasSubstr("cannot open"));
  EXPECT_THAT(Error({"--config", testing::TempDirectory().path()}), HasSubstr("cannot read"));
  EXPECT_EQ(Load({"--config", WriteFile("")}).engine.ranks, 1);
}

// Kernels are one setting with two names, each of which says nothing of the other's devices.
TEST_F(LoadConfigTest, KernelsAreThoseOfTheirDevice) {
  EXPECT_EQ(Load({"--gpu-kernels", "sm90-invariant"}).engine.kernels, "cuda/sm90-invariant");
  EXPECT_EQ(Load({"--gpu-kernels", "sm80", "--cpu-isa", "auto"}).engine.kernels, "cuda/sm80");
  EXPECT_EQ(Load({"--cpu-isa", "avx2", "--gpu-kernels", "auto"}).engine.kernels, "cpu/avx2");
  EXPECT_EQ(Load({"--gpu-kernels", "auto"}).engine.kernels, "");
  const Environment avx2 = {{"ANNULUS_CPU_ISA", "avx2"}};
  EXPECT_EQ(Load({"--gpu-kernels", "sm80", "--cpu-isa", "auto"}, avx2).engine.kernels, "cuda/sm80");
  for (const char* kernels : {"sm80", "sm90-invariant"}) {
    const auto both = LoadConfig({"--gpu-kernels", kernels}, avx2);
    EXPECT_EQ(both.status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(both.status().message()),
                HasSubstr(absl::StrCat("cpu-isa is avx2 and gpu-kernels is ", kernels)));
  }
}

TEST_F(LoadConfigTest, ServedNameComesFromTheModel) {
  EXPECT_EQ(Load({"--model", "/models/llama-3/"}).served_model_name, "llama-3");
  EXPECT_EQ(Load({"--model", "."}).served_model_name, "model");
  EXPECT_EQ(Load({"--model", "/"}).served_model_name, "model");
  EXPECT_EQ(Load({"--model", "x", "--served-model-name", "y"}).served_model_name, "y");
  EXPECT_THAT(Error({"--served-model-name", "a b"}), HasSubstr("--served-model-name"));
}

TEST_F(LoadConfigTest, AutoAndOffHaveTheirMeaning) {
  const ServerConfig config = Load({"--threads", "auto", "--kv-memory", "auto", "--max-context",
                                    "auto", "--weights-dtype", "auto", "--metrics", "off"},
                                   {{"ANNULUS_THREADS", "3"}, {"ANNULUS_WEIGHTS_DTYPE", "bf16"}});
  EXPECT_EQ(config.engine.threads, 0);
  EXPECT_FALSE(config.engine.weights_dtype.has_value());
  EXPECT_TRUE(config.metrics.empty());
}

TEST_F(LoadConfigTest, ChecksWhatBelongsTogether) {
  EXPECT_THAT(Error({"--tls-key", "k"}), HasSubstr("without tls-certificate"));
  EXPECT_THAT(Error({"--tls-client-ca", "c"}), HasSubstr("without TLS"));
  EXPECT_THAT(Error({"--tls-certificate", "c"}), HasSubstr("without tls-key"));
  EXPECT_THAT(Error({"--auth-token-file", "t", "--listen", "0.0.0.0:1"}), HasSubstr("unencrypted"));
  EXPECT_THAT(Error({"--admin-token-file", "t", "--listen", "127.example:1"}),
              HasSubstr("unencrypted"));
  EXPECT_THAT(Error({"--tokens-file", "t", "--listen", "0.0.0.0:1"}), HasSubstr("unencrypted"));
  EXPECT_THAT(Error({"--tokens-file", "t", "--auth-token-file", "t"}), HasSubstr("both set"));
  Load({"--auth-token-file", "t", "--listen", "[::1]:1"});
  Load({"--auth-token-file", "t", "--listen", "0.0.0.0:1", "--tls-key", "k", "--tls-certificate",
        "c"});
}

TEST_F(LoadConfigTest, OthersAreServedOnlyWhereItIsMeant) {
  const std::vector<std::string> tls = {"--tls-key", "k", "--tls-certificate", "c"};
  const auto with_tls = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), tls.begin(), tls.end());
    return arguments;
  };
  EXPECT_THAT(
      Error({"--listen", "0.0.0.0:1"}),
      AllOf(HasSubstr("0.0.0.0:1"), HasSubstr("--tls-certificate"), HasSubstr("--insecure")));
  EXPECT_THAT(Error(with_tls({"--listen", "[::]:1"})),
              AllOf(HasSubstr("anybody"), HasSubstr("--tokens-file"), HasSubstr("--insecure")));
  Load(with_tls({"--listen", "0.0.0.0:1", "--tokens-file", "t"}));
  Load(with_tls({"--listen", "0.0.0.0:1", "--tls-client-ca", "t"}));
  Load({"--listen", "0.0.0.0:1", "--insecure"});
  Load({"--insecure", "--listen", "0.0.0.0:1"});
  Load({"--listen", "0.0.0.0:1", "--insecure", "on", "--tokens-file", "t"});
  Load({"--listen", "0.0.0.0:1"}, {{"ANNULUS_INSECURE", "on"}});
  EXPECT_THAT(Error({"--listen", "0.0.0.0:1", "--insecure", "off"}), HasSubstr("--insecure"));
  EXPECT_THAT(Error({"--insecure=maybe"}), HasSubstr("maybe"));
  Load({"--listen", "0.0.0.0:1", "--check"});  // which listens nowhere
}

TEST_F(LoadConfigTest, OthersReadMetricsOnlyWhereItIsMeant) {
  const std::vector<std::string> tls = {"--metrics", "0.0.0.0:1",         "--tls-key",
                                        "k",         "--tls-certificate", "c"};
  const auto with_tls = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), tls.begin(), tls.end());
    return arguments;
  };
  EXPECT_THAT(Error({"--metrics", "0.0.0.0:1"}),
              AllOf(HasSubstr("metrics: on 0.0.0.0:1 anybody"), HasSubstr("--metrics-tls"),
                    HasSubstr("--insecure")));
  EXPECT_THAT(Error(with_tls({"--metrics-tls"})), HasSubstr("anybody"));
  EXPECT_THAT(Error(with_tls({"--auth-token-file", "t"})), HasSubstr("unencrypted"));
  EXPECT_THAT(Error({"--metrics-tls"}), HasSubstr("set tls-certificate"));
  Load(with_tls({"--metrics-tls", "--auth-token-file", "t"}));
  Load(with_tls({"--metrics-tls", "on", "--admin-token-file", "t"}));
  Load(with_tls({"--metrics-tls", "--tls-client-ca", "t"}));
  Load({"--metrics", "0.0.0.0:1", "--insecure"});
}

TEST_F(LoadConfigTest, ARingOfSeveralProcessesHasACoordinatorAndWorkers) {
  const std::vector<std::string> listens = {"--workers-listen", "127.0.0.1:7000", "--ranks", "2"};
  const std::vector<std::string> joins = {"--join", "127.0.0.1:7000"};
  const auto with = [](std::vector<std::string> flags, const std::vector<std::string>& more) {
    flags.insert(flags.end(), more.begin(), more.end());
    return flags;
  };
  EXPECT_EQ(Load(listens).local_ranks, 1);
  EXPECT_EQ(Load(with(joins, {"--local-ranks", "3", "--worker-name", "a"})).worker_name, "a");
  EXPECT_EQ(Load(joins).metrics, "");
  EXPECT_EQ(Load(with(joins, {"--metrics", "127.0.0.1:9464"})).metrics, "127.0.0.1:9464");
  EXPECT_EQ(Load(listens).metrics, "127.0.0.1:9464");
  EXPECT_THAT(Error(with(listens, joins)), HasSubstr("workers-listen and join are both set"));
  EXPECT_THAT(Error({"--workers-listen", "127.0.0.1:7000"}), HasSubstr("no rank for workers"));
  EXPECT_THAT(Error(with(listens, {"--local-ranks", "2"})), HasSubstr("no rank for workers"));
  EXPECT_THAT(Error(with(listens, {"--local-ranks", "65"})), HasSubstr("1 to 64"));
  EXPECT_THAT(Error(with(listens, {"--worker-name", "a"})), HasSubstr("without join"));
  EXPECT_THAT(Error(with(joins, {"--worker-name", "a b"})), HasSubstr("without spaces"));
  EXPECT_THAT(Error({"--local-ranks", "2"}), HasSubstr("local-ranks is set without"));
  EXPECT_THAT(Error({"--worker-name", "a"}), HasSubstr("worker-name is set without"));
  EXPECT_THAT(Error({"--allow-public-wire"}), HasSubstr("allow-public-wire is set without"));
  EXPECT_EQ(Load(with(listens, {"--replacement-timeout", "5s"})).replacement_timeout.count(), 5000);
  EXPECT_THAT(Error({"--replacement-timeout", "5s"}), HasSubstr("is set without workers-listen"));
  EXPECT_THAT(Error(with(joins, {"--replacement-timeout", "5s"})), HasSubstr("but a worker"));
  EXPECT_EQ(Load(listens).worker_silence.count(), 2000);
  EXPECT_EQ(Load(with(listens, {"--worker-silence", "500ms"})).worker_silence.count(), 500);
  EXPECT_THAT(Error(with(listens, {"--worker-silence", "499ms"})), HasSubstr("500"));
  EXPECT_THAT(Error(with(listens, {"--worker-silence", "601s"})), HasSubstr("worker-silence"));
  EXPECT_THAT(Error(with(listens, {"--worker-silence", "31s"})),
              HasSubstr("exchange-timeout is 30000ms and worker-silence 31000ms"));
  EXPECT_THAT(Error(with(listens, {"--exchange-timeout", "1s"})),
              HasSubstr("raise it, or lower worker-silence"));
  Load(with(listens, {"--exchange-timeout", "1s", "--worker-silence", "1s"}));
  EXPECT_THAT(Error({"--worker-silence", "3s"}), HasSubstr("is set without workers-listen"));
  EXPECT_THAT(Error(with(joins, {"--worker-silence", "3s"})), HasSubstr("but a worker"));
  EXPECT_EQ(Load(listens).tolerated_ranks, 0);
  EXPECT_EQ(Load(with(listens, {"--tolerate", "1"})).tolerated_ranks, 1);
  EXPECT_THAT(Error(with(listens, {"--tolerate", "2"})),
              HasSubstr("tolerate is 2; with ranks 2 and local-ranks 1 it is 0 to 1"));
  EXPECT_THAT(Error({"--workers-listen", "127.0.0.1:7000", "--ranks", "4", "--local-ranks", "3",
                     "--tolerate", "2"}),
              HasSubstr("it is 0 to 1"));
  EXPECT_THAT(Error(with(listens, {"--tolerate", "64"})), HasSubstr("0 to 63"));
  EXPECT_THAT(Error(with(listens, {"--tolerate", "-1"})), HasSubstr("tolerate"));
  EXPECT_THAT(Error({"--tolerate", "1"}),
              HasSubstr("tolerate is set without workers-listen; set that too, or remove it"));
  EXPECT_THAT(Error(with(joins, {"--tolerate", "1"})), HasSubstr("but a worker"));
  EXPECT_THAT(Error(with(listens, {"--kv-disk", "pages", "--kv-disk-size", "1GiB"})),
              HasSubstr("cannot be kept on disk yet"));
  EXPECT_EQ(Load(with(listens, {"--kv-host", "1GiB"})).engine.kv_host_bytes, int64_t{1} << 30);
  EXPECT_THAT(Error(with(listens, {"--kv-host", "1GiB", "--kv-verify", "all"})),
              HasSubstr("it is sample or off"));
  EXPECT_THAT(Error(with(listens, {"--kv-host", "1GiB", "--tolerate", "1"})),
              HasSubstr("tolerate is 1 and kv-host is set"));
  for (const char* option : {"--kv-host", "--kv-disk"}) {
    EXPECT_THAT(Error(with(joins, {option, "1GiB"})), HasSubstr("a worker (join) serves no"));
  }
  EXPECT_THAT(Error(with(joins, {"--ranks", "2"})), HasSubstr("ranks is 2, but a worker"));
  EXPECT_THAT(Error(with(joins, {"--http", "127.0.0.1:1"})), HasSubstr("http is 127.0.0.1:1"));
  EXPECT_THAT(Error(with(joins, {"--device", "cuda"})), HasSubstr("on CPUs only"));
  EXPECT_THAT(Error(with(listens, {"--device", "cuda"})), HasSubstr("on CPUs only"));
}

TEST_F(LoadConfigTest, ProcessesOnOtherMachinesNeedCertificatesOfEachOther) {
  const std::vector<std::string> tls = {"--tls-key", "k", "--tls-certificate", "c"};
  for (const std::vector<std::string>& open :
       {std::vector<std::string>{"--workers-listen", "0.0.0.0:7000", "--ranks", "2"},
        std::vector<std::string>{"--join", "ring.example:7000"}}) {
    const auto with = [&](std::vector<std::string> more) {
      more.insert(more.begin(), open.begin(), open.end());
      return more;
    };
    EXPECT_THAT(Error(with({})),
                AllOf(HasSubstr("which others can reach"), HasSubstr("tls-client-ca")));
    EXPECT_THAT(Error(with({"--insecure"})), HasSubstr("tls-client-ca"));
    EXPECT_THAT(Error(with(tls)), HasSubstr("tls-client-ca"));
    std::vector<std::string> all = tls;
    all.insert(all.end(), {"--tls-client-ca", "a"});
    Load(with(all));
  }
  // Neither does a certificate of one side alone go with 127.0.0.1.
  std::vector<std::string> one_sided = {"--join", "127.0.0.1:7000"};
  one_sided.insert(one_sided.end(), tls.begin(), tls.end());
  EXPECT_THAT(Error(one_sided), HasSubstr("tls-client-ca"));
}

TEST_F(LoadConfigTest, VerboseIsTheLogLevelDebug) {
  EXPECT_EQ(Load({"-v"}).log_level, LogLevel::kDebug);
  EXPECT_EQ(Load({"--insecure", "-v"}, {{"ANNULUS_LOG_LEVEL", "error"}}).log_level,
            LogLevel::kDebug);
  EXPECT_THAT(Error({"-x"}), HasSubstr("unexpected argument"));
}

// The column of the table shows wherever people look for it.
TEST_F(LoadConfigTest, WhatReloadsSaysSo) {
  const std::string manual = ManualText("1");
  for (const Option& option : Options()) {
    SCOPED_TRACE(option.name);
    EXPECT_EQ(option.reloads, std::string(option.name) == "log-level");
    EXPECT_EQ(Explanation(option).find("SIGHUP reads it again") != std::string::npos,
              option.reloads);
  }
  EXPECT_THAT(HelpText(), HasSubstr("SIGHUP reads it again. Default: info."));
  EXPECT_THAT(ConfigText({}), HasSubstr("SIGHUP reads it again."));
  EXPECT_THAT(manual, HasSubstr("SIGHUP reads it again."));
}

TEST_F(LoadConfigTest, TellsWhichOptionsDiffer) {
  const auto texts = [](const std::vector<std::string>& arguments) {
    return LoadConfig(arguments, {})->texts;
  };
  const auto names = [](const std::vector<const Option*>& options) {
    std::vector<std::string> all;
    for (const Option* option : options) all.push_back(option->name);
    return all;
  };
  EXPECT_THAT(names(DifferingOptions(texts({}), texts({"--ranks", "1", "--log-level", "info"}))),
              ::testing::IsEmpty())
      << "defaults that are said";
  EXPECT_THAT(names(DifferingOptions(texts({"--ranks", "2", "-v"}), texts({"--max-waiting", "3"}))),
              ::testing::ElementsAre("ranks", "max-waiting", "log-level"));
}

TEST_F(LoadConfigTest, ActionsAreRecognised) {
  EXPECT_EQ(LoadConfig({"--check", "--model", "m"}, {})->action, Action::kCheck);
  EXPECT_EQ(LoadConfig({"--convert", "--out", "d"}, {})->action, Action::kConvert);
  EXPECT_EQ(LoadConfig({"--help"}, {{"ANNULUS_NONSENSE", "1"}})->action, Action::kHelp);
  EXPECT_EQ(LoadConfig({"--version", "--nonsense"}, {})->action, Action::kVersion);
}

TEST_F(LoadConfigTest, PlansAreForMachinesThatAreNotThere) {
  const auto planned = LoadConfig({"--plan", "--device", "h100-80gb", "--memory", "70GiB"}, {});
  ASSERT_TRUE(planned.ok()) << planned.status();
  EXPECT_EQ(planned->action, Action::kPlan);
  EXPECT_EQ(planned->config.device, DeviceChoice::kNamed);
  EXPECT_EQ(planned->config.planned_gpu, "h100-80gb");
  EXPECT_EQ(planned->config.planned_memory_bytes, size_t{70} << 30);
  EXPECT_THAT(Error({"--device", "h100-80gb"}),
              AllOf(HasSubstr("h100-80gb"), HasSubstr("cpu, cuda and auto")));
  EXPECT_THAT(Error({"--check", "--memory", "1GiB"}), HasSubstr("only --plan uses it"));
  EXPECT_THAT(Error({"--plan", "--device", "abacus"}),
              AllOf(HasSubstr("--device: \"abacus\""), HasSubstr("l40s")));
  EXPECT_THAT(Error({"--plan", "--memory", "1MiB"}), HasSubstr("64 MiB"));
}

TEST_F(LoadConfigTest, OutGoesWithConvert) {
  EXPECT_EQ(Error({"--out", "d"}),
            "out is d, but only --convert uses it; add --convert, or remove it");
  EXPECT_THAT(Error({"--check", "--out", "d"}), HasSubstr("only --convert uses it"));
}

TEST_F(LoadConfigTest, HelpHasExamplesAndFitsATerminal) {
  const std::string help = HelpText();
  EXPECT_THAT(help, HasSubstr("\nExamples:\n  annulusd "));
  for (const absl::string_view line : absl::StrSplit(help, '\n')) EXPECT_LE(line.size(), 100);
}

// The range that a row checks is the one that people read.
TEST_F(LoadConfigTest, HelpHasTheRanges) {
  EXPECT_THAT(HelpText(), HasSubstr("keys and values are spread. From 1 to 64. Default: 1."));
  EXPECT_THAT(ConfigText({}), HasSubstr("keys and values are spread. From 1 to 64.\n#ranks: 1\n"));
  for (const char* text : {"From 1 MiB to 64 TiB. Default: auto.",
                           "From 100ms to 2h. Default: 15s.", "From 1 to 4096. Default: 64."}) {
    EXPECT_THAT(ManualText("1"), HasSubstr(text));
  }
}

TEST_F(LoadConfigTest, HelpListsThePolicies) {
  EXPECT_THAT(HelpText(),
              HasSubstr("\n  strided: the last blocks, and every stride-th block before them "));
}

TEST_F(LoadConfigTest, HelpListsEveryOptionOnce) {
  const std::string help = HelpText();
  std::set<std::string> names;
  for (const Option& option : Options()) {
    EXPECT_TRUE(names.insert(option.name).second) << option.name;
    EXPECT_THAT(help, HasSubstr(std::string("  --") + option.name + " "));
    for (const char* c = option.name; *c != '\0'; ++c) {
      EXPECT_TRUE(std::islower(static_cast<unsigned char>(*c)) || *c == '-') << option.name;
    }
  }
}

TEST_F(LoadConfigTest, TheManualHasEveryOption) {
  EXPECT_EQ(LoadConfig({"--man"}, {{"ANNULUS_NONSENSE", "1"}})->action, Action::kManual);
  const std::string manual = ManualText("1.2");
  EXPECT_THAT(manual, HasSubstr(".TH ANNULUSD 8 \"\" \"annulus 1.2\""));
  for (const Option& option : Options()) {
    const std::string name = absl::StrReplaceAll(option.name, {{"-", "\\-"}});
    EXPECT_THAT(manual, HasSubstr("\n.B \\-\\-" + name + " ")) << option.name;
  }
  EXPECT_EQ(manual.find("\n'"), std::string::npos) << "a request of roff";
}

}  // namespace
}  // namespace annulus::server
