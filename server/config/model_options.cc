// What computes, from what model, and how.

#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/dtype.h"
#include "kernels/base/gpu_kinds.h"
#include "server/config/option_setters.h"

namespace annulus::server {
namespace {

absl::Status SetModel(absl::string_view text, ServerConfig& config) {
  if (text.empty()) {
    return absl::InvalidArgumentError(
        "\"\" is not allowed: a GGUF file, a model directory, builtin:recall or builtin:recall3");
  }
  return SetText(text, config.engine.model);
}

absl::Status SetServedName(absl::string_view text, ServerConfig& config) {
  bool allowed = text.size() <= 128;
  for (const char c : text) allowed = allowed && absl::ascii_isgraph(c);
  if (!allowed) {
    return absl::InvalidArgumentError(
        absl::StrCat(QuoteValue(text),
                     " is not allowed: at most 128 printable ASCII characters without spaces"));
  }
  return SetText(text, config.served_model_name);
}

// Also accepts kinds of GPUs; LoadConfig rejects these without --plan.
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

absl::Status SetWeightsDtype(absl::string_view text, ServerConfig& config) {
  if (text == "auto") {
    config.engine.weights_dtype.reset();
    return absl::OkStatus();
  }
  ANNULUS_ASSIGN_OR_RETURN(config.engine.weights_dtype, ParseDType(text));
  return absl::OkStatus();
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
       SetModel},
      {"served-model-name", "NAME", "",
       "What clients call the model; empty: the last part of --model.", SetServedName},
      {"device", "cpu|cuda|auto", "auto",
       "What computes; auto: a GPU that can serve the model, else the processor. With --plan also "
       "a kind of GPU, for example h100-80gb.",
       SetDevice},
      {"memory", "SIZE|auto", "auto",
       "With --plan: memory of the machine or of each GPU; auto: that of this machine, or of that "
       "kind of GPU.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSizeOrAuto(text, 64 * kMiB, 64 * kTiB, c.planned_memory_bytes);
       }},
      {"numa", "auto|off", "auto",
       "Keep the memory and threads of each rank on one NUMA node; auto: if the machine has "
       "several nodes, and at least as many ranks.",
       [](absl::string_view text, ServerConfig& c) {
         return SetChoice<bool>(text, {{"auto", true}, {"off", false}}, c.numa);
       }},
      {"huge-pages", "auto|off|transparent|explicit", "auto",
       "Huge pages for keys, values, weights and activations. auto: transparent if the machine "
       "has them; off: leave it to the system; transparent: ask the system for them; explicit: "
       "take them from the reserved pool (sysctl vm.nr_hugepages).",
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
         return SetKernels(text, "cpu/",
                           {{"auto", ""},
                            {"reference", "cpu/reference"},
                            {"avx2", "cpu/avx2"},
                            {"avx512", "cpu/avx512"},
                            {"avx512-bf16", "cpu/avx512-bf16"},
                            {"amx", "cpu/amx"},
                            {"neon", "cpu/neon"}},
                           c);
       }},
      {"gpu-kernels", "NAME|auto", "auto",
       "Force the GPU kernels sm80 or sm90 (compute capability 9.0 alone), or sm80-invariant or "
       "sm90-invariant: with these an answer has the same tokens and bits on every ring, alone or "
       "batched, cached or not, and they are slower; auto: the fastest.",
       [](absl::string_view text, ServerConfig& c) {
         return SetKernels(text, "cuda/",
                           {{"auto", ""},
                            {"sm80", "cuda/sm80"},
                            {"sm90", "cuda/sm90"},
                            {"sm80-invariant", "cuda/sm80-invariant"},
                            {"sm90-invariant", "cuda/sm90-invariant"}},
                           c);
       }},
      {"weights-dtype", "DTYPE|auto", "auto",
       "How weights are held: f32, bf16, f16, int8, int4_g32, int4_g64, fp8_e4m3, fp8_e5m2, "
       "or, on CPUs, q8_0, q4_0 or q4_1; auto: each matrix as it is stored (float8 in blocks, "
       "MXFP4 "
       "and other types of GGUF files: bf16).",
       SetWeightsDtype},
      {"activations", "float|int8|fp8_e4m3", "float",
       "How layers take their inputs. int8, fp8_e4m3: one scale per token, less exact; int8 is for "
       "integer weights (int8, int4_g32, int4_g64, q8_0, q4_0, q4_1), and reads prompts faster "
       "where the processor has integer dot products (AVX-512 VNNI, AMX); fp8_e4m3 is for weights "
       "in fp8_e4m3 on GPUs that multiply it (compute capability 8.9 and up).",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.activations, ParseActivations(text));
         return absl::OkStatus();
       }},
      {"out", "DIR", "", "The new model directory that --convert writes.",
       [](absl::string_view text, ServerConfig& c) { return SetText(text, c.convert_out); }},
      {"kv-dtype", "DTYPE", "f32",
       "Type in which keys and values are stored: f32, bf16, f16, int8, fp8_e4m3 or fp8_e5m2.",
       [](absl::string_view text, ServerConfig& c) -> absl::Status {
         ANNULUS_ASSIGN_OR_RETURN(c.engine.kv_dtype, ParseDType(text));
         return absl::OkStatus();
       }},
      {"kv-memory", "SIZE|auto", "auto",
       "Memory for keys and values, all ranks together; auto: a quarter of the machine's or "
       "the GPUs', as far as that is free.",
       [](absl::string_view text, ServerConfig& c) {
         return SetSizeOrAuto(text, kMiB, 64 * kTiB, c.engine.kv_memory_bytes);
       }},
      {"max-context", "N|auto", "auto",
       "Most tokens of prompt and answer together; auto: the model's own.",
       [](absl::string_view text, ServerConfig& c) {
         return SetIntegerOrAuto(text, 1'000'000'000, c.engine.max_context);
       }},
  };
}

}  // namespace annulus::server
