#include "client/read/files.h"

#include <fnmatch.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <system_error>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace annulus::client {
namespace {

constexpr size_t kMaxFiles = 10000;
constexpr int kMaxEntries = 1000000;  // files and folders visited by one walk

std::vector<std::string> Segments(absl::string_view path) {
  return absl::StrSplit(path, '/', absl::SkipEmpty());
}

bool MatchesName(const std::string& pattern, const std::string& name) {
  return fnmatch(pattern.c_str(), name.c_str(), FNM_PERIOD | FNM_NOESCAPE) == 0;
}

bool Chosen(const FileChoice& choice, const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const auto matches = [&](const std::string& pattern) {
    return absl::StrContains(pattern, '/') ? MatchesPattern(pattern, path)
                                           : MatchesName(pattern, name);
  };
  const auto any = [&](const std::vector<std::string>& patterns) {
    return std::any_of(patterns.begin(), patterns.end(), matches);
  };
  return (choice.include.empty() || any(choice.include)) && !any(choice.exclude);
}

// A pattern split into the folder to search, which has no wildcards, and the rest.
struct Split {
  std::string folder;
  std::string pattern;
};

Split SplitPattern(const std::string& path) {
  size_t at = path.find_first_of("*?[");
  at = path.rfind('/', at);
  if (at == std::string::npos) return {".", path};
  return {at == 0 ? "/" : path.substr(0, at), path.substr(at + 1)};
}

// Calls take(path relative to `folder`) for every file. The walk ends when take returns false.
template <typename Take>
absl::Status WalkFolder(const std::string& folder, bool with_hidden, const Take& take) {
  namespace fs = std::filesystem;
  std::error_code error;
  fs::recursive_directory_iterator at(folder, fs::directory_options::skip_permission_denied, error);
  int entries = 0;
  for (; !error && at != fs::recursive_directory_iterator(); at.increment(error)) {
    if (++entries > kMaxEntries) {
      return absl::ResourceExhaustedError(
          absl::StrCat(folder, " has more than ", kMaxEntries, " entries; give a subfolder"));
    }
    const bool hidden = absl::StartsWith(at->path().filename().string(), ".");
    std::error_code unknown;
    if (hidden && !with_hidden) {
      if (at->is_directory(unknown)) at.disable_recursion_pending();
      continue;
    }
    if (!at->is_regular_file(unknown)) continue;
    if (!take(at->path().lexically_relative(folder).generic_string())) break;
  }
  if (error) {
    return absl::NotFoundError(
        absl::StrCat("cannot list the folder ", folder, ": ", error.message()));
  }
  return absl::OkStatus();
}

// The ending of a file's name in lower case, without its dot.
std::string EndingOf(const std::string& path) {
  const std::string ending = std::filesystem::path(path).extension().string();
  return absl::AsciiStrToLower(absl::StripPrefix(ending, "."));
}

bool BringsNoText(const std::string& ending) {
  static const auto& endings = *new std::set<std::string>{
      "css",  "js",  "mjs", "map", "png", "jpg",  "jpeg", "gif",   "webp",
      "avif", "bmp", "ico", "svg", "tif", "tiff", "woff", "woff2", "ttf",
      "otf",  "eot", "mp3", "ogg", "wav", "mp4",  "webm"};
  return endings.contains(ending);
}

std::string DescribeLeftOut(const std::string& folder, const std::map<std::string, int>& left_out) {
  int count = 0;
  std::vector<std::string> kinds;
  for (const auto& [ending, files] : left_out) {
    count += files;
    kinds.push_back(absl::StrCat(files, " ", ending));
  }
  if (count == 0) return "";
  return absl::StrCat(folder, ": left out ", count,
                      count == 1 ? " file that is" : " files that are", " no document (",
                      absl::StrJoin(kinds, ", "), "); --include takes them");
}

}  // namespace

bool IsPattern(absl::string_view path) {
  return path.find_first_of("*?[") != absl::string_view::npos;
}

bool MatchesPattern(absl::string_view pattern, absl::string_view path) {
  const std::vector<std::string> patterns = Segments(pattern), names = Segments(path);
  // row[j]: whether the segments of the pattern so far match the first j names of the path.
  std::vector<bool> row(names.size() + 1, false);
  row[0] = true;
  for (const std::string& segment : patterns) {
    std::vector<bool> next(names.size() + 1, false);
    next[0] = segment == "**" && row[0];
    for (size_t j = 1; j <= names.size(); ++j) {
      if (segment == "**") {
        next[j] = row[j] || (next[j - 1] && names[j - 1][0] != '.');
      } else {
        next[j] = row[j - 1] && MatchesName(segment, names[j - 1]);
      }
    }
    row = next;
  }
  return row.back();
}

absl::StatusOr<FoundFiles> FindFiles(const std::string& folder_or_pattern,
                                     const FileChoice& choice) {
  std::error_code error;
  const bool is_folder = std::filesystem::is_directory(folder_or_pattern, error);
  const Split split = is_folder ? Split{folder_or_pattern, "**"} : SplitPattern(folder_or_pattern);
  if (!std::filesystem::is_directory(split.folder, error)) {
    return absl::NotFoundError(absl::StrCat("no file matches ", folder_or_pattern));
  }
  const bool with_hidden =
      absl::StartsWith(split.pattern, ".") || absl::StrContains(split.pattern, "/.");
  FoundFiles found;
  std::map<std::string, int> left_out;  // by ending
  const absl::Status walked = WalkFolder(split.folder, with_hidden, [&](const std::string& path) {
    if (!MatchesPattern(split.pattern, path) || !Chosen(choice, path)) return true;
    const std::string ending = EndingOf(path);
    if (is_folder && choice.include.empty() && BringsNoText(ending)) {
      ++left_out[ending];
      return true;
    }
    const bool here = split.folder == "." && !is_folder;
    found.files.push_back(here ? path : (std::filesystem::path(split.folder) / path).string());
    return found.files.size() <= kMaxFiles;
  });
  if (!walked.ok()) return walked;
  if (found.files.size() > kMaxFiles) {
    return absl::ResourceExhaustedError(absl::StrCat(
        folder_or_pattern, " matches more than ", kMaxFiles, " files; select some with --include"));
  }
  found.left_out = DescribeLeftOut(folder_or_pattern, left_out);
  if (found.files.empty()) {
    return absl::NotFoundError(absl::StrCat(
        "no file ", is_folder ? "is in " : "matches ", folder_or_pattern,
        choice.include.empty() && choice.exclude.empty() ? ""
                                                         : " that --include and --exclude leave",
        found.left_out.empty() ? "" : absl::StrCat("; ", found.left_out)));
  }
  std::sort(found.files.begin(), found.files.end());
  return found;
}

absl::StatusOr<std::string> LoadFile(const std::string& path, int64_t limit) {
  std::ifstream file(path, std::ios::binary);
  if (!file.is_open()) {
    return absl::NotFoundError(absl::StrCat("cannot open ", path, " for reading"));
  }
  std::string bytes;
  std::string chunk(size_t{1} << 20, '\0');
  while (file.read(chunk.data(), static_cast<std::streamsize>(chunk.size())), file.gcount() > 0) {
    bytes.append(chunk, 0, static_cast<size_t>(file.gcount()));
    if (static_cast<int64_t>(bytes.size()) > limit) {
      return absl::ResourceExhaustedError(
          absl::StrCat(path, " is larger than ", limit >> 20, " MiB; split it into several files"));
    }
  }
  if (file.bad()) return absl::DataLossError(absl::StrCat("reading ", path, " failed"));
  return bytes;
}

}  // namespace annulus::client
