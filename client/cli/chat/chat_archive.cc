#include "client/cli/chat/chat_archive.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "client/cli/batch/batch_store.h"

namespace annulus::client {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostChats = 100;

// The saved conversations, the one that was written last at the end.
std::vector<fs::path> ChatsIn(const fs::path& folder) {
  std::vector<std::pair<fs::file_time_type, fs::path>> found;
  std::error_code error;
  for (fs::directory_iterator file(folder, error), end; !error && file != end;
       file.increment(error)) {
    std::error_code ignored;
    if (file->path().extension() != ".json") continue;
    found.emplace_back(file->last_write_time(ignored), file->path());
  }
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [time, path] : found) paths.push_back(std::move(path));
  return paths;
}

}  // namespace

std::string ChatFolder(const Environment& environment) {
  const auto state = environment("XDG_STATE_HOME");
  if (state.has_value() && !state->empty()) return absl::StrCat(*state, "/annulus/chats");
  const auto home = environment("HOME");
  return home.has_value() && !home->empty() ? absl::StrCat(*home, "/.local/state/annulus/chats")
                                            : "";
}

std::string NewestChat(const std::string& folder) {
  const std::vector<fs::path> chats = ChatsIn(folder);
  return chats.empty() ? "" : chats.back().string();
}

std::string NewChat(const std::string& folder) {
  return absl::StrCat(folder, "/",
                      absl::FormatTime("%Y-%m-%d-%H%M%S", absl::Now(), absl::UTCTimeZone()), "-",
                      getpid(), ".json");
}

absl::Status SaveChat(const std::string& path, const Conversation& conversation) {
  const fs::path folder = fs::path(path).parent_path();
  std::error_code ignored;
  fs::create_directories(folder, ignored);
  fs::permissions(folder, fs::perms::owner_all, ignored);
  absl::Status written = WriteAtOnce(path, ConversationJson(conversation));
  if (!written.ok()) return written;
  const std::vector<fs::path> chats = ChatsIn(folder);
  for (size_t i = 0; i + kMostChats < chats.size(); ++i) fs::remove(chats[i], ignored);
  return absl::OkStatus();
}

}  // namespace annulus::client
