#include "bench/flags.h"

#include <map>

#include "bench/report/ring_mode.h"
#include "kernels/cpu/host/host_limits.h"

namespace annulus::bench {
namespace {

std::string Text(absl::string_view text) { return std::string(text); }

AttentionPolicy PolicyOrThrow(const char* flag, const std::string& text) {
  const auto policy = ParsePolicy(text);
  if (!policy.ok()) throw CLI::ValidationError(flag, Text(policy.status().message()));
  return *policy;
}

}  // namespace

void AddDType(CLI::App& command, const char* flag, std::function<void(DType)> set,
              const char* help) {
  command
      .add_option_function<std::string>(
          flag,
          [flag, set = std::move(set)](const std::string& name) {
            const auto dtype = ParseDType(name);
            if (!dtype.ok()) throw CLI::ValidationError(flag, Text(dtype.status().message()));
            set(*dtype);
          },
          help)
      ->type_name("DTYPE");
}

void AddDTypes(CLI::App& command, const char* flag, std::vector<DType>& values, const char* help) {
  command
      .add_option_function<std::vector<std::string>>(
          flag,
          [flag, &values](const std::vector<std::string>& names) {
            for (const std::string& name : names) {
              const auto dtype = ParseDType(name);
              if (!dtype.ok()) throw CLI::ValidationError(flag, Text(dtype.status().message()));
              values.push_back(*dtype);
            }
          },
          help)
      ->delimiter(',')
      ->type_name("DTYPE");
}

void AddActivations(CLI::App& command, Activations& activations) {
  command
      .add_option_function<std::string>(
          "--activations",
          [&activations](const std::string& name) {
            const auto parsed = ParseActivations(name);
            if (!parsed.ok()) {
              throw CLI::ValidationError("--activations", Text(parsed.status().message()));
            }
            activations = *parsed;
          },
          "Form of the inputs of layers: float (default) or, with weights of the same dtype, int8 "
          "or fp8_e4m3")
      ->type_name("NAME");
}

void AddRingMode(CLI::App& command, RingMode& mode) {
  const std::map<std::string, RingMode> modes(kRingModes.begin(), kRingModes.end());
  command.add_option("--ring-mode", mode, "auto, pass-kv or pass-q (default: auto)")
      ->type_name("MODE")
      ->transform(CLI::CheckedTransformer(modes).description(""));
}

void AddPeakChoice(CLI::App& command, std::optional<PeakKind>& peak) {
  command
      .add_option_function<std::string>(
          "--peak",
          [&peak](const std::string& name) {
            const auto kind = ParsePeak(name);
            if (!kind.ok()) throw CLI::ValidationError("--peak", Text(kind.status().message()));
            peak = *kind;
          },
          "Ceiling that fractions refer to (default: the fastest for the dtype)")
      ->type_name("NAME");
}

void AddParallelism(CLI::App& command, int& ranks, int& threads) {
  command.add_option("--ranks", ranks, "Ranks in this process")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  AddThreads(command, threads);
}

void AddThreads(CLI::App& command, int& threads) {
  command
      .add_option("--threads", threads,
                  "Threads of all ranks together (default: all that the process may use)")
      ->check(CLI::Range(1, 256));
}

int ThreadsOrAll(int threads) { return threads > 0 ? threads : ReadHostLimits().threads; }

void AddPolicy(CLI::App& command, AttentionPolicy& policy) {
  command
      .add_option_function<std::string>(
          "--attention",
          [&policy](const std::string& text) { policy = PolicyOrThrow("--attention", text); },
          "Attention policy, NAME or NAME:PARAMETER=VALUE,... (default: dense)")
      ->type_name("POLICY");
}

void AddPolicies(CLI::App& command, std::vector<AttentionPolicy>& policies) {
  command
      .add_option_function<std::vector<std::string>>(
          "--policy",
          [&policies](const std::vector<std::string>& texts) {
            for (const std::string& text : texts) {
              policies.push_back(PolicyOrThrow("--policy", text));
            }
          },
          "Policies to compare with dense, NAME or NAME:PARAMETER=VALUE,..., separated by blanks")
      ->type_name("POLICY");
}

void AddRepeat(CLI::App& command, int& repeat) {
  command.add_option("--repeat", repeat, "Runs per row; figures are medians")
      ->take_last()
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
}

void AddOutputFlags(CLI::App& command, RowOutput& output, std::ofstream& json_copy) {
  const auto add = [&](const char* flag, RowOutput::Format format, const char* help) {
    return command.add_flag_callback(
        flag, [&output, format] { output.format = format; }, help);
  };
  add("--json", RowOutput::Format::kJson, "Print one JSON object per row")
      ->excludes(add("--markdown", RowOutput::Format::kMarkdown, "Print tables in Markdown"));
  command
      .add_option_function<std::string>(
          "--json-file",
          [&output, &json_copy](const std::string& path) {
            json_copy.open(path, std::ios::app);
            if (!json_copy) {
              throw CLI::ValidationError("--json-file", "cannot be written: " + path);
            }
            output.json_copy = &json_copy;
          },
          "Also append rows to this file, as JSON")
      ->type_name("FILE");
}

void AddCounts(CLI::App& command, const char* flag, std::vector<int32_t>& values, int32_t low,
               int32_t high, const char* help) {
  CLI::Option* const option = command.add_option(flag, values, help)
                                  ->delimiter(',')
                                  ->type_name("N,...")
                                  ->check(CLI::Range(low, high).description(""));
  if (!values.empty()) option->capture_default_str();
}

}  // namespace annulus::bench
