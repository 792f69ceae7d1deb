#include "server/command/doctor.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "kernels/base/format_bytes.h"
#include "server/config/plain_file.h"
#include "server/config/value_parsers.h"
#include "server/net/connection_acceptor.h"
#include "server/process/thread_reserve.h"

namespace annulus::server {
namespace {

using Verdict = Finding::Verdict;

// How much of the model's largest file to read: enough to measure a rate, and about a second for a
// slow disk.
constexpr size_t kReadBytes = size_t{128} << 20;
constexpr double kSlowDisk = 200e6;  // bytes a second
constexpr uint64_t kLeastMemory = uint64_t{1} << 30;
constexpr size_t kLongestConfig = size_t{16} << 20;

std::string ReadText(const std::string& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return std::string(absl::StripAsciiWhitespace(text.str()));
}

// The value of "name: value" in a text of such lines; empty if there is none.
std::string ValueIn(const std::string& text, absl::string_view name) {
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(':', 1));
    if (absl::StripAsciiWhitespace(parts.first) == name) {
      return std::string(absl::StripAsciiWhitespace(parts.second));
    }
  }
  return "";
}

std::optional<uint64_t> NumberIn(absl::string_view text) {
  uint64_t number = 0;
  const std::vector<absl::string_view> words = absl::StrSplit(text, ' ', absl::SkipEmpty());
  if (words.empty() || !absl::SimpleAtoi(words[0], &number)) return std::nullopt;
  return number;
}

Finding Processor(const std::string& root) {
  const std::string info = ReadText(root + "/proc/cpuinfo");
  const std::string flags = absl::StrCat(" ", ValueIn(info, "flags"), " ");
  cpu_set_t own;
  CPU_ZERO(&own);
  const int processors = sched_getaffinity(0, sizeof(own), &own) == 0 ? CPU_COUNT(&own) : 0;
  std::string sets;
  for (const char* set : {"avx2", "avx512f", "avx512_bf16", "avx512_vnni", "amx_tile"}) {
    if (absl::StrContains(flags, absl::StrCat(" ", set, " "))) absl::StrAppend(&sets, " ", set);
  }
  const std::string name = ValueIn(info, "model name");
  Finding finding{"processor", Verdict::kGood,
                  absl::StrCat(name.empty() ? "unknown model" : name, ", ", processors,
                               " processors,", sets.empty() ? " no AVX2 or AVX-512" : sets),
                  ""};
  if (sets.empty()) {
    finding.verdict = Verdict::kAdvice;
    finding.remedy = "without a GPU, use a CPU with AVX2 or AVX-512: it is several times as fast";
  }
  return finding;
}

// The least host memory that the daemon needs. Without a GPU: the model's files (of which how much
// is experts is not known here, so with --expert-memory at most that), and either the keys and
// values or 1 GiB for the program, whichever is more. With a GPU: 1 GiB and those of --kv-host,
// because the mapped files can be dropped from memory.
uint64_t MemoryNeeded(const ServerConfig& config, const MachineFacts& facts, uint64_t model_bytes) {
  const auto kv_host = static_cast<uint64_t>(config.engine.kv_host_bytes);
  if (facts.on_gpu) return kLeastMemory + kv_host;
  const auto experts = static_cast<uint64_t>(config.engine.expert_memory_bytes);
  if (experts > 0) model_bytes = std::min(model_bytes, experts);
  return std::max<uint64_t>(kLeastMemory, config.engine.kv_memory_bytes) + kv_host + model_bytes;
}

Finding Memory(const ServerConfig& config, const MachineFacts& facts, const std::string& root,
               uint64_t model_bytes) {
  const std::string info = ReadText(root + "/proc/meminfo");
  const auto kilobytes = NumberIn(ValueIn(info, "MemAvailable"));
  if (!kilobytes)
    return {"memory", Verdict::kAdvice, "/proc/meminfo has no MemAvailable", "mount /proc"};
  const uint64_t available = *kilobytes * 1024;
  Finding finding{"memory", Verdict::kGood, FormatBytes(available) + " available", ""};
  const uint64_t needed = MemoryNeeded(config, facts, model_bytes);
  if (available < needed) {
    finding.verdict = Verdict::kBad;
    finding.remedy = absl::StrCat(
        "the model, the keys and values and the program need ", FormatBytes(needed),
        "; stop other programs, set a smaller --kv-memory or --kv-host, or use a smaller model");
  }
  return finding;
}

Finding HugePageState(const ServerConfig& config, const std::string& root) {
  if (config.huge_pages == HugePagesChoice::kExplicit) {
    const auto free = NumberIn(ValueIn(ReadText(root + "/proc/meminfo"), "HugePages_Free"));
    if (free.value_or(0) > 0) {
      return {"huge pages", Verdict::kGood, absl::StrCat(*free, " reserved pages are free"), ""};
    }
    return {"huge pages", Verdict::kBad, "none are reserved, but --huge-pages explicit needs them",
            "sysctl vm.nr_hugepages=N, or --huge-pages auto"};
  }
  const std::string mode = ReadText(root + "/sys/kernel/mm/transparent_hugepage/enabled");
  if (absl::StrContains(mode, "[never]") && config.huge_pages != HugePagesChoice::kOff) {
    return {"huge pages", Verdict::kAdvice, "transparent huge pages are off",
            "echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"};
  }
  return {"huge pages", Verdict::kGood, mode.empty() ? "the system has no such setting" : mode, ""};
}

Finding MemoryNodes(const ServerConfig& config, const std::string& root) {
  const std::string online = ReadText(root + "/sys/devices/system/node/online");
  if (online.empty() || online == "0") {
    return {"memory nodes", Verdict::kGood, "one", ""};
  }
  Finding finding{"memory nodes", Verdict::kGood, online, ""};
  if (!config.numa) {
    finding.verdict = Verdict::kAdvice;
    finding.remedy = "--numa auto keeps each rank's memory near its processors";
  } else if (ReadText(root + "/proc/sys/kernel/numa_balancing") == "1") {
    finding.verdict = Verdict::kAdvice;
    finding.remedy =
        "sysctl kernel.numa_balancing=0, so that the kernel does not migrate pages that are "
        "already local";
  }
  return finding;
}

// The control groups that the process is in.
Finding ControlGroup(const ServerConfig& config, const MachineFacts& facts, const std::string& root,
                     uint64_t model_bytes) {
  const std::string processors = ReadText(root + "/sys/fs/cgroup/cpu.max");
  const std::optional<uint64_t> limit = facts.group_memory;
  Finding finding{
      "control group", Verdict::kGood,
      absl::StrCat(
          limit.has_value() ? FormatBytes(*limit) + " of memory" : "no memory limit", ", CPU: ",
          processors.empty() || absl::StartsWith(processors, "max") ? "without limit" : processors),
      ""};
  if (limit.has_value() && *limit < MemoryNeeded(config, facts, model_bytes)) {
    finding.verdict = Verdict::kBad;
    finding.remedy =
        "raise the memory limit (systemd MemoryMax, podman --memory, Kubernetes "
        "resources), or lower --kv-memory";
  } else if (!processors.empty() && !absl::StartsWith(processors, "max")) {
    finding.verdict = Verdict::kAdvice;
    finding.remedy =
        "a CPU quota (CPUQuota, limits.cpu) pauses all threads of a step at once; assign whole "
        "CPUs (AllowedCPUs, cpuset) instead";
  }
  return finding;
}

Finding OpenFiles(const ServerConfig& config) {
  constexpr uint64_t kOthers = 64;  // model, log, listeners, gRPC
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const uint64_t each = config.tls_certificate.empty() ? 3 : 1;
  const uint64_t needed = each * static_cast<uint64_t>(config.max_connections) + kOthers;
  Finding finding{"open files", Verdict::kGood, absl::StrCat("at most ", limit.rlim_max), ""};
  if (limit.rlim_max < needed) {
    finding.verdict = Verdict::kAdvice;
    finding.remedy =
        absl::StrCat(config.max_connections, " connections need ", needed,
                     " open files; raise ulimit -n or LimitNOFILE, or lower --max-connections");
  }
  return finding;
}

Finding Threads(const ServerConfig& config) {
  const int needed = ThreadsNeeded(config.engine.threads, config.engine.ranks);
  const absl::Status room = CheckThreadRoom(needed);
  if (room.ok()) return {"threads", Verdict::kGood, absl::StrCat(needed, " can be started"), ""};
  return {"threads", Verdict::kBad, std::string(room.message()), "raise that limit"};
}

Finding Port(const char* option, const std::string& address) {
  if (address.empty()) return {option, Verdict::kGood, "off", ""};
  const auto listener = ConnectionAcceptor::Listen(address);
  if (listener.ok()) return {option, Verdict::kGood, address + " is free", ""};
  return {option, Verdict::kBad, std::string(listener.status().message()),
          absl::StrCat("stop the program that listens there, or set --", option)};
}

// The model's largest file and the size of all its files. The model may also be a single file.
struct ModelFiles {
  std::string largest;
  uint64_t largest_bytes = 0;
  uint64_t bytes = 0;
};
ModelFiles FindFiles(const std::string& model) {
  namespace fs = std::filesystem;
  ModelFiles found;
  const auto add = [&](const fs::path& path) {
    std::error_code error;
    if (!fs::is_regular_file(path, error)) return;
    const uint64_t bytes = fs::file_size(path, error);
    if (error) return;
    found.bytes += bytes;
    if (bytes < found.largest_bytes) return;
    found.largest = path.string();
    found.largest_bytes = bytes;
  };
  std::error_code error;
  add(model);
  for (fs::directory_iterator entry(model, error), end; !error && entry != end;
       entry.increment(error)) {
    add(entry->path());
  }
  return found;
}

// Measures the read rate in bytes per second, after dropping the file from the page cache. 0: the
// file cannot be read.
double ReadRate(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) return 0;
  posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED);
  std::string buffer(size_t{4} << 20, '\0');
  const auto begun = std::chrono::steady_clock::now();
  size_t done = 0;
  while (done < kReadBytes) {
    const ssize_t more = read(file, buffer.data(), buffer.size());
    if (more <= 0) break;
    done += static_cast<size_t>(more);
  }
  close(file);
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  return static_cast<double>(done) / std::max(seconds, 1e-6);
}

// A model with random weights consists of a config.json only.
Finding RandomModel(const std::string& file) {
  const absl::Status status = ReadPlainFile("model", file, kLongestConfig).status();
  if (!status.ok()) {
    return {"model", Verdict::kBad, std::string(status.message()),
            "set --model to random: and a config.json that this user may read"};
  }
  return {"model", Verdict::kGood, file + ", with random weights", ""};
}

void ExamineModel(const ServerConfig& config, const ModelFiles& files,
                  std::vector<Finding>& findings) {
  absl::string_view model = config.engine.model;
  if (absl::StartsWith(model, "builtin:")) {
    findings.push_back({"model", Verdict::kGood, absl::StrCat(model, " (built in, no files)"), ""});
    return;
  }
  if (absl::ConsumePrefix(&model, "random:")) {
    findings.push_back(RandomModel(std::string(model)));
    return;
  }
  if (files.bytes == 0) {
    findings.push_back({"model", Verdict::kBad, absl::StrCat("no readable file at ", model),
                        "set --model to a folder or a GGUF file that this user may read"});
    return;
  }
  findings.push_back({"model", Verdict::kGood,
                      absl::StrCat(model, ", ", FormatBytes(files.bytes),
                                   "; annulusd --check says whether it can be served"),
                      ""});
  const double rate = ReadRate(files.largest);
  Finding disk{"disk", Verdict::kGood,
               absl::StrFormat("%.0f MB/s; the model takes %.1f s to read", rate / 1e6,
                               static_cast<double>(files.bytes) / std::max(rate, 1.0)),
               ""};
  if (rate == 0) {
    disk = {"disk", Verdict::kBad, "cannot read " + files.largest, "let this user read it"};
  } else if (rate < kSlowDisk) {
    disk.verdict = Verdict::kAdvice;
    disk.remedy = "this slows down every start; put the model on a local disk";
  }
  findings.push_back(std::move(disk));
}

const char* VerdictName(Verdict verdict) {
  switch (verdict) {
    case Verdict::kGood:
      return "good";
    case Verdict::kAdvice:
      return "could be better";
    case Verdict::kBad:
      return "bad";
  }
  return "bad";
}

}  // namespace

std::vector<Finding> ExamineMachine(const ServerConfig& config, const MachineFacts& facts,
                                    const std::string& root) {
  const ModelFiles files = FindFiles(config.engine.model);
  std::vector<Finding> findings = {Processor(root),
                                   Memory(config, facts, root, files.bytes),
                                   HugePageState(config, root),
                                   MemoryNodes(config, root),
                                   ControlGroup(config, facts, root, files.bytes),
                                   OpenFiles(config),
                                   Threads(config),
                                   Port("listen", config.listen),
                                   Port("metrics", config.metrics)};
  ExamineModel(config, files, findings);
  return findings;
}

std::string FindingsText(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    absl::StrAppendFormat(&text, "%-14s %s: %s\n", finding.subject, VerdictName(finding.verdict),
                          finding.what);
    if (!finding.remedy.empty()) absl::StrAppendFormat(&text, "%-14s do: %s\n", "", finding.remedy);
  }
  return text;
}

}  // namespace annulus::server
