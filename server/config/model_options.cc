// What computes, from what model, and how.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/dtype.h"
#include "kernels/base/gpu_kinds.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

absl::StatusOr<std::string> ParseModel(absl::string_view text) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "\"\" is not allowed: a GGUF file, a model directory, builtin:recall or builtin:recall3");
  }
  return ParseText(text);
}

absl::StatusOr<std::string> ParseServedName(absl::string_view text) {
  bool allowed = text.size() <= 128;
  for (const char c : text) allowed = allowed && absl::ascii_isgraph(c);
  if (!allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text),
                     " is not allowed: at most 128 printable ASCII characters without spaces"));
  }
  return ParseText(text);
}

// Also accepts kinds of GPUs; LoadConfig rejects these without --plan.
absl::Status SetDevice(absl::string_view text, ServerConfig& config) {
  if (FindGpuKind(text) != nullptr) {
    config.device = DeviceChoice::kNamed;
    config.planned_gpu = std::string(text);
    return absl::OkStatus();
  }
  const absl::StatusOr<DeviceChoice> device = ParseChoice<DeviceChoice>(
      text,
      {{"auto", DeviceChoice::kAuto}, {"cpu", DeviceChoice::kCpu}, {"cuda", DeviceChoice::kCuda}});
  if (!device.ok()) {
    return absl::InvalidArgumentError(absl::StrCat(
        device.status().message(), ", or with --plan a kind of GPU: ", GpuKindNames()));
  }
  config.device = *device;
  return absl::OkStatus();
}

absl::StatusOr<std::optional<DType>> ParseDTypeOrAuto(absl::string_view text) {
  if (text == "auto") return std::nullopt;
  return ParseDType(text);
}

// `prefix`: what tables of the option's device begin with. With auto, what was set for another
// device stays.
absl::Status SetKernels(absl::string_view text, absl::string_view prefix,
                        const NamedValues<std::string>& choices, ServerConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string kernels, ParseChoice(text, choices));
  const bool own = absl::StartsWith(config.engine.kernels, prefix);
  if (!kernels.empty() || own) config.engine.kernels = kernels;
  return absl::OkStatus();
}

}  // namespace

std::vector<Option> ModelOptions() {
  return {
      {"model", "DIR|FILE.gguf|builtin:recall", "builtin:recall",
       "Hugging Face model directory, a GGUF file or a folder with one, a built-in demonstration "
       "model, or random:CONFIG.json (random weights of that shape, to measure speed).",
       Into(&EngineOptions::model, ParseModel)},
      {"served-model-name", "NAME", "",
       "What clients call the model; empty: the last part of --model.",
       Into(&ServerConfig::served_model_name, ParseServedName)},
      {"device", "cpu|cuda|auto", "auto",
       "What computes; auto: a GPU that can serve the model, else the processor. With --plan also "
       "a kind of GPU, for example h100-80gb.",
       OptionValue{SetDevice}},
      {"memory", "SIZE|auto", "auto",
       "With --plan: memory of the machine or of each GPU; auto: that of this machine, or of that "
       "kind of GPU.",
       WithinOrAuto(&ServerConfig::planned_memory_bytes, 64 * kMiB, 64 * kTiB)},
      {"numa", "auto|off", "auto",
       "Keep the memory and threads of each rank on one NUMA node; auto: if the machine has "
       "several nodes, and at least as many ranks.",
       OneOf(&ServerConfig::numa, {{"auto", true}, {"off", false}})},
      {"huge-pages", "auto|off|transparent|explicit", "auto",
       "Huge pages for keys, values, weights and activations. auto: transparent if the machine "
       "has them; off: leave it to the system; transparent: ask the system for them; explicit: "
       "take them from the reserved pool (sysctl vm.nr_hugepages).",
       OneOf(&ServerConfig::huge_pages, {{"auto", HugePagesChoice::kAuto},
                                         {"off", HugePagesChoice::kOff},
                                         {"transparent", HugePagesChoice::kTransparent},
                                         {"explicit", HugePagesChoice::kExplicit}})},
      {"ranks", "N", "1", "Ranks of the ring that keys and values are spread over.",
       Within(&EngineOptions::ranks, 1, 64)},
      {"threads", "T|auto", "auto", "Computing threads of all ranks together.",
       WithinOrAuto(&EngineOptions::threads, 1, 4096)},
      {"cpu-isa", "LEVEL|auto", "auto",
       "Force the CPU kernels of one level: reference, avx2, avx512, avx512-bf16 or amx, on ARM "
       "reference or neon; auto: the best that the machine has.",
       OptionValue{[](absl::string_view text, ServerConfig& c) {
         return SetKernels(text, "cpu/",
                           {{"auto", ""},
                            {"reference", "cpu/reference"},
                            {"avx2", "cpu/avx2"},
                            {"avx512", "cpu/avx512"},
                            {"avx512-bf16", "cpu/avx512-bf16"},
                            {"amx", "cpu/amx"},
                            {"neon", "cpu/neon"}},
                           c);
       }}},
      {"gpu-kernels", "NAME|auto", "auto",
       "Force the GPU kernels sm80 or sm90 (compute capability 9.0 alone), or sm80-invariant or "
       "sm90-invariant: with these an answer has the same tokens and bits on every ring, alone or "
       "batched, cached or not, and they are slower; auto: the fastest.",
       OptionValue{[](absl::string_view text, ServerConfig& c) {
         return SetKernels(text, "cuda/",
                           {{"auto", ""},
                            {"sm80", "cuda/sm80"},
                            {"sm90", "cuda/sm90"},
                            {"sm80-invariant", "cuda/sm80-invariant"},
                            {"sm90-invariant", "cuda/sm90-invariant"}},
                           c);
       }}},
      {"weights-dtype", "DTYPE|auto", "auto",
       "How weights are held: f32, bf16, f16, int8, int4_g32, int4_g64, fp8_e4m3, fp8_e5m2, "
       "or, on CPUs, q8_0, q4_0 or q4_1; auto: each matrix as it is stored (float8 in blocks, "
       "MXFP4 "
       "and other types of GGUF files: bf16).",
       Into(&EngineOptions::weights_dtype, ParseDTypeOrAuto)},
      {"activations", "float|int8|fp8_e4m3", "float",
       "How layers take their inputs. int8, fp8_e4m3: one scale per token, less exact; int8 is for "
       "integer weights (int8, int4_g32, int4_g64, q8_0, q4_0, q4_1), and reads prompts faster "
       "where the processor has integer dot products (AVX-512 VNNI, AMX); fp8_e4m3 is for weights "
       "in fp8_e4m3 on GPUs that multiply it (compute capability 8.9 and up).",
       Into(&EngineOptions::activations, ParseActivations)},
      {"out", "DIR", "", "The new model directory that --convert writes.",
       Into(&ServerConfig::convert_out, ParseText)},
      {"kv-dtype", "DTYPE|auto", "auto",
       "Type in which keys and values are stored: f32, bf16, f16, int8, fp8_e4m3 or fp8_e5m2; "
       "auto: f32 for weights held in f32, else bf16.",
       Into(&EngineOptions::kv_dtype, ParseDTypeOrAuto)},
      {"kv-memory", "SIZE|auto", "auto",
       "Memory for keys and values, all ranks together; auto: a quarter of the machine's or "
       "the GPUs', as far as that is free.",
       WithinOrAuto(&EngineOptions::kv_memory_bytes, kMiB, 64 * kTiB)},
      {"max-context", "N|auto", "auto",
       "Most tokens of prompt and answer together; auto: the model's own.",
       WithinOrAuto(&EngineOptions::max_context, 1, 1'000'000'000)},
  };
}

}  // namespace annulus::server
