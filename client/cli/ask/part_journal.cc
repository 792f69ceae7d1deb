#include "client/cli/ask/part_journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "client/cli/input/json_input.h"
#include "client/format/json.h"
#include "client/read/files.h"

namespace annulus::client {
namespace {

constexpr int64_t kMostBytes = int64_t{16} << 20;

}  // namespace

std::string PartJournalPath(const Environment& environment) {
  const auto cache = environment("XDG_CACHE_HOME");
  if (cache.has_value() && !cache->empty()) return absl::StrCat(*cache, "/annulus/parts.jsonl");
  const auto home = environment("HOME");
  return home.has_value() && !home->empty() ? absl::StrCat(*home, "/.cache/annulus/parts.jsonl")
                                            : "";
}

PartJournal::PartJournal(std::string path) : path_(std::move(path)) {
  if (path_.empty()) return;
  const absl::StatusOr<std::string> text = LoadFile(path_, kMostBytes);
  if (!text.ok()) {
    std::error_code ignored;
    if (!absl::IsNotFound(text.status())) std::filesystem::remove(path_, ignored);
    return;
  }
  for (const absl::string_view line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto object = ParseJson(std::string(line));
    if (!object.has_value() || !object->is_object()) continue;
    const auto key = object->find("key"), answer = object->find("answer");
    if (key == object->end() || answer == object->end() || !key->is_string() ||
        !answer->is_string()) {
      continue;
    }
    answers_[key->get<std::string>()] = answer->get<std::string>();
  }
}

const std::string* PartJournal::Find(const std::string& key) const {
  const auto found = answers_.find(key);
  return found == answers_.end() ? nullptr : &found->second;
}

bool PartJournal::Add(const std::string& key, const std::string& answer) {
  if (path_.empty()) return true;
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path_).parent_path(), ignored);
  const int file =
      open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, S_IRUSR | S_IWUSR);
  if (file < 0) return false;
  JsonWriter json;
  json.BeginObject().Key("key").String(key).Key("answer").String(answer).EndObject();
  const std::string line = absl::StrCat(json.text(), "\n");
  const bool written = write(file, line.data(), line.size()) == static_cast<ssize_t>(line.size());
  return close(file) == 0 && written;
}

}  // namespace annulus::client
