#include "server/process/process_metrics.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::server {
namespace {

std::string ReadAll(const char* path) {
  std::ifstream file(path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

std::optional<double> Number(absl::string_view text) {
  double value = 0;
  if (!absl::SimpleAtod(text, &value)) return std::nullopt;
  return value;
}

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
}

std::optional<double> CpuSeconds() {
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) != 0) return std::nullopt;
  return Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
}

// Memory from field `which` of statm, which counts pages. 0: the address space; 1: the resident
// part.
std::optional<double> MemoryBytes(size_t which) {
  const std::vector<std::string> pages = absl::StrSplit(ReadAll("/proc/self/statm"), ' ');
  const std::optional<double> count = which < pages.size() ? Number(pages[which]) : std::nullopt;
  if (!count) return std::nullopt;
  return *count * static_cast<double>(sysconf(_SC_PAGESIZE));
}

std::optional<double> OpenDescriptors() {
  std::error_code error;
  const std::filesystem::directory_iterator all("/proc/self/fd", error);
  if (error) return std::nullopt;
  return std::distance(begin(all), end(all)) - 1;  // without the descriptor that reads the folder
}

std::optional<double> MostDescriptors() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return std::nullopt;
  return static_cast<double>(limit.rlim_cur);
}

// The system's boot time plus the start of the process after it (proc(5): stat, field 22).
std::optional<double> StartTime() {
  constexpr size_t kFieldsAfterName = 19;  // from the third, the state, to the 22nd
  const std::string stat = ReadAll("/proc/self/stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  const std::vector<std::string> fields =
      absl::StrSplit(absl::string_view(stat).substr(name_end + 1), ' ', absl::SkipEmpty());
  if (fields.size() <= kFieldsAfterName) return std::nullopt;
  const std::optional<double> ticks = Number(fields[kFieldsAfterName]);
  for (absl::string_view line : absl::StrSplit(ReadAll("/proc/stat"), '\n')) {
    if (!absl::ConsumePrefix(&line, "btime ")) continue;
    const std::optional<double> boot = Number(line);
    if (!ticks || !boot) return std::nullopt;
    return *boot + *ticks / static_cast<double>(sysconf(_SC_CLK_TCK));
  }
  return std::nullopt;
}

}  // namespace

std::vector<MetricFamily> ProcessMetrics() {
  using Type = MetricFamily::Type;
  std::vector<MetricFamily> families;
  const auto add = [&](const char* name, const char* help, Type type, std::optional<double> value) {
    if (!value) return;
    MetricSample sample;
    sample.value = *value;
    families.push_back({name, help, type, {std::move(sample)}});
  };
  add("process_cpu_seconds_total", "CPU time of all threads, in seconds.", Type::kCounter,
      CpuSeconds());
  add("process_virtual_memory_bytes", "Address space of the process.", Type::kGauge,
      MemoryBytes(0));
  add("process_resident_memory_bytes", "Resident memory of the process.", Type::kGauge,
      MemoryBytes(1));
  add("process_open_fds", "Open file descriptors.", Type::kGauge, OpenDescriptors());
  add("process_max_fds", "Largest number of open file descriptors allowed.", Type::kGauge,
      MostDescriptors());
  add("process_start_time_seconds", "Start time of the process, in seconds since 1970.",
      Type::kGauge, StartTime());
  return families;
}

}  // namespace annulus::server
