// What computes, and on which devices.

#include <string>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "kernels/base/gpu_kinds.h"
#include "server/config/option_rows.h"

namespace annulus::server {
namespace {

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

// `prefix`: prefix of the names of the device's kernel tables. With auto, a value set for another
// device stays.
absl::Status SetKernels(absl::string_view text, absl::string_view prefix,
                        const NamedValues<std::string>& choices, ServerConfig& config) {
  ANNULUS_ASSIGN_OR_RETURN(const std::string kernels, ParseChoice(text, choices));
  const bool own = absl::StartsWith(config.engine.kernels, prefix);
  if (!kernels.empty() || own) config.engine.kernels = kernels;
  return absl::OkStatus();
}

}  // namespace

std::vector<Option> DeviceOptions() {
  return {
      {"served-model-name", "NAME", "",
       "Model name that clients use; empty: the last path component of --model.",
       Into(&ServerConfig::served_model_name, ParseServedName)},
      {"device", "cpu|cuda|auto", "auto",
       "Device to compute on; auto: a GPU that can serve the model, else the CPU. With --plan also "
       "a GPU type, for example h100-80gb.",
       OptionValue{SetDevice}},
      {"memory", "SIZE|auto", "auto",
       "With --plan: memory of the machine or of each GPU; auto: that of this machine, or of the "
       "GPU type given by --device.",
       WithinOrAuto(&ServerConfig::planned_memory_bytes, 64 * kMiB, 64 * kTiB)},
      {"numa", "auto|off", "auto",
       "Keep the memory and threads of each rank on one NUMA node; auto: if the machine has "
       "several nodes and there are at least as many ranks.",
       OneOf(&ServerConfig::numa, {{"auto", true}, {"off", false}})},
      {"huge-pages", "auto|off|transparent|explicit", "auto",
       "Huge pages for keys, values, weights and activations. auto: transparent if the system "
       "supports them; off: leave it to the system; transparent: request transparent huge pages "
       "(madvise); explicit: take them from the reserved pool (sysctl vm.nr_hugepages).",
       OneOf(&ServerConfig::huge_pages, {{"auto", HugePagesChoice::kAuto},
                                         {"off", HugePagesChoice::kOff},
                                         {"transparent", HugePagesChoice::kTransparent},
                                         {"explicit", HugePagesChoice::kExplicit}})},
      {"cpu-isa", "LEVEL|auto", "auto",
       "CPU kernels to use: reference, avx2, avx512, avx512-bf16 or amx; on ARM reference or neon; "
       "auto: the fastest that the CPU supports.",
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
       "GPU kernels to use: sm80, sm90 (compute capability 9.0 only), sm80-invariant or "
       "sm90-invariant. With the invariant ones, which are slower, an answer has the same tokens "
       "and bits on every ring, alone or batched, cached or not; auto: the fastest.",
       OptionValue{[](absl::string_view text, ServerConfig& c) {
         return SetKernels(text, "cuda/",
                           {{"auto", ""},
                            {"sm80", "cuda/sm80"},
                            {"sm90", "cuda/sm90"},
                            {"sm80-invariant", "cuda/sm80-invariant"},
                            {"sm90-invariant", "cuda/sm90-invariant"}},
                           c);
       }}},
      {"out", "DIR", "", "The new model directory that --convert writes.",
       Into(&ServerConfig::convert_out, ParseText)},
  };
}

}  // namespace annulus::server
