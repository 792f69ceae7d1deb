#include "kernels/cpu/host/control_groups.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"

namespace annulus {
namespace {

// Version 1 says "no limit" with the greatest multiple of a page below 2^63.
constexpr uint64_t kNoLimit = uint64_t{1} << 62;
constexpr int64_t kMostThreads = 1 << 20;

// A place where a hierarchy of groups can be seen.
struct GroupMount {
  std::string controller;  // "memory" or "cpu" of version 1; empty: version 2
  std::string root;        // the group that is shown at `folder`
  std::string folder;
};

std::optional<std::string> FirstLineOf(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

void Lower(std::optional<uint64_t>& limit, const std::string& text) {
  uint64_t bytes = 0;
  if (!absl::SimpleAtoi(text, &bytes) || bytes == 0 || bytes >= kNoLimit) return;
  limit = std::min(limit.value_or(bytes), bytes);
}

// Microseconds of processor time in each period.
void Lower(std::optional<int>& limit, const std::string& quota_text,
           const std::string& period_text) {
  int64_t quota = 0;
  int64_t period = 0;
  if (!absl::SimpleAtoi(quota_text, &quota) || !absl::SimpleAtoi(period_text, &period) ||
      quota < 1 || period < 1) {
    return;
  }
  const int threads =
      static_cast<int>(std::min<int64_t>(quota / period + (quota % period != 0), kMostThreads));
  limit = std::min(limit.value_or(threads), threads);
}

// mountinfo writes blanks, tabs, line feeds and backslashes as three octal digits.
std::string Unescaped(absl::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const absl::string_view digits = text.substr(i + 1, 3);
    if (text[i] == '\\' && digits.size() == 3 &&
        digits.find_first_not_of("01234567") == absl::string_view::npos) {
      plain.push_back(
          static_cast<char>((digits[0] - '0') * 64 + (digits[1] - '0') * 8 + (digits[2] - '0')));
      i += 3;
    } else {
      plain.push_back(text[i]);
    }
  }
  return plain;
}

// One line of proc_pid_mountinfo(5): "id parent device root folder options tag.. - type source
// super-options". A mount of version 1 may serve several controllers.
void AddMounts(const std::string& line, std::vector<GroupMount>& mounts) {
  const std::vector<std::string> fields = absl::StrSplit(line, ' ');
  const auto dash = std::find(fields.begin(), fields.end(), "-");
  if (dash - fields.begin() < 6 || fields.end() - dash < 4) return;
  const std::string root = Unescaped(fields[3]);
  const std::string folder = Unescaped(fields[4]);
  if (dash[1] == "cgroup2") mounts.push_back({"", root, folder});
  if (dash[1] != "cgroup") return;
  for (const absl::string_view option : absl::StrSplit(dash[3], ',')) {
    if (option == "memory" || option == "cpu") {
      mounts.push_back({std::string(option), root, folder});
    }
  }
}

std::vector<GroupMount> ReadMounts(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/self/mountinfo"));
  std::vector<GroupMount> mounts;
  for (std::string line; std::getline(file, line);) AddMounts(line, mounts);
  // Sandboxes that show no mounts show the groups at the customary place all the same.
  if (mounts.empty()) mounts.push_back({"", "/", "/sys/fs/cgroup"});
  return mounts;
}

// The process' group by controller, from lines "number:controllers:/path"; version 2 has none.
std::map<std::string, std::string> ReadGroups(const std::string& root) {
  std::ifstream file(absl::StrCat(root, "/proc/self/cgroup"));
  std::map<std::string, std::string> groups;
  for (std::string line; std::getline(file, line);) {
    const std::vector<std::string> fields = absl::StrSplit(line, absl::MaxSplits(':', 2));
    if (fields.size() != 3) continue;
    for (const absl::string_view controller : absl::StrSplit(fields[1], ',')) {
      groups.emplace(controller, fields[2]);
    }
  }
  return groups;
}

// The way from the mount's root to `group`, "/a/b" or empty. A group outside of what the mount
// shows stands for the mount's root: a container sees its own group there, by another name.
std::string WayBelow(const GroupMount& mount, const std::string& group) {
  const std::string prefix = mount.root == "/" ? "" : mount.root;
  if (!absl::StartsWith(group, prefix)) return "";
  std::string way = group.substr(prefix.size());
  while (absl::EndsWith(way, "/")) way.pop_back();
  if (!way.empty() && (way.front() != '/' || absl::StrContains(way, "/.."))) return "";
  return way;
}

void ReadUnified(const std::string& folder, ControlGroupLimits& limits) {
  for (const char* name : {"/memory.max", "/memory.high"}) {
    if (const auto line = FirstLineOf(folder + name)) Lower(limits.memory_bytes, *line);
  }
  if (const auto line = FirstLineOf(folder + "/cpu.max")) {
    const std::vector<std::string> fields = absl::StrSplit(*line, ' ');
    if (fields.size() == 2) Lower(limits.threads, fields[0], fields[1]);
  }
}

void ReadOldMemory(const std::string& folder, ControlGroupLimits& limits) {
  if (const auto line = FirstLineOf(folder + "/memory.limit_in_bytes")) {
    Lower(limits.memory_bytes, *line);
  }
  // The least limit on the way to the true root, which a container does not see otherwise.
  constexpr absl::string_view kLeast = "hierarchical_memory_limit ";
  std::ifstream file(folder + "/memory.stat");
  for (std::string line; std::getline(file, line);) {
    if (absl::StartsWith(line, kLeast)) Lower(limits.memory_bytes, line.substr(kLeast.size()));
  }
}

void ReadOldCpu(const std::string& folder, ControlGroupLimits& limits) {
  const auto quota = FirstLineOf(folder + "/cpu.cfs_quota_us");
  const auto period = FirstLineOf(folder + "/cpu.cfs_period_us");
  if (quota && period) Lower(limits.threads, *quota, *period);
}

}  // namespace

ControlGroupLimits ReadControlGroups(const std::string& root) {
  const std::map<std::string, std::string> groups = ReadGroups(root);
  ControlGroupLimits limits;
  for (const GroupMount& mount : ReadMounts(root)) {
    const auto group = groups.find(mount.controller);
    std::string way = WayBelow(mount, group == groups.end() ? "/" : group->second);
    for (;;) {
      const std::string folder = absl::StrCat(root, mount.folder, way);
      if (mount.controller == "memory") {
        ReadOldMemory(folder, limits);
      } else if (mount.controller == "cpu") {
        ReadOldCpu(folder, limits);
      } else {
        ReadUnified(folder, limits);
      }
      if (way.empty()) break;
      way.resize(way.rfind('/'));
    }
  }
  return limits;
}

}  // namespace annulus
