#include "server/config/options.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "kernels/base/dtype.h"
#include "kernels/base/gpu_kinds.h"
#include "kernels/base/status_macros.h"
#include "server/config/value_parsers.h"

namespace annulus {
namespace {

using std::chrono::hours;
using std::chrono::milliseconds;

constexpr size_t kMiB = size_t{1} << 20;
constexpr size_t kGiB = size_t{1} << 30;
constexpr size_t kTiB = size_t{1} << 40;

absl::Status SetInteger(absl::string_view text, int64_t low, int64_t high, int& field) {
  ANNULUS_ASSIGN_OR_RETURN(const int64_t value, ParseInteger(text, low, high));
  field = static_cast<int>(value);
  return absl::OkStatus();
}

// "auto" stands for 0, which the engine takes as "choose yourself".
absl::Status SetIntegerOrAuto(absl::string_view text, int64_t high, int& field) {
  if (text == "auto") {
    field = 0;
    return absl::OkStatus();
  }
  const absl::Status status = SetInteger(text, 1, high, field);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto"));
}

// Percent, as a share.
absl::Status SetShare(absl::string_view text, double& field) {
  ANNULUS_ASSIGN_OR_RETURN(const int64_t percent, ParseInteger(text, 0, 100));
  field = static_cast<double>(percent) / 100;
  return absl::OkStatus();
}

absl::Status SetSize(absl::string_view text, size_t low, size_t high, size_t& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseSize(text, low, high));
  return absl::OkStatus();
}

absl::Status SetDuration(absl::string_view text, milliseconds low, milliseconds high,
                         milliseconds& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseDuration(text, low, high));
  return absl::OkStatus();
}

template <typename T>
absl::Status SetChoice(absl::string_view text, const NamedValues<T>& choices, T& field) {
  ANNULUS_ASSIGN_OR_RETURN(field, ParseChoice(text, choices));
  return absl::OkStatus();
}

absl::Status SetText(absl::string_view text, std::string& field) {
  if (text.find('\0') != absl::string_view::npos) {
    return absl::InvalidArgumentError("a NUL byte is not allowed");
  }
  field = std::string(text);
  return absl::OkStatus();
}

absl::Status SetModel(absl::string_view text, ServerConfig& config) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "an empty name is not allowed: a model directory, "
        "builtin:recall or builtin:recall3");
  }
  return SetText(text, config.engine.model);
}

absl::Status SetServedName(absl::string_view text, ServerConfig& config) {
  bool allowed = text.size() <= 128;
  for (const char c : text) allowed = allowed && absl::ascii_isgraph(c);
  if (!allowed) {
    return absl::InvalidArgumentError(
        "not allowed: at most 128 printable ASCII characters without spaces");
  }
  return SetText(text, config.served_model_name);
}

absl::Status SetMetrics(absl::string_view text, ServerConfig& config) {
  if (text == "off") {
    config.metrics.clear();
    return absl::OkStatus();
  }
  auto address = ParseHostPort(text);
  if (!address.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(address.status().message(), ", or off"));
  }
  config.metrics = *std::move(address);
  return absl::OkStatus();
}

// LoadConfig refuses kinds of GPUs where nothing is only planned.
absl::Status SetDevice(absl::string_view text, ServerConfig& config) {
  if (FindGpuKind(text) != nullptr) {
    config.device = DeviceChoice::kNamed;
    return SetText(text, config.planned_gpu);
  }
  const absl::Status status = SetChoice<DeviceChoice>(
      text,
      {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}},
      config.device);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(
      absl::StrCat(status.message(), ", or with --plan a kind of GPU: ", GpuKindNames()));
}

absl::Status SetMemory(absl::string_view text, ServerConfig& config) {
  if (text == "auto") {
    config.planned_memory_bytes = 0;
    return absl::OkStatus();
  }
  const absl::Status status = SetSize(text, 64 * kMiB, 64 * kTiB, config.planned_memory_bytes);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto"));
}

absl::Status SetKvMemory(absl::string_view text, ServerConfig& config) {
  if (text == "auto") {
    config.engine.kv_memory_bytes = 0;
    return absl::OkStatus();
  }
  const absl::Status status = SetSize(text, kMiB, 64 * kTiB, config.engine.kv_memory_bytes);
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto"));
}

absl::Status SetStallBudget(absl::string_view text, ServerConfig& config) {
  std::optional<milliseconds>& budget = config.engine.stall_budget;
  if (text == "auto" || text == "off") {
    budget = text == "off" ? std::optional(milliseconds(0)) : std::nullopt;
    return absl::OkStatus();
  }
  const absl::Status status = SetDuration(text, milliseconds(1), hours(1), budget.emplace());
  if (status.ok()) return status;
  return absl::InvalidArgumentError(absl::StrCat(status.message(), ", or auto, or off"));
}

absl::Status SetWeightsDtype(absl::string_view text, ServerConfig& config) {
  if (text == "auto") {
    config.engine.weights_dtype.reset();
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(config.engine.weights_dtype, ParseDType(text));
  return absl::OkStatus();
}

std::vector<Option> ModelOptions() {
  return {
      {"model", "DIR|builtin:recall", "builtin:recall",
       "Hugging Face model directory, a built-in demonstration model, or random:CONFIG.json "
       "(random weights of that shape, to measure speed).",
       SetModel},
      {"served-model-name", "NAME", "",
       "What clients call the model; empty: the last part of --model.", SetServedName},
      {"device", "cpu|cuda|auto", "auto",
       "What computes; auto: a GPU that serves the model, else the processor. With --plan also a "
       "kind of GPU, for example h100-80gb.",
       SetDevice},
      {"memory", "SIZE|auto", "auto",
       "With --plan: memory of the machine or of each GPU; auto: what is there, or what such a GPU "
       "has.",
       SetMemory},
      {"numa", "auto|off", "auto",
       "Keep every rank's memory and threads on one memory node (NUMA): auto: where there are "
       "several and as many ranks.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"auto", true}, {"off", false}}, c.numa);
       }},
      {"huge-pages", "auto|off|transparent|explicit", "auto",
       "Huge pages for keys, values, weights and activations: auto: transparent where the machine "
       "has that; off: as the system does by itself; transparent: asked for; explicit: from the "
       "reserved pool (sysctl vm.nr_hugepages).",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<HugePagesChoice>(text,
                                           {{"auto", HugePagesChoice::kAuto},
                                            {"off", HugePagesChoice::kOff},
                                            {"transparent", HugePagesChoice::kTransparent},
                                            {"explicit", HugePagesChoice::kExplicit}},
                                           c.huge_pages);
       }},
      {"ranks", "N", "1", "Ranks of the ring that keys and values are spread over.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 64, c.engine.ranks);
       }},
      {"threads", "T|auto", "auto", "Computing threads of all ranks together.",
       [](absl::string_view text, ServerConfig& c) {
         return SetIntegerOrAuto(text, 4096, c.engine.threads);
       }},
      {"cpu-isa", "LEVEL|auto", "auto",
       "Force the CPU kernels of one level: reference, avx2, avx512, avx512-bf16 or amx, on ARM "
       "reference or neon; auto: the best that the machine has.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<std::string>(text,
                                       {{"auto", ""},
                                        {"reference", "cpu/reference"},
                                        {"avx2", "cpu/avx2"},
                                        {"avx512", "cpu/avx512"},
                                        {"avx512-bf16", "cpu/avx512-bf16"},
                                        {"amx", "cpu/amx"},
                                        {"neon", "cpu/neon"}},
                                       c.engine.kernels);
       }},
      {"weights-dtype", "DTYPE|auto", "auto",
       "How weights are held: f32, bf16, f16, int8, int4_g32, int4_g64, fp8_e4m3, fp8_e5m2, "
       "or, on CPUs, q8_0, q4_0 or q4_1; auto: each matrix as it is stored (float8 in blocks, "
       "MXFP4 "
       "and other types of GGUF files: bf16).",
       SetWeightsDtype},
      {"activations", "float|int8|fp8_e4m3", "float",
       "How layers take their inputs. int8, fp8_e4m3: one scale per token, for weights of the same "
       "dtype, less exact; int8 is faster where the processor has integer dot products (AVX-512 "
       "VNNI, AMX), fp8_e4m3 is for GPUs that multiply it (compute capability 8.9 and up).",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.activations, ParseActivations(text));
         return absl::OkStatus();
       }},
      {"out", "DIR", "", "The new model directory that --convert writes.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.convert_out); }},
      {"kv-dtype", "DTYPE", "f32", "How keys and values are held.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.kv_dtype, ParseDType(text));
         return absl::OkStatus();
       }},
      {"kv-memory", "SIZE|auto", "auto",
       "Memory for keys and values, all ranks together; auto: a quarter of the machine's or "
       "the GPUs', as far as that is free.",
       SetKvMemory},
      {"max-context", "N|auto", "auto",
       "Most tokens of prompt and answer together; auto: the model's own.",
       [](absl::string_view text, ServerConfig& c) {
         return SetIntegerOrAuto(text, 1'000'000'000, c.engine.max_context);
       }},
  };
}

std::vector<Option> SchedulingOptions() {
  return {
      {"page-tokens", "N", "64", "Tokens of one page of keys and values.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<int>(text,
                               {{"16", 16}, {"32", 32}, {"64", 64}, {"128", 128}, {"256", 256}},
                               c.engine.page_tokens);
       }},
      {"chunk-tokens", "N", "2048", "Tokens that one step computes, all ranks together.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 16, 1 << 20, c.engine.chunk_tokens);
       }},
      {"stall-budget", "TIME|off|auto", "auto",
       "The longest that a running answer should wait for its next token while prompts are read "
       "beside it: chunks of prompts are made to fit; auto: 250ms, on GPUs 50ms; off: chunks are "
       "as "
       "large as --chunk-tokens.",
       SetStallBudget},
      {"tokens-per-rank", "N", "2048", "A sequence takes one more rank for each of these.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1'000'000'000, c.engine.tokens_per_rank);
       }},
      {"max-running", "N", "64",
       "Most requests computed at once; those whose clients do not read are not counted.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 4096, c.engine.max_running);
       }},
      {"max-waiting", "N", "256", "Most requests in the queue; more are refused.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1 << 20, c.engine.max_waiting);
       }},
      {"attention", "POLICY", "dense",
       "Attention of requests that name none: NAME or NAME:parameter=value,..; the policies are "
       "listed below. Others for some layers and heads of keys and values follow: "
       "'adaptive; layers=0-1: dense; layers=4,heads=0-3: window:window=4096'.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.attention, ParseAssignment(text));
         return absl::OkStatus();
       }},
      {"attention-gates", "FILE", "",
       "Safetensors file with the gates of the policy learned, as annulus-bench gates writes it.",
       [](absl::string_view text, ServerConfig& c) {
         return SetText(text, c.engine.attention_gates);
       }},
      {"ring-mode", "auto|pass-kv|pass-q", "auto",
       "What circulates: keys and values, or queries; auto: whichever is faster.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingMode>(text,
                                    {{"auto", RingMode::kAuto},
                                     {"pass-kv", RingMode::kPassKv},
                                     {"pass-q", RingMode::kPassQ}},
                                    c.engine.ring_mode);
       }},
      {"ring-transport", "auto|peer|staged|nccl", "auto",
       "How ranks on several GPUs exchange: copies from memory to memory, through the host's "
       "memory, or NCCL; auto: the first of peer, nccl, staged that there is.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<RingTransport>(text,
                                         {{"auto", RingTransport::kAuto},
                                          {"peer", RingTransport::kPeer},
                                          {"staged", RingTransport::kStaged},
                                          {"nccl", RingTransport::kNccl}},
                                         c.engine.ring_transport);
       }},
      {"device-graphs", "auto|off", "auto",
       "Launches of a step that decodes go to a GPU together, as a graph; off: one by one.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"auto", true}, {"off", false}}, c.engine.device_graphs);
       }},
      {"speculate", "auto|ngram|off", "auto",
       "ngram: of requests that do not say, guess tokens ahead from the request's own text, what "
       "followed the same words before; guesses are checked together, so answers that quote their "
       "documents come sooner, and no answer changes; auto: ngram, on GPUs off.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<std::optional<Speculation>>(
             text,
             {{"auto", std::nullopt}, {"ngram", Speculation::kNgram}, {"off", Speculation::kOff}},
             c.engine.speculation);
       }},
      {"profile", "FILE", "",
       "Measured rates for --ring-mode auto: read if FILE exists, else measured at start and "
       "written "
       "there; empty: measured at every start.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.profile); }},
      {"max-pinned", "PERCENT", "50",
       "Most of the memory for keys and values that pinned documents take; 0: none can be pinned.",
       [](absl::string_view text, ServerConfig& c) { return SetShare(text, c.engine.max_pinned); }},
      {"max-pinned-by-tenant", "PERCENT", "25", "The same of each tenant's.",
       [](absl::string_view text, ServerConfig& c) {
         return SetShare(text, c.engine.max_pinned_by_tenant);
       }},
      {"kv-disk", "DIR", "",
       "Folder of this daemon's own where keys and values of prompts are kept, so that they are "
       "not computed again after a restart; needs --kv-disk-size. What users sent can be read from "
       "it, until they delete the document or other pages take its place. CPUs only; empty: none.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.engine.kv_disk); }},
      {"kv-disk-size", "SIZE", "0", "Most that the files of --kv-disk take.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         size_t bytes = 0;
         ANNULUS_RETURN_IF_ERROR(SetSize(text, 0, 64 * kTiB, bytes));
         c.engine.kv_disk_bytes = static_cast<int64_t>(bytes);
         return absl::OkStatus();
       }},
      {"kv-verify", "sample|off|all", "sample",
       "Whether keys and values from --kv-disk are held against what computing gives: the last "
       "page of each text that comes back; none; or all pages, for which prompts are computed as "
       "if there were no disk. What is found to differ is not used, and goes.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<KvVerify>(
             text,
             {{"sample", KvVerify::kSample}, {"off", KvVerify::kOff}, {"all", KvVerify::kAll}},
             c.engine.kv_verify);
       }},
      {"exchange-timeout", "TIME", "30s",
       "Longest wait of a rank for another; for its GPU half as long again.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(1), c.engine.exchange_timeout);
       }},
      {"slow-reader-timeout", "TIME", "30s",
       "A client that reads none of its answer for so long is cut off.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(10), hours(24), c.engine.slow_reader_timeout);
       }},
  };
}

std::vector<Option> ServiceOptions() {
  return {
      {"listen", "HOST:PORT", "127.0.0.1:50051", "Address of the gRPC services.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.listen, ParseHostPort(text));
         return absl::OkStatus();
       }},
      {"max-connections", "N", "1024", "Most gRPC connections at once; more are closed at once.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 1, 1'000'000, c.max_connections);
       }},
      {"keepalive-time", "TIME", "15s",
       "A gRPC connection silent for so long must give a sign of life, and soon, or is closed.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(100), hours(2), c.keepalive_time);
       }},
      {"metrics", "HOST:PORT|off", "127.0.0.1:9464", "Address of the Prometheus endpoint.",
       SetMetrics},
      {"metrics-tls", "on|off", "off",
       "Serve metrics and probes over HTTPS, with --tls-certificate and --tls-key. With "
       "--tls-client-ca scrapers may show a certificate instead of a token.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"on", true}, {"off", false}}, c.metrics_tls);
       },
       /*bare=*/true},
      {"tls-certificate", "FILE", "", "PEM chain of the server; with --tls-key turns TLS on.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_certificate); }},
      {"tls-key", "FILE", "", "PEM key that belongs to --tls-certificate.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_key); }},
      {"tls-client-ca", "FILE", "",
       "PEM certificates of who signs clients' certificates: every client must have one (mutual "
       "TLS), and --tokens-file can tell tenants by them.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tls_client_ca); }},
      {"auth-token-file", "FILE", "", "Clients must send its first line as a bearer token.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.auth_token_file); }},
      {"insecure", "on|off", "off",
       "Serve on an address that others than this machine reach although there is no TLS, or "
       "callers need no token or certificate. For networks where only those you trust are.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"on", true}, {"off", false}}, c.insecure);
       },
       /*bare=*/true},
      {"tokens-file", "FILE", "",
       "YAML file of tenants: hashes of their tokens, names of their certificates, roles and "
       "quotas. Instead of --auth-token-file; server/identity/README.md has its form.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.tokens_file); }},
      {"admin-token-file", "FILE", "",
       "AdminService.Drain needs its first line as the bearer token; empty: callers on this "
       "machine "
       "may drain, others may not. Behind a proxy, set it.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.admin_token_file); }},
      {"max-message-size", "SIZE", "16MiB", "Largest gRPC message, either way.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 64 << 10, kGiB, c.max_message_bytes);
       }},
      {"max-document-size", "SIZE", "1GiB", "Largest uploaded document, as UTF-8.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 1, 64 * kGiB, c.max_document_bytes);
       }},
      {"max-documents", "N", "10000", "Most uploaded documents.",
       [](absl::string_view text, ServerConfig& c) {
         return SetInteger(text, 0, 10'000'000, c.max_documents);
       }},
      {"max-documents-memory", "SIZE", "1GiB", "Memory for all uploaded documents together.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 0, 64 * kTiB, c.max_documents_memory);
       }},
      {"max-prompts-memory", "SIZE", "1GiB",
       "Memory of all calls under way: requests as sent and decoded, their token ids, unary "
       "answers.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, kMiB, 64 * kTiB, c.max_prompts_memory);
       }},
      {"attach-window", "TIME", "10m",
       "How long a complete answer stays for calls with the same request_id; 0s: not at all.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(0), hours(24), c.attach_window);
       }},
      {"max-replay-memory", "SIZE", "64MiB",
       "Memory for answers to requests with a request_id. When it is full, the tenant that takes "
       "most loses its oldest complete answer that nobody reads, then keeps its largest running "
       "one no longer.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSize(text, 0, 64 * kTiB, c.max_replay_memory);
       }},
      {"upload-timeout", "TIME", "60s",
       "An upload that sends nothing for so long, or hardly anything, is cut off; so is a "
       "connection "
       "with a call whose message does not come.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(100), hours(24), c.upload_timeout);
       }},
      {"grace-time", "TIME", "30s",
       "How long admitted requests may go on when the server stops; it has ended 3 s later.",
       [](absl::string_view text, ServerConfig& c) {
         return SetDuration(text, milliseconds(0), hours(24), c.grace_time);
       }},
      {"log-format", "text|json", "text",
       "How a line of the log is written: words, or an object of JSON with the same keys.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<LogFormat>(text, {{"text", LogFormat::kText}, {"json", LogFormat::kJson}},
                                     c.log_format);
       }},
      {"log-level", "debug|info|warning|error", "info", "Least severity that is logged.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<LogLevel>(text,
                                    {{"debug", LogLevel::kDebug},
                                     {"info", LogLevel::kInfo},
                                     {"warning", LogLevel::kWarning},
                                     {"error", LogLevel::kError}},
                                    c.log_level);
       },
       /*bare=*/false, /*reloads=*/true},
  };
}

std::vector<Option> AllOptions() {
  std::vector<Option> all;
  for (const auto& group : {ModelOptions(), SchedulingOptions(), ServiceOptions()}) {
    all.insert(all.end(), group.begin(), group.end());
  }
  return all;
}

}  // namespace

const std::vector<Option>& Options() {
  static const std::vector<Option> kOptions = AllOptions();
  return kOptions;
}

std::string TextOf(const OptionTexts& texts, const Option& option) {
  const auto found = texts.find(&option);
  return found == texts.end() ? option.default_value : found->second;
}

std::vector<const Option*> DifferingOptions(const OptionTexts& one, const OptionTexts& other) {
  std::vector<const Option*> differing;
  for (const Option& option : Options()) {
    if (TextOf(one, option) != TextOf(other, option)) differing.push_back(&option);
  }
  return differing;
}

std::string Explanation(const Option& option) {
  return absl::StrCat(option.help, option.reloads ? " SIGHUP reads it again." : "");
}

std::string YamlKey(const Option& option) { return absl::StrReplaceAll(option.name, {{"-", "_"}}); }

std::string VariableName(const Option& option) {
  return absl::StrCat("ANNULUS_", absl::AsciiStrToUpper(YamlKey(option)));
}

}  // namespace annulus
